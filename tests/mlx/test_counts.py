#!/usr/bin/env python3
"""Counts of how often experts were demanded, kept between runs of a streamed model, as the program keeps them."""
import glob
import json
import os
import unittest

import mlx.core as mx
import support
import tiny_models
from cases import PROMPT, Q4

IDS = ",".join(map(str, PROMPT[0]))
MAIN = "import sys; from weir.mlx.__main__ import main; sys.exit(main())"

# Two runs of a model in one process: one that is released, one that is there when the process ends.
LIBRARY = """
import sys, json
import mlx.core as mx, weir.mlx

def run():
    model, _ = weir.mlx.load_model(sys.argv[1], streaming=True, memory="1G", ctx=256, **json.loads(sys.argv[2]))
    mx.eval(model(mx.array([[7]])))
    return model, weir.mlx.stats(model).streaming

model, first = run()
weir.mlx.release(model)
model, second = run()
print(json.dumps([first["counts_loaded"], first["demanded"], second["counts_loaded"], second["demanded"]]))
"""


class Counts(support.Folder):
    def setUp(self):
        super().setUp()
        self.model = tiny_models.make(self.path("m"), "qwen3_moe", quantization=Q4, dtype=mx.bfloat16)
        self.environment = self.own_cache()

    def report(self, *more):
        run = support.python(MAIN, "generate", self.model, "--prompt-tokens", IDS, "--ignore-eos", "-n", 8, "-M", "1G", "--json",
                             "--logits-hash", *more, **self.environment)
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        return json.loads(run.stdout)

    def library(self, **options):
        run = support.python(LIBRARY, self.model, json.dumps(options), **self.environment)
        self.assertEqual(run.returncode, 0, run.stderr)
        return json.loads(run.stdout)

    def files(self):
        return glob.glob(self.path("cache/weir/models/*"))

    def test_the_next_run_goes_on_from_them(self):
        first, second, third = (self.report() for _ in range(3))
        self.assertEqual(first["counts_loaded"], 0)
        self.assertGreater(second["counts_loaded"], first["demanded"])  # and what the prompt demanded
        self.assertEqual(third["counts_loaded"], 2 * second["counts_loaded"])
        self.assertEqual({run["logits_hash"] for run in (second, third)}, {first["logits_hash"]})
        self.assertEqual(len(self.files()), 1)
        self.assertIsNone(self.report("--no-streaming")["counts_loaded"])

    def test_released_or_there_at_the_end(self):
        loaded, demanded, loaded_then, demanded_then = self.library()
        self.assertEqual((loaded, loaded_then), (0, demanded))
        self.assertEqual(self.library()[0], demanded + demanded_then)

    def test_switched_off_nothing_is_written_or_used(self):
        self.assertEqual([self.report("--no-counts")["counts_loaded"] for _ in range(2)], [0, 0])
        self.assertEqual(self.library(counts=False)[::2], [0, 0])
        for value in ("off", "0"):
            self.environment["WEIR_COUNTS"] = value
            self.assertEqual(self.library()[::2], [0, 0])
        self.assertEqual(self.files(), [])

    def test_of_a_changed_model_there_are_none(self):
        self.report()
        os.utime(os.path.join(self.model, "model.safetensors"), (1, 1))
        self.assertEqual(self.report()["counts_loaded"], 0)

    def test_a_damaged_file_is_none_and_is_replaced(self):
        self.report()
        path = self.files()[0]
        os.truncate(path, os.path.getsize(path) - 1)
        self.assertEqual(self.report()["counts_loaded"], 0)
        self.assertGreater(self.report()["counts_loaded"], 0)


if __name__ == "__main__":
    unittest.main()
