#!/usr/bin/env python3
"""Counts of how often experts were demanded, kept between runs: taken over, bounded, optional, and of no say in any logit."""
import glob
import os
import signal
import subprocess
import tempfile
import unittest

import harness
from harness import run_json, weir_command

HEADER_BYTES = 24
RUN_TOKENS = 12


def setUpModule():
    harness.need_programs()


class Counts(unittest.TestCase):
    def setUp(self):
        self.model = harness.generated_models()["moe"]
        self.budget = harness.least_budget(self.model, 128) + harness.MIB
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.cache = folder.name
        self.env = {"XDG_CACHE_HOME": self.cache}

    def command(self, *more, tokens=RUN_TOKENS, model=None):
        return weir_command(model or self.model, self.budget, harness.prompt_of(self.model, 8), tokens, 128, 2, *more)

    def report(self, *more, model=None):
        return run_json(self.command(*more, model=model), env=self.env)

    def files(self):
        return glob.glob(os.path.join(self.cache, "weir", "models", "*.counts*"))

    def test_the_next_run_goes_on_from_them(self):
        first = self.report()
        self.assertEqual(first["counts_loaded"], 0)
        self.assertGreater(first["misses"], 0)
        second = self.report()
        self.assertGreaterEqual(second["counts_loaded"], first["demanded"])
        third = self.report()
        self.assertGreaterEqual(third["counts_loaded"], second["counts_loaded"] + second["demanded"])
        self.assertEqual({r["logits_hash"] for r in (first, second, third)}, {first["logits_hash"]})
        self.assertEqual(len(self.files()), 1)

    def test_every_policy_takes_them_over(self):
        hashes = {self.report()["logits_hash"]}
        for policy in ("lru", "lfu", "lfru", "lru-global", "lfu-global", "auto"):
            report = self.report("--policy", policy)
            self.assertGreater(report["counts_loaded"], 0, policy)
            hashes.add(report["logits_hash"])
        self.assertEqual(len(hashes), 1)

    def test_switched_off_nothing_is_written_or_used(self):
        self.assertEqual(self.report("--no-counts")["counts_loaded"], 0)
        self.assertEqual(self.files(), [])
        self.report()
        with open(self.files()[0], "rb") as file:
            before = file.read()
        self.assertEqual(self.report("--no-counts")["counts_loaded"], 0)
        with open(self.files()[0], "rb") as file:
            self.assertEqual(file.read(), before)

    def test_of_another_model_or_a_changed_one_there_are_none(self):
        self.report()
        copy = os.path.join(self.cache, "copy.gguf")
        with open(self.model, "rb") as source, open(copy, "wb") as target:
            target.write(source.read())
        self.assertEqual(self.report(model=copy)["counts_loaded"], 0)
        self.assertGreater(self.report(model=copy)["counts_loaded"], 0)
        os.utime(copy, (1, 1))
        self.assertEqual(self.report(model=copy)["counts_loaded"], 0)

    def test_a_damaged_file_is_none_and_is_replaced(self):
        expected = self.report()["logits_hash"]
        path = self.files()[0]
        with open(path, "rb") as file:
            good = file.read()
        flipped = [bytes([*good[:at], good[at] ^ 0x40, *good[at + 1:]]) for at in (0, 12, HEADER_BYTES + 8, len(good) - 1)]
        for bad in [b"", good[:HEADER_BYTES], good[:-1], good + b"\0", *flipped]:
            with open(path, "wb") as file:
                file.write(bad)
            report = self.report()
            self.assertEqual((report["counts_loaded"], report["logits_hash"], report["exit"]), (0, expected, 0))
        self.assertGreater(self.report()["counts_loaded"], 0)

    def test_what_is_no_file_is_left_alone(self):
        self.report()
        path = self.files()[0]
        os.unlink(path)
        os.mkfifo(path)
        self.assertEqual(self.report()["counts_loaded"], 0)
        os.unlink(path)
        os.mkdir(path)
        self.assertEqual(self.report()["exit"], 0)
        self.assertEqual(self.files(), [path])

    def test_no_folder_to_keep_them_in(self):
        self.env = {"XDG_CACHE_HOME": "/proc/none"}
        self.assertEqual(self.report()["counts_loaded"], 0)
        self.assertEqual(self.report()["exit"], 0)

    def test_an_interrupted_run_keeps_its_own(self):
        budget = harness.least_budget(self.model, 4096) + harness.MIB
        command = weir_command(self.model, budget, harness.prompt_of(self.model, 8), 4000, 4096, 1)
        with subprocess.Popen([word for word in command if word != "--json"], env={**os.environ, **self.env}, bufsize=0,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            process.stdout.read(1)  # the first token is there
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=harness.TIMEOUT_SECONDS)
        self.assertEqual(process.returncode, 130)
        self.assertGreater(self.report()["counts_loaded"], 0)


if __name__ == "__main__":
    unittest.main()
