#!/usr/bin/env python3
"""`weir bench`: what it prints and stores, that its comparison can fail, that limits are the kernel's, that Ctrl-C leaves nothing.

Small models: the figures mean nothing here, their shape and their agreement with each other do.
"""
import csv
import glob
import io
import json
import os
import signal
import stat
import subprocess
import tempfile
import time
import unittest

import harness as h

TOKENS = 8
CTX = 256
TOP = ("weir_version time machine model model_bytes least_budget_bytes whole_budget_bytes tokens temp seed repeats page_cache limit "
       "not_resident rows logits_equal exit").split()
V1 = "/sys/fs/cgroup/memory"


def groups():
    """Memory groups of a bench that are there now."""
    return glob.glob(os.path.join(V1, "**", "weir-bench-*"), recursive=True) + glob.glob("/sys/fs/cgroup/**/weir-bench-*")


def can_limit():
    return os.geteuid() == 0 and os.access(V1, os.W_OK)


class Bench(unittest.TestCase):
    def setUp(self):
        h.need_programs()
        self.model = h.generated_models()["moe"]
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = holder.name

    def command(self, *more, budget=None, model=None):
        model = model or self.model
        memory = [] if budget is None else ["-M", budget]
        return [h.WEIR, "bench", model, "--prompt-tokens", h.prompt_of(model, 6), "-n", str(TOKENS), "-c", str(CTX), "-t", "1",
                *memory, *more]

    def least(self):
        spare = 32 * h.MIB if h.SANITIZED else h.MIB
        return h.size(h.least_budget(self.model, CTX, 1) + spare)

    def bench(self, *more, code=h.EXIT_DONE, **options):
        result = h.run(self.command("--json", *more, **options))
        self.assertEqual(result.code, code, str(result))
        return json.loads(result.out)


class Output(Bench):
    def test_json_and_csv(self):
        path = os.path.join(self.folder, "figures.csv")
        found = self.bench("-r", "2", "--csv", path, budget=self.least() + ",1G")
        self.assertEqual(list(found), TOP)
        rows = found["rows"]
        self.assertEqual([row["kind"] for row in rows], ["weir", "weir", "resident", "mmap"])
        self.assertEqual([len(row["runs"]) for row in rows], [2, 2, 2, 1])
        self.assertIs(found["logits_equal"], True)
        self.assertEqual(found["exit"], 0)
        for row in rows:
            self.check_row(row)
        self.assertGreater(rows[0]["bytes_per_token"], 0)
        self.assertGreater(rows[0]["drive_bytes_per_second"], 0)
        self.assertEqual(rows[1]["bytes_per_token"], 0)
        self.assertAlmostEqual(rows[0]["to_mmap"], rows[0]["tokens_per_second"] / rows[3]["tokens_per_second"], delta=1e-6)
        self.assertAlmostEqual(rows[0]["to_resident"], rows[0]["tokens_per_second"] / rows[2]["tokens_per_second"], delta=1e-6)
        self.check_csv(path, rows)

    def check_row(self, row):
        self.assertEqual(row["runs_good"], len(row["runs"]))
        self.assertIs(row["logits_equal"], None if len(row["runs"]) == 0 else True)
        self.assertLessEqual(row["token_seconds_median"], row["token_seconds_p95"])
        for run in row["runs"]:
            self.assertEqual(len(run["token_seconds"]), row["tokens"])
            self.assertAlmostEqual(sum(run["token_seconds"][1:]), run["report"]["seconds"], delta=1e-6)
            self.assertIsNone(run["error"])

    def check_csv(self, path, rows):
        with open(path, newline="") as file:
            lines = list(csv.DictReader(io.StringIO(file.read())))
        self.assertEqual(len(lines), sum(len(row["runs"]) for row in rows))
        self.assertEqual(lines[0]["model"], self.model)
        reports = [run["report"] for row in rows for run in row["runs"]]
        self.assertEqual([line["logits_hash"] for line in lines], [report["logits_hash"] for report in reports])
        for line, report in zip(lines, reports):
            self.assertAlmostEqual(float(line["tokens_per_second"]) / report["tokens_per_second"], 1, delta=1e-6)
            self.assertEqual(line["page_cache"], "cold")
            self.assertTrue(line["system"] and line["filesystem"])

    def test_table(self):
        result = h.run(self.command("-r", "1", "--no-mmap"))
        self.assertEqual(result.code, h.EXIT_DONE, str(result))
        self.assertIn("llama.cpp resident", result.out)
        self.assertIn("equal", result.out)
        self.assertNotIn("mmap 3", result.out)
        self.assertEqual([line for line in result.out.splitlines() if line != line.rstrip()], [])
        self.assertEqual(result.err, "")


