#!/usr/bin/env python3
"""Faults of the drive: the Nth read fails, for N = 1 and up until a run needs fewer reads than N.

Each such run must end by itself with exit code 1, one line on standard error that names the file and the offset, and a report
that is whole and names the exit code but no hash.  What is not an error - short reads, interrupted calls, slow reads, completions out of
order - must leave the logits as they were.  The descriptions of faults are those of src/io/fault.h, given in WEIR_FAULT.

By default N runs over a sample that still finds the end; WEIR_TEST_FULL=1 takes every N.
"""
import itertools
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


def command(path, method, *more):
    """A run at the least budget, so that reads happen all the time."""
    ids = h.prompt_of(path, PROMPT_TOKENS)
    return h.weir_command(path, h.least_budget(path, CTX, io=method), ids, TOKENS, CTX, THREADS, "--io", method, *more)


def clean_hash(path):
    return h.reference(path, h.prompt_of(path, PROMPT_TOKENS), TOKENS, CTX, THREADS)["logits_hash"]


class Fault(unittest.TestCase):
    """One fault, one model, one I/O method."""

    def __init__(self, method_name="test_unknown_fault_is_refused", model=MODELS[0], io=METHODS[0], fault=""):
        super().__init__(method_name)
        self.model, self.io, self.fault = model, io, fault

    def __str__(self):
        return f"{self._testMethodName}.{self.model}.{self.io}.{self.fault or '-'}"

    def setUp(self):
        h.need_programs()
        self.path = h.generated_models()[self.model]

    def check_failed(self, result, report):
        """The marks of a run that failed as it should."""
        self.assertEqual(result.code, h.EXIT_FAILED, str(result))
        lines = [line for line in result.err.splitlines() if line.strip()]
        self.assertEqual(len(lines), 1, str(result))
        self.assertIn(os.path.basename(self.path).split("-00001-of-")[0], lines[0])
        self.assertRegex(lines[0], r"offset \d+")
        with open(report) as file:
            self.check_report(json.load(file))
        self.check_report(json.loads(result.out))

    def check_report(self, report):
        """The report of a failed run is whole, says so, and gives no result."""
        self.assertEqual(report["exit"], h.EXIT_FAILED)
        self.assertIsNone(report["logits_hash"])

    def fails_at(self, nth, folder):
        """Whether the run with its nth read failing fails (as it should); False when it had no such read."""
        report = os.path.join(folder, f"{nth}.json")
        result = h.run(command(self.path, self.io, "--report", report), env={"WEIR_FAULT": f"{self.fault}:{nth}"})
        if result.code != h.EXIT_DONE:
            self.check_failed(result, report)
            return True
        self.assertEqual(json.loads(result.out)["logits_hash"], clean_hash(self.path))
        return False

    def nth_read_fails(self):
        nth = 1
        with tempfile.TemporaryDirectory() as folder:
            while self.fails_at(nth, folder):
                nth = nth + 1 if h.FULL or nth < 3 else nth * 2 + 1
                self.assertLess(nth, READS_MAX, "the fault never stops: is N counted?")
        self.assertGreater(nth, 3, "no read was made to fail")

    def harmless_fault_changes_nothing(self):
        report = h.run_json(command(self.path, self.io), env={"WEIR_FAULT": self.fault})
        self.assertEqual(report["logits_hash"], clean_hash(self.path))

    def test_unknown_fault_is_refused(self):
        """A misspelt fault would make this whole file pass for nothing."""
        result = h.run(command(self.path, "threads"), env={"WEIR_FAULT": "no-such-fault:1"})
        self.assertNotEqual(result.code, h.EXIT_DONE)
        self.assertTrue(re.search("WEIR_FAULT|no-such-fault", result.err), str(result))


def load_tests(loader, _tests, _pattern):
    suite = unittest.TestSuite()
    for model, io in itertools.product(MODELS, METHODS):
        for fault in FAILING if h.FULL or model == MODELS[0] else FAILING[:1]:
            suite.addTest(Fault("nth_read_fails", model, io, fault))
        for fault in HARMLESS:
            suite.addTest(Fault("harmless_fault_changes_nothing", model, io, fault))
    suite.addTests(loader.loadTestsFromTestCase(Fault))
    return suite


if __name__ == "__main__":
    unittest.main()
