#!/usr/bin/env python3
"""The generated models themselves: the same seed gives the same bytes, and the engine alone loads each and agrees with itself.

Without this, a fault of the generator would look like one of weir.
"""
import hashlib
import os
import tempfile
import unittest

import harness as h

CTX, PROMPT_TOKENS, TOKENS = 256, 20, 24
UNMAPPABLE = "moe-align8"  # the engine maps only what is aligned to 32 bytes; it can still copy


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def hash_alone(path, *more):
    """The reference's hash over a short run."""
    command = [h.REFERENCE, path, "--tokens", h.prompt_of(path, PROMPT_TOKENS), "-n", str(TOKENS), "--ctx", str(CTX), *more]
    return h.run_json(command)["logits_hash"]


class Models(unittest.TestCase):
    def setUp(self):
        h.need_programs()

    def test_same_seed_same_bytes_other_seed_other_bytes(self):
        first = h.generated_models()["mixed"]
        with tempfile.TemporaryDirectory() as folder:
            again = h.make_models.make_test_set(folder, {"mixed"}, seed=7)["mixed"]
            self.assertEqual(digest(again), digest(first))
            other = h.make_models.make_test_set(folder, {"mixed"}, seed=8)["mixed"]
            self.assertNotEqual(digest(other), digest(first))

    def test_sizes_stay_small(self):
        for name, path in h.generated_models().items():
            with self.subTest(name):
                self.assertLess(h.model_bytes(path), 15 * h.MIB)

    def test_the_engine_loads_each_and_repeats_itself(self):
        hashes = set()
        for name in h.make_models.TEST_MODELS:
            with self.subTest(name):
                path = h.generated_models()[name]
                first = hash_alone(path)
                self.assertEqual(hash_alone(path), first)
                hashes.add(first)
        self.assertEqual(len(hashes), len(h.make_models.TEST_MODELS), "two models give the same logits")

    def test_storage_does_not_change_the_engine_s_logits(self):
        models = h.generated_models()
        expected = hash_alone(models["moe"])
        for name, *_ in h.make_models.MOE_VARIANTS:
            with self.subTest(name):
                more = ["--load", "read"] if name == UNMAPPABLE else []
                self.assertEqual(hash_alone(models[name], *more), expected)

    def test_an_expert_s_size_may_be_no_multiple_of_512(self):
        """What "odd" and "biased" are made for."""
        for name in ("odd", "biased"):
            shape = h.make_models.TEST_MODELS[name]
            _, tensors = h.make_models.parts_of(shape)
            sizes = [t.size // shape.experts for t in tensors if t.name.endswith("_exps.weight")]
            self.assertTrue(any(size % 512 for size in sizes), f"{name}: {sizes}")
            self.assertFalse(os.path.getsize(h.generated_models()[name]) % 32)


if __name__ == "__main__":
    unittest.main()
