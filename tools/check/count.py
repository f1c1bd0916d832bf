#!/usr/bin/env python3
"""Adds up test results: count.py [--unbuilt N] JUNIT.xml... reads what ctest wrote and prints, as its last line, `N passed, N failed`.

Each ctest test is a program that runs many cases; what is counted is the cases, from what the program printed: cmocka's
lines, a closing line `N passed, N failed`, unittest's summary, or TAP.  A program that printed none of those is one case.
A program that ended badly without naming a failed case is one failure, and so is each of N builds that failed.  Exits 1 when a case failed or nothing passed.
"""
import re
import sys
import xml.etree.ElementTree

NUMBERS = {"passed": 0, "failed": 1, "error": 1, "errors": 1, "skipped": 2}


def cmocka(text):
    if not re.search(r"^\[==========\] Running \d+ test", text, re.M):
        return None
    total = [len(re.findall(r"^\[       OK \]", text, re.M)), 0, 0]
    for word, number in re.findall(r"^\[  (FAILED |SKIPPED|FAILED) +\] (\d+) test\(s\)", text, re.M):
        total[1 if word.strip() == "FAILED" else 2] += int(number)
    return total


def plain(text):
    """`3 passed, 1 failed, 2 skipped`: our own closing line, or pytest's."""
    found = None
    for line in text.splitlines():
        pairs = re.findall(r"(\d+) (passed|failed|errors?|skipped)\b", line)
        if pairs and re.fullmatch(r"[=\s]*(\w+: )?\d+ (passed|failed|errors?|skipped)(, \d+ \w+)*( in [\d.]+s.*)?[=\s]*", line):
            found = pairs
    if found is None:
        return None
    total = [0, 0, 0]
    for number, word in found:
        total[NUMBERS[word]] += int(number)
    return total


def unittest(text):
    total = [0, 0, 0]
    runs = re.findall(r"^Ran (\d+) tests? in .*\n+(OK|FAILED|NO TESTS RAN)(?: \((.*)\))?", text, re.M)
    for ran, _, details in runs:
        counts = {name: int(number) for name, number in re.findall(r"(failures|errors|skipped)=(\d+)", details)}
        bad = counts.get("failures", 0) + counts.get("errors", 0)
        skipped = counts.get("skipped", 0)
        total = [total[0] + max(0, int(ran) - bad - skipped), total[1] + bad, total[2] + skipped]
    return total if runs else None


def tap(text):
    lines = re.findall(r"^(not ok|ok)\b(.*)$", text, re.M)
    if not lines:
        return None
    skipped = sum(1 for state, rest in lines if state == "ok" and re.search(r"# skip", rest, re.I))
    failed = sum(1 for state, _ in lines if state == "not ok")
    return [len(lines) - skipped - failed, failed, skipped]


def cases(test):
    """(passed, failed, skipped) of one <testcase>, and whether it is a failure."""
    text = test.findtext("system-out") or ""
    bad = test.get("status") == "fail" or test.find("failure") is not None
    if test.get("status") == "notrun" or test.find("skipped") is not None:
        return (0, 0, 1) if test.find("skipped") is not None and not bad else (0, 1, 0)
    for reader in (cmocka, plain, unittest, tap):
        total = reader(text)
        if total is not None:
            break
    else:
        total = [0 if bad else 1, 0, 0]
    if bad and total[1] == 0:
        total[1] = 1
    return tuple(total)


def report(path, test, numbers):
    name = test.get("name")
    print(f"{name}: {numbers[0]} passed, {numbers[1]} failed, {numbers[2]} skipped  ({path})", file=sys.stderr)
    if numbers[1]:
        for line in (test.findtext("system-out") or "(no output)").splitlines()[-60:]:
            print("    " + line, file=sys.stderr)


def main(paths):
    total = [0, 0, 0]
    if paths[:1] == ["--unbuilt"]:
        total[1] = int(paths[1])
        paths = paths[2:]
    for path in paths:
        try:
            tests = xml.etree.ElementTree.parse(path).getroot().iter("testcase")
        except (OSError, xml.etree.ElementTree.ParseError) as problem:
            print(f"{path}: {problem}", file=sys.stderr)
            total[1] += 1
            continue
        for test in tests:
            numbers = cases(test)
            if numbers[1] or numbers[2]:
                report(path, test, numbers)
            total = [a + b for a, b in zip(total, numbers)]
    sys.stderr.flush()
    print(f"{total[0]} passed, {total[1]} failed" + (f", {total[2]} skipped" if total[2] else ""), flush=True)
    return 1 if total[1] or not total[0] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