class Alike(Bench):
    def test_no_run_begins_with_what_earlier_ones_have_counted(self):
        budget = self.least()
        with tempfile.TemporaryDirectory() as cache:
            env = {"XDG_CACHE_HOME": cache}
            command = [h.WEIR, "run", self.model, "--prompt-tokens", h.prompt_of(self.model, 6), "-n", str(TOKENS), "-c", str(CTX),
                       "-t", "1", "-M", budget, "--ignore-eos", "--json"]
            h.run_json(command, env=env)
            self.assertGreater(h.run_json(command, env=env)["counts_loaded"], 0)
            (kept,) = glob.glob(os.path.join(cache, "weir", "models", "*.counts"))
            with open(kept, "rb") as file:
                before = file.read()
            found = h.run_json(self.command("-r", "2", "--no-mmap", "--no-resident", "--json", budget=budget), env=env)
            self.assertEqual([run["report"]["counts_loaded"] for run in found["rows"][0]["runs"]], [0, 0])
            self.assertGreater(found["rows"][0]["runs"][1]["report"]["demanded"], 0)
            with open(kept, "rb") as file:
                self.assertEqual(file.read(), before)


class Failure(Bench):
    def test_other_logits_are_not_equal(self):
        more = ("-r", "1", "--no-mmap", "--variants", "--no-lookahead;--temp 1 --seed 3")
        found = self.bench(*more, budget="1G", code=h.EXIT_FAILED)
        rows = {row["options"]: row for row in found["rows"] if row["kind"] == "weir"}
        self.assertIs(rows["--no-lookahead"]["logits_equal"], True)
        other = rows["--temp 1 --seed 3"]
        self.assertIs(other["logits_equal"], False)
        self.assertGreater(other["runs"][0]["differs_at_token"], 1)  # the first token's logits come from the prompt alone
        self.assertIs(found["logits_equal"], False)
        table = h.run(self.command(*more, budget="1G"))
        self.assertEqual(table.code, h.EXIT_FAILED)
        self.assertIn("NOT EQUAL from token", table.out)

    def test_a_run_that_fails_is_named(self):
        if h.SANITIZED:
            self.skipTest("the model is smaller than what a sanitizer's memory varies by")
        env = {"WEIR_FAULT": "eio:20"}
        result = h.run(self.command("-r", "1", "--no-mmap", "--no-resident", "--json", budget=self.least()), env=env)
        self.assertEqual(result.code, h.EXIT_FAILED, str(result))
        run = json.loads(result.out)["rows"][0]["runs"][0]
        self.assertIsNone(run["report"])
        self.assertIn("offset", run["error"])
        self.assertIn("moe.gguf", run["error"])

    def test_budgets_that_cannot_hold_and_wrong_usage(self):
        for budget, code, says in (("1G,1M", h.EXIT_BUDGET, "the least is"), ("1G,x", h.EXIT_USAGE, "'x'"),
                                   ("", h.EXIT_USAGE, "size")):
            with self.subTest(budget):
                result = h.run(self.command(budget=budget))
                self.assertEqual((result.code, result.out), (code, ""), str(result))
                self.assertIn(says, result.err)
                self.assertNotIn("weir plan: ", result.err)
        result = h.run(self.command("--variants", "--nosuch", "-r", "1", budget="1G"))
        self.assertEqual((result.code, result.out), (h.EXIT_USAGE, ""), str(result))
        self.assertIn("--nosuch", result.err)
        result = h.run(self.command("--csv", self.model, budget="1G"))
        self.assertEqual(result.code, h.EXIT_USAGE, str(result))

    def test_no_model(self):
        self.assertEqual(h.run([h.WEIR, "bench", "/nosuch"]).code, h.EXIT_FAILED)


