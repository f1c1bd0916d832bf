#!/usr/bin/env python3
"""Checks the size of our sources: no function over 90 lines, no file of 700 lines or more, no line over 128 columns.

Prints TAP.  A function is what stands between a `{` in column 1 and the `}` in column 1 after it, as the code style has it.
"""
import pathlib
import sys

FUNCTION_LINES_MAX = 90
FILE_LINES_MAX = 699
COLUMNS_MAX = 128
TAB = 8
FOLDERS = ("include", "src", "programs", "tests", "fuzz", "bench", "examples")


def functions(lines):
    """(first line number, length) of each function body."""
    start = None
    for number, line in enumerate(lines, 1):
        if line == "{":
            start = number
        elif line == "}" and start is not None:
            yield start, number - start + 1
            start = None


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    long_functions, long_files, long_lines = [], [], []
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.[ch]*")):
            if path.suffix not in (".c", ".h", ".cpp"):
                continue
            name = path.relative_to(root)
            lines = path.read_text(encoding="utf-8").splitlines()
            if len(lines) > FILE_LINES_MAX:
                long_files.append(f"{name}: {len(lines)} lines")
            long_functions += [f"{name}:{at}: {n} lines" for at, n in functions(lines) if n > FUNCTION_LINES_MAX]
            long_lines += [f"{name}:{at}" for at, line in enumerate(lines, 1) if len(line.expandtabs(TAB)) > COLUMNS_MAX]
    rules = (
        (f"no function is longer than {FUNCTION_LINES_MAX} lines", long_functions),
        (f"no file is longer than {FILE_LINES_MAX} lines", long_files),
        (f"no line is wider than {COLUMNS_MAX} columns", long_lines),
    )
    print(f"1..{len(rules)}")
    for rule, problems in rules:
        print(f"{'not ok' if problems else 'ok'} - {rule}")
        for problem in problems:
            print(f"# {problem}")
    return 1 if any(problems for _, problems in rules) else 0


if __name__ == "__main__":
    sys.exit(main())
