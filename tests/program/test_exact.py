#!/usr/bin/env python3
"""Exactness: the logits of `weir run` are those of the engine alone, bit for bit, at every budget and by every way of reading.

For each model the reference's hash over all logits is compared with that of streamed runs which differ in budget (the least
that `weir plan` names, a middle one, one that holds everything), I/O method, policy, look-ahead, threads, batch size and prompt
length.  By default each model runs a few combinations that together cover every value; WEIR_TEST_FULL=1 runs all of them, which
takes hours, and WEIR_TEST_SAMPLE=N as many for each model, drawn from all with the seed WEIR_TEST_SEED (0).
Each run must also keep its peak memory within its budget.

    WEIR_BIN=build/weir WEIR_REFERENCE=build/reference python3 tests/program/test_exact.py [-v]
"""
import itertools
import os
import random
import unittest

import harness as h

BUDGETS = ("least", "middle", "all")
METHODS = ("uring", "threads", "mmap")
POLICIES = ("auto", "odds", "lru", "lfu")
PROMPTS = {"short": (9, 64), "long": (600, 12), "medium": (150, 12)}  # prompt tokens, generated tokens
# budget, method, policy, look-ahead, threads, prompt, batch.  Odd batch sizes leave a last batch of one or two rows.
COVER = (
    ("least", "uring", "lfu", True, 2, "short", 512),
    ("least", "threads", "lru", True, 1, "long", 512),
    ("middle", "uring", "lru", False, 2, "long", 512),
    ("all", "mmap", "lfu", True, 1, "short", 512),
)
COVER_MORE = (("middle", "mmap", "odds", True, 2, "long", 32), ("least", "uring", "auto", False, 1, "long", 599),
              ("middle", "uring", "auto", True, 2, "long", 149))
SAMPLE = int(os.environ.get("WEIR_TEST_SAMPLE", "0"))
UNALIGNED = "moe-align8"  # the engine cannot map it


def _all_cases():
    batches = (512, 599, 149, 32)
    return itertools.product(BUDGETS, METHODS, POLICIES, (True, False), (1, 2), ("short", "long"), batches)


def cases_of(name):
    """The combinations that a model runs.  Those of one model follow each other, so that a reference is computed once."""
    everything = [c for c in _all_cases() if c[6] == 512 or c[5] == "long"]
    if h.FULL:
        return everything
    if SAMPLE:
        draw = random.Random(f"{name} {os.environ.get('WEIR_TEST_SEED', '0')}")
        return sorted(draw.sample(everything, min(SAMPLE, len(everything))), key=lambda c: c[4:])
    return COVER + COVER_MORE if name in ("moe", "dense", "odd") else COVER


class Exact(unittest.TestCase):
    """One combination of one model."""

    def __init__(self, name, path, case):
        super().__init__("compare")
        self.name, self.path, self.case = name, path, case

    def id(self):
        budget, method, policy, lookahead, threads, prompt, batch = self.case
        ahead = "ahead" if lookahead else "no-ahead"
        return f"exact.{self.name}.{budget}-{method}-{policy}-{ahead}-{threads}t-{prompt}-b{batch}"

    def __str__(self):
        return self.id()

    shortDescription = id

    def setUp(self):
        h.need_programs()

    def shape_of(self, prompt):
        """(prompt ids, generated tokens, context): a prompt that the model's context cannot hold becomes a medium one."""
        length, tokens = PROMPTS[prompt]
        context = h.limits_of(self.path)[0]
        if length + tokens > context:
            length, tokens = PROMPTS["medium"]
        return h.prompt_of(self.path, length), tokens, min(context, 1024)

    def budget_of(self, budget, ctx, threads, batch, method):
        least = h.least_budget(self.path, ctx, threads, batch, method)
        whole = h.model_bytes(self.path)
        return least + {"least": 0, "middle": whole // 3, "all": whole * 5 // 4 + 64 * h.MIB}[budget]

    def compare(self):
        budget, method, policy, lookahead, threads, prompt, batch = self.case
        ids, tokens, ctx = self.shape_of(prompt)
        more = ["--io", method, "--policy", policy] + ([] if lookahead else ["--no-lookahead"])
        more += ["--batch", str(batch)]
        size = self.budget_of(budget, ctx, threads, batch, method)
        expected = h.reference(self.path, ids, tokens, ctx, threads, batch)
        report = h.run_json(h.weir_command(self.path, size, ids, tokens, ctx, threads, *more))
        self.assertEqual(report["logits_hash"], expected["logits_hash"])
        self.assertEqual(report["tokens"], tokens)
        self.assertEqual(report["prompt_tokens"], ids.count(",") + 1)
        if not h.SANITIZED:
            self.assertLessEqual(report["peak_memory_bytes"], report["budget_bytes"])


class SameWeights(unittest.TestCase):
    """One model stored in several ways."""

    def setUp(self):
        h.need_programs()

    def hash_of(self, path, *more):
        ids = h.prompt_of(path, 20)
        budget = h.least_budget(path, 256) + h.MIB
        return h.run_json(h.weir_command(path, budget, ids, 32, 256, 1, *more))["logits_hash"]

    def test_alignment_shards_and_vocabulary_change_nothing(self):
        models = h.generated_models()
        names = [v[0] for v in h.make_models.MOE_VARIANTS if v[0] != UNALIGNED]
        expected = self.hash_of(models["moe"])
        for name in names:
            with self.subTest(name):
                self.assertEqual(self.hash_of(models[name]), expected)

    def test_alignment_that_the_engine_cannot_map_is_refused_or_exact(self):
        """The engine wants 32 bytes.  Less is legal in the format: the same hash or exit 4, never a crash."""
        models = h.generated_models()
        path = models[UNALIGNED]
        result = h.run(h.weir_command(path, 256 * h.MIB, h.prompt_of(path, 20), 32, 256, 1))
        if result.code == h.EXIT_DONE:
            self.assertIn(self.hash_of(models["moe"]), result.out)
        else:
            self.assertEqual(result.code, h.EXIT_FORMAT, str(result))
            self.assertIn(path, result.err)

    def test_text_for_a_model_without_vocabulary_is_refused(self):
        path = h.generated_models()["moe-novocab"]
        result = h.run([h.WEIR, "run", path, "-M", "256M", "-n", "4", "-p", "hello"])
        self.assertEqual(result.code, h.EXIT_FORMAT, str(result))
        self.assertIn("vocabulary", result.err)


class Missing(unittest.TestCase):
    """Says which models are not there to be tested."""

    def __init__(self, what):
        super().__init__("report")
        self.what = what

    def report(self):
        self.skipTest(f"not there: {self.what}")


def load_tests(loader, _tests, _pattern):
    suite = unittest.TestSuite()
    found, missing = h.given_models()
    for name, path in {**(h.generated_models() if h.WEIR else {}), **found}.items():
        if name != UNALIGNED:
            suite.addTests(Exact(name, path, case) for case in cases_of(name))
    if not h.WEIR:
        suite.addTest(Missing("the program weir (WEIR_BIN)"))
    for what in missing:
        suite.addTest(Missing(what))
    suite.addTests(loader.loadTestsFromTestCase(SameWeights))
    return suite


if __name__ == "__main__":
    unittest.main()
