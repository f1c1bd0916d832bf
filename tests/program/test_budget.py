#!/usr/bin/env python3
"""The peak of the whole process stays within the budget: random models, budgets, contexts, prompts, methods and threads.

The draw is the same every time.  Half of the runs are given exactly the least budget that `weir plan` names for them.  The
peak is the kernel's (VmHWM), from the start of the process to its end, so it covers loading, the prompt, every token and the
measurement of the drive after the run.  WEIR_TEST_FULL=1 runs many more.
"""
import random
import unittest

import harness as h

RUNS = 400 if h.FULL else 14
METHODS = ("uring", "threads", "mmap")
CONTEXTS = (64, 256, 700, 1024)
BATCHES = (1, 7, 32, 512)
THREADS = (1, 2, 3, 8)


class Draw:
    """One run: what is drawn, and the command that follows from it."""

    def __init__(self, rng, models):
        self.name = rng.choice(sorted(models))
        self.path = models[self.name]
        self.ctx = min(rng.choice(CONTEXTS), h.limits_of(self.path)[0])
        self.tokens = rng.choice((1, 3, 12))
        self.prompt = rng.choice((1, rng.randrange(1, 40), self.ctx)) if self.ctx > 40 else 1
        self.prompt = min(self.prompt, self.ctx - self.tokens)
        self.method, self.threads, self.batch = rng.choice(METHODS), rng.choice(THREADS), rng.choice(BATCHES)
        self.above = rng.choice((0, 0, rng.randrange(h.model_bytes(self.path))))
        self.lookahead = rng.random() < 0.7

    def __str__(self):
        return (f"{self.name} ctx {self.ctx} prompt {self.prompt} tokens {self.tokens} {self.method} threads {self.threads} "
                f"batch {self.batch} least+{self.above} lookahead {self.lookahead}")

    def command(self):
        budget = h.least_budget(self.path, self.ctx, self.threads, self.batch, self.method) + self.above
        more = ["--io", self.method, "--batch", str(self.batch)] + ([] if self.lookahead else ["--no-lookahead"])
        return h.weir_command(self.path, budget, h.prompt_of(self.path, self.prompt), self.tokens, self.ctx, self.threads, *more)


class Budget(unittest.TestCase):
    def setUp(self):
        h.need_programs()
        if h.SANITIZED:
            self.skipTest("a sanitizer's memory is in no budget")

    def test_the_peak_is_within_the_budget(self):
        models = {name: path for name, path in h.generated_models().items() if name != "moe-align8"}
        models.update((name, path) for name, path in h.given_models()[0].items() if name != "smollm2")
        rng = random.Random(3)
        for number in range(RUNS):
            draw = Draw(rng, models)
            with self.subTest(f"{number}: {draw}"):
                report = h.run_json(draw.command())
                self.assertLessEqual(report["peak_memory_bytes"], report["budget_bytes"])
                self.assertLessEqual(sum(report["memory"].values()), report["budget_bytes"])

    def test_many_threads_have_stacks(self):
        path = h.generated_models()["moe"]
        least = h.least_budget(path, 256, 64)
        report = h.run_json(h.weir_command(path, least, h.prompt_of(path, 100), 2, 256, 64))
        self.assertLessEqual(report["peak_memory_bytes"], least)


if __name__ == "__main__":
    unittest.main()