class Limits(Bench):
    def test_a_group_of_the_kernel(self):
        if not can_limit() or h.SANITIZED:
            self.skipTest("needs root and a v1 memory controller")
        budget = self.least()
        found = self.bench("-r", "1", "--no-resident", budget=budget)
        self.assertEqual(found["limit"]["method"], "cgroup v1")
        for row in found["rows"]:
            run = row["runs"][0]
            self.assertTrue(run["limit_enforced"])
            self.assertGreater(run["limit_peak_bytes"], 0)
            self.assertLessEqual(run["limit_peak_bytes"], row["memory_bytes"] + 4096)
        self.assertEqual(found["rows"][0]["limit_hits"], 0)

    def test_a_limit_that_is_met(self):
        """Four times the budget as a further option: the process is held to the limit all the same."""
        if not can_limit() or h.SANITIZED:
            self.skipTest("needs root and a v1 memory controller")
        model = h.generated_models()["moe-wide"]
        least = h.size(h.least_budget(model, CTX, 1) + h.MIB)
        found = self.bench("-r", "1", "--no-resident", "--no-mmap", "--variants", "-c 32768 -M 4G", budget=least, model=model,
                           code=h.EXIT_FAILED)
        run = found["rows"][1]["runs"][0]
        self.assertIn("memory limit", run["error"])
        self.assertGreater(run["limit_hits"], 0)

    def test_the_users_systemd(self):
        """Without a cgroup of its own the program asks systemd-run for a scope: here one that only says what it was asked."""
        program = os.path.join(self.folder, "systemd-run")
        with open(program, "w") as file:
            file.write('#!/bin/sh\necho "$@" >>"$(dirname "$0")/asked"\nwhile [ "$1" != -- ] && [ "$1" != true ]; do shift; done\n'
                       '[ "$1" != -- ] || shift\nexec "$@"\n')
        os.chmod(program, stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)
        if can_limit():
            if not unshare_works():
                self.skipTest("the cgroups here cannot be hidden")
            hide = ["unshare", "-m", "sh", "-c", 'umount -a -t cgroup,cgroup2; exec "$@"', "sh"]
        else:
            hide = []
        env = {"PATH": self.folder + ":" + os.environ["PATH"]}
        result = h.run([*hide, *self.command("-r", "1", "--no-resident", "--no-mmap", "--json", budget="1G")], env=env)
        self.assertEqual(result.code, h.EXIT_DONE, str(result))
        found = json.loads(result.out)
        self.assertEqual(found["limit"]["method"], "systemd scope")
        self.assertFalse(found["rows"][0]["runs"][0]["limit_enforced"])  # it is not: this systemd does nothing
        with open(os.path.join(self.folder, "asked")) as file:
            self.assertIn("--user --scope --quiet -p MemoryMax=1073741824 -p MemorySwapMax=0 --", file.read())


def unshare_works():
    done = subprocess.run(["unshare", "-m", "sh", "-c", "umount -a -t cgroup,cgroup2; ! test -d /sys/fs/cgroup/memory/x"],
                          capture_output=True, check=False)
    return done.returncode == 0


class Interrupted(Bench):
    def test_nothing_is_left(self):
        before = set(groups())
        process = subprocess.Popen(self.command("-r", "1000", "--no-mmap", "--no-resident", "--json", budget="1G"),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(2.5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=h.TIMEOUT_SECONDS)
        self.assertEqual(process.returncode, 130, err)
        self.assertIn("interrupted", err)
        self.assertEqual(json.loads(out)["exit"], 130)
        self.assertEqual(set(groups()) - before, set())
        children = subprocess.run(["ps", "-o", "pid=", "-g", str(process.pid)], capture_output=True, text=True, check=False)
        self.assertEqual(children.stdout.strip(), "")


if __name__ == "__main__":
    unittest.main()
