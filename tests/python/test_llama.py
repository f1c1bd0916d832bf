#!/usr/bin/env python3
"""weir.llama.enable: llama-cpp-python's own Llama gives the same text with it and without, and keeps the budget.

Each case is an interpreter of its own, since enabling is for a process's life and the budget is a process's.
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

import support
import weir

sys.path.insert(0, os.path.join(support.ROOT, "tests", "program"))
import harness as h  # noqa: E402

BUDGET = 140 * h.MIB
START = """
import json, sys
import weir, weir.llama
from llama_cpp import Llama
import llama_cpp
MODEL, BUDGET = sys.argv[1], int(sys.argv[2])

def llama(**more):
    return Llama(MODEL, **{"n_ctx": 512, "n_batch": 64, "n_threads": 2, "verbose": False, **more})

def text(model, prompt="Once upon a time", tokens=8):
    return model.create_completion(prompt, max_tokens=tokens, temperature=0)["choices"][0]["text"]

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
"""


def run(model, program, budget=BUDGET):
    """Runs a program after START; what it prints last is JSON."""
    result = h.run([sys.executable, "-c", START + program, model, str(budget)])
    if result.code:
        raise AssertionError(str(result))
    return json.loads(result.out.splitlines()[-1])


class Llama(unittest.TestCase):
    def setUp(self):
        if subprocess.run([sys.executable, "-c", "import llama_cpp"], capture_output=True, check=False).returncode:
            self.skipTest("llama-cpp-python is not installed")
        if not os.path.exists(os.path.join(support.BUILD, "libggml-weir.so")):
            self.skipTest("built without an engine")
        found, missing = h.given_models()
        self.models = {name: path for name, path in found.items() if name.startswith(("tinymoe", "smollm2"))}
        if not self.models:
            self.skipTest(f"not there: {missing}")

    def model(self):
        return next(iter(self.models.values()))

    def test_same_text_within_the_budget(self):
        for name, path in self.models.items():
            with self.subTest(name):
                plain = run(path, "print(json.dumps([text(llama()), peak()]))")
                streamed = run(path, "weir.llama.enable(BUDGET); m = llama(use_mmap=False, n_gpu_layers=0)\n"
                                     "print(json.dumps([text(m), peak(), weir.llama.report()]))")
                self.assertEqual(streamed[0], plain[0])
                self.assertLessEqual(streamed[1], BUDGET)
                self.assertGreater(plain[1], BUDGET, "the budget is no test of anything")
                report = streamed[2]
                self.assertEqual((report["budget_bytes"], report["model"]), (BUDGET, os.path.realpath(path)))
                self.assertGreater(report["bytes_read"], 0)

    def test_long_prompts_keep_the_budget(self):
        got = run(self.model(), "weir.llama.enable(BUDGET); m = llama()\n"
                                "for i in range(2): text(m, f'{i} ' + 'word ' * 300, 3)\n"
                                "print(json.dumps(peak()))")
        self.assertLessEqual(got, BUDGET)

    def test_a_budget_that_cannot_hold(self):
        got = run(self.model(), """
weir.llama.enable("20M")
m = llama()
try:
    text(m)
except weir.BudgetError as problem:
    print(json.dumps([str(problem), problem.code, problem.least_budget_bytes]))
""")
        self.assertIn("the least is", got[0])
        self.assertEqual(got[1], -6)
        self.assertIn(f"the least is {got[2]} bytes", got[0])

    def test_enabled_again_and_disabled(self):
        got = run(self.model(), """
weir.llama.enable(BUDGET)
weir.llama.enable(BUDGET + 4096)
m = llama()
first = text(m)
budget = weir.llama.report()["budget_bytes"]
m.close()
weir.llama.disable()
m = llama()
try:
    text(m); weir.llama.report()
except weir.NotFoundError:
    print(json.dumps([budget - BUDGET, first == text(m), peak() > BUDGET]))
""")
        self.assertEqual(got, [4096, True, True])

    def test_refusals(self):
        cases = {
            "a model is already loaded": "m = llama(); weir.llama.enable(BUDGET)",
            "was built for 0.0.1": "original = weir.llama._Backend._function\n"
                                   "def older(self, reg, name, *types):\n"
                                   "    f = original(self, reg, name, *types)\n"
                                   "    return (lambda: b'0.0.1') if name.endswith(b'engine_version') else f\n"
                                   "weir.llama._Backend._function = older\n"
                                   "weir.llama.enable(BUDGET)",
            "llama-cpp-python cannot be imported": "sys.modules['llama_cpp'] = None; weir.llama.enable(BUDGET)",
            "'much' is not a size": "weir.llama.enable('much')",
            "not enabled": "weir.llama.report()",
        }
        for part, program in cases.items():
            with self.subTest(part):
                indented = "\n".join("    " + line for line in program.splitlines())
                got = run(self.model(), f"try:\n{indented}\nexcept weir.Error as problem:\n"
                                        "    print(json.dumps([type(problem).__name__, str(problem)]))")
                self.assertIn(part, got[1])
                self.assertIn(got[0], ("EngineError", "InvalidArgumentError"))

    def test_no_backend(self):
        result = h.run([sys.executable, "-c", START + "weir.llama.enable(BUDGET)", self.model(), "1"],
                       env={"WEIR_LIBRARY": self.lonely_library()})
        self.assertIn("weir._errors.EngineError: libggml-weir.so cannot be loaded", result.err)

    def lonely_library(self):
        """libweir in a folder without the backend."""
        folder = tempfile.TemporaryDirectory(prefix="weir-python-")
        self.addCleanup(folder.cleanup)
        path = os.path.join(folder.name, "libweir.so.0")
        os.symlink(os.path.realpath(weir._lib.lib._name), path)
        return path


if __name__ == "__main__":
    unittest.main()
