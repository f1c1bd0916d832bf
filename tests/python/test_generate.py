#!/usr/bin/env python3
"""weir.plan and weir.generate: the same text as the program, within the budget, ended cleanly however it ends."""
import gc
import json
import os
import subprocess
import sys
import threading
import unittest

import support
import weir
from weir import _program

sys.path.insert(0, os.path.join(support.ROOT, "tests", "program"))
import harness as h  # noqa: E402

PROMPT = "Once upon a time"
CTX = 256
INTERRUPTED = 130


def children():
    """Processes that this one started and that have not ended."""
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        return file.read().split()


class Engine(support.Folder):
    def setUp(self):
        super().setUp()
        if not h.WEIR or not h.given_models()[0]:
            self.skipTest("no program, or no model that has a vocabulary")
        os.environ.setdefault("WEIR_PROGRAM", h.WEIR)
        found, _ = h.given_models()
        self.model = next((path for name, path in found.items() if name.startswith("tinymoe")), None) or found["smollm2"]
        self.budget = h.least_budget(self.model, CTX) + 4 * h.MIB

    def generate(self, tokens, prompt=PROMPT, **more):
        return weir.generate(self.model, prompt, self.budget, tokens=tokens, ctx=CTX, threads=2, temp=0, **more)


class Plan(Engine):
    def test_fields(self):
        plan = weir.plan(self.model, self.budget, ctx=CTX, threads=2, measure=False)
        self.assertEqual(plan["budget_bytes"], self.budget)
        self.assertLessEqual(plan["least_budget_bytes"], self.budget)
        self.assertLessEqual(sum(plan["memory"].values()), self.budget)

    def test_refusals(self):
        with self.assertRaises(weir.BudgetError) as caught:
            weir.plan(self.model, "8M", ctx=CTX, measure=False)
        self.assertGreater(caught.exception.least_budget_bytes, 8 * h.MIB)
        self.assertEqual(caught.exception.code_name, "WEIR_EBUDGET")
        for kind, arguments in ((weir.InvalidArgumentError, (self.model, "much")), (weir.InvalidArgumentError, (self.model, 1.5)),
                                (weir.NotFoundError, (self.path("absent"),)), (weir.FormatError, (__file__,))):
            with self.subTest(arguments), self.assertRaises(kind):
                weir.plan(*arguments, measure=False)

    def test_built_without_an_engine(self):
        problem = _program.failure(1, "weir: this build has no 'plan'\n", self.model)
        self.assertIsInstance(problem, weir.EngineError)
        self.assertIn("engine.sh", str(problem))

    def test_no_program(self):
        os.environ["WEIR_PROGRAM"] = self.path("absent")
        self.addCleanup(os.environ.__setitem__, "WEIR_PROGRAM", h.WEIR)
        with self.assertRaisesRegex(weir.EngineError, "engine.sh"):
            weir.plan(self.model)
        with open(self.path("weir"), "w", encoding="ascii") as file:
            file.write("#!/bin/sh\nexit 9\n")
        os.chmod(self.path("weir"), 0o755)
        os.environ["WEIR_PROGRAM"] = self.path("weir")
        with self.assertRaisesRegex(weir.EngineError, "engine.sh"):  # the package's own command must not start itself
            weir.plan(self.model)


class Generate(Engine):
    def test_text_and_report(self):
        with self.generate(12, raw=True) as text:
            pieces = list(text)
        self.assertGreater(len(pieces), 1)
        self.assertEqual("".join(pieces), text.text)
        self.assertEqual(text.text, text.report["text"])
        self.assertEqual((text.report["tokens"], text.report["exit"]), (12, 0))
        self.assertLessEqual(text.report["peak_memory_bytes"], self.budget)
        expected = h.run_json([h.WEIR, "run", self.model, "-M", str(self.budget), "-p", PROMPT, "-n", "12", "-c", str(CTX), "-t",
                               "2", "--temp", "0", "--raw", "--json"])
        self.assertEqual(text.text, expected["text"])

    def test_token_ids(self):
        text = self.generate(3, prompt=[5, 6, 7], raw=True, ignore_eos=True)
        text.read()
        self.assertEqual((text.report["prompt_tokens"], text.report["tokens"]), (3, 3))

    def test_closed_early(self):
        text = self.generate(200, ignore_eos=True)
        first = next(text)
        text.close()
        text.close()
        self.assertTrue(text.text.startswith(first))
        self.assertEqual(text.report["exit"], INTERRUPTED)
        self.assertEqual(list(text), [])
        self.assertEqual(children(), [])

    def test_closed_by_another_thread(self):
        text = self.generate(200, ignore_eos=True)
        next(text)
        closer = threading.Timer(0.1, text.close)
        closer.start()
        list(text)
        closer.join()
        self.assertEqual(text.report["exit"], INTERRUPTED)

    def test_dropped(self):
        descriptors = support.descriptors_count()
        text = self.generate(200, ignore_eos=True)
        next(text)
        del text
        gc.collect()
        self.assertEqual(children(), [])
        self.assertEqual(support.descriptors_count(), descriptors)

    def test_cycles_leave_nothing(self):
        """Read to the end, closed early, refused: neither a process, nor a descriptor, nor memory stays."""
        self.cycle(1)
        before = support.descriptors_count(), support.resident_bytes(), support.mappings_count()
        self.cycle(5)
        gc.collect()
        self.assertEqual(children(), [])
        self.assertEqual(support.descriptors_count(), before[0])
        self.assertLess(support.resident_bytes() - before[1], 1 << 20)
        self.assertLessEqual(support.mappings_count(), before[2] + 3)

    def cycle(self, times):
        for _ in range(times):
            self.generate(2, raw=True, ignore_eos=True).read()
            with self.generate(200, raw=True, ignore_eos=True) as text:
                next(text)
            with self.assertRaises(weir.BudgetError):
                weir.generate(self.model, "x", "8M", ctx=CTX).read()

    def test_refusals(self):
        cases = ((weir.BudgetError, lambda: weir.generate(self.model, "x", "8M", ctx=CTX)),
                 (weir.NotFoundError, lambda: weir.generate(self.path("absent"), "x")),
                 (weir.InvalidArgumentError, lambda: self.generate(1, prompt="")),
                 (weir.InvalidArgumentError, lambda: self.generate(1, prompt=b"x")),
                 (weir.InvalidArgumentError, lambda: self.generate(1, prompt="\ud800")),
                 (weir.InvalidArgumentError, lambda: self.generate(1, prompt=[1.5])),
                 (weir.InvalidArgumentError, lambda: self.generate(1, prompt=[-1])),
                 (weir.InvalidArgumentError, lambda: self.generate(1, prompt=[10**9])),
                 (weir.InvalidArgumentError, lambda: self.generate(1, prompt="word " * 2 * CTX)),
                 (weir.InvalidArgumentError, lambda: self.generate(1, policy="best")))
        for number, (kind, start) in enumerate(cases):
            with self.subTest(number), self.assertRaises(kind):
                start().read()
        for memory in ("4X", "", -1, 0, True):  # at once, without a child
            with self.subTest(memory), self.assertRaisesRegex(weir.InvalidArgumentError, "memory"):
                weir.generate(self.model, "x", memory)
        self.assertEqual(children(), [])

    def test_the_command(self):
        program = "import sys; from weir._program import main; sys.argv[1:] = ['inspect', '--json', sys.argv[1]]; main()"
        done = subprocess.run([sys.executable, "-c", program, self.model], capture_output=True, check=True)
        self.assertEqual(json.loads(done.stdout)["format"], "gguf")


if __name__ == "__main__":
    unittest.main()
