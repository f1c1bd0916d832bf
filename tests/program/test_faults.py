#!/usr/bin/env python3
"""Faults of the drive: the Nth read fails, for N = 1 and up until a run needs fewer reads than N.

Each such run must end by itself with exit code 1, one line on standard error that names the file and the offset, nothing on
standard output and no report file.  What is not an error - short reads, interrupted calls, slow reads, completions out of
order - must leave the logits as they were.  The descriptions of faults are those of src/io/fault.h, given in WEIR_FAULT.

By default N runs over a sample that still finds the end; WEIR_TEST_FULL=1 takes every N.
"""
import json
import os
import re
import tempfile
import unittest

import harness as h

MODELS = ("moe", "dense", "split")
METHODS = ("uring", "threads", "mmap")
HARMLESS = ("short:2", "short-odd:3", "eintr:2", "eagain:3", "latency-us:1000", "reorder",
            "short-odd:2,eintr:5,latency-us:200,reorder,seed:7")
FAILING = ("eio", "enomem")
CTX, PROMPT_TOKENS, TOKENS, THREADS = 256, 24, 12, 2
READS_MAX = 100000  # a run of these small models takes fewer reads than this


class Faults(unittest.TestCase):
    def setUp(self):
        h.need_programs()

    def command(self, path, method, *more):
        """A run at the least budget, so that reads happen all the time."""
        ids = h.prompt_of(path, PROMPT_TOKENS)
        return h.weir_command(path, h.least_budget(path, CTX), ids, TOKENS, CTX, THREADS, "--io", method, *more)

    def clean_hash(self, path):
        return h.reference(path, h.prompt_of(path, PROMPT_TOKENS), TOKENS, CTX, THREADS)["logits_hash"]

    def check_failed(self, result, path, report):
        """The four marks of a run that failed as it should."""
        self.assertEqual(result.code, h.EXIT_FAILED, str(result))
        lines = [line for line in result.err.splitlines() if line.strip()]
        self.assertEqual(len(lines), 1, str(result))
        stem = os.path.basename(path).split("-00001-of-")[0].removesuffix(".gguf")
        self.assertIn(stem, lines[0])
        self.assertRegex(lines[0], r"offset \d+")
        self.assertEqual(result.out, "", str(result))
        self.assertFalse(os.path.exists(report), "a report was left behind by a run that failed")

    def fails_at(self, fault, nth, path, method, folder):
        """Whether the run with its nth read failing fails (as it should); False when it had no such read."""
        report = os.path.join(folder, "report.json")
        result = h.run(self.command(path, method, "--report", report), env={"WEIR_FAULT": f"{fault}:{nth}"})
        if result.code != h.EXIT_DONE:
            self.check_failed(result, path, report)
            return True
        self.assertEqual(json.loads(result.out)["logits_hash"], self.clean_hash(path))
        os.unlink(report)
        return False

    def test_nth_read_fails(self):
        for name, method, fault in ((m, i, f) for m in MODELS for i in METHODS for f in FAILING):
            if fault != FAILING[0] and not h.FULL and name != MODELS[0]:
                continue
            path = h.generated_models()[name]
            with self.subTest(model=name, io=method, fault=fault), tempfile.TemporaryDirectory() as folder:
                nth = 1
                while self.fails_at(fault, nth, path, method, folder):
                    nth = nth + 1 if h.FULL or nth < 3 else nth * 2 + 1
                    self.assertLess(nth, READS_MAX, "the fault never stops: is N counted?")
                self.assertGreater(nth, 3, "no read was made to fail")

    def test_harmless_faults_change_nothing(self):
        for name, method, fault in ((m, i, f) for m in MODELS for i in METHODS for f in HARMLESS):
            path = h.generated_models()[name]
            with self.subTest(model=name, io=method, fault=fault):
                report = h.run_json(self.command(path, method), env={"WEIR_FAULT": fault})
                self.assertEqual(report["logits_hash"], self.clean_hash(path))

    def test_unknown_fault_is_refused(self):
        path = h.generated_models()["moe"]
        result = h.run(self.command(path, "threads"), env={"WEIR_FAULT": "no-such-fault:1"})
        self.assertNotEqual(result.code, h.EXIT_DONE, "a misspelt fault would make this whole file pass for nothing")
        self.assertTrue(re.search("WEIR_FAULT|no-such-fault", result.err), str(result))


if __name__ == "__main__":
    unittest.main()
