#!/usr/bin/env python3
"""The examples in Python run as their first lines say, and refuse in one line."""
import glob
import os
import subprocess
import sys
import unittest

import numpy as np
import support

sys.path.insert(0, os.path.join(support.ROOT, "tests", "program"))
import harness as h  # noqa: E402

EXAMPLES = os.path.join(support.ROOT, "examples")
LINES_MAX = 100


def run(name, *arguments):
    return h.run([sys.executable, os.path.join(EXAMPLES, name), *arguments])


class Examples(support.Folder):
    def setUp(self):
        super().setUp()
        self.file = self.path("a.safetensors")
        support.write_safetensors(self.file, {"a": ("U8", (1,), b"x"), "b": ("BF16", (4,), np.array([0x3F80, 0x4000, 0, 0xC000], "u2")
                                                                            .tobytes())}, metadata={"format": "pt"})

    def model(self):
        found, missing = h.given_models()
        chosen = [path for name, path in found.items() if name.startswith(("tinymoe", "smollm2"))]
        if not chosen or not h.WEIR:
            self.skipTest(f"no program, or not there: {missing}")
        return chosen[0]

    def test_they_are_short(self):
        for path in glob.glob(os.path.join(EXAMPLES, "*.py")):
            with open(path, encoding="utf-8") as file:
                self.assertLessEqual(len(file.readlines()), LINES_MAX, path)

    def test_numpy(self):
        result = run("python_numpy.py", self.file, "b")
        self.assertEqual(result.code, 0, str(result))
        self.assertIn("[ 1.  2.  0. -2.]", result.out)

    def test_save(self):
        result = run("python_save.py", self.file, self.path("new.safetensors"))
        self.assertEqual(result.code, 0, str(result))
        self.assertIn("misaligned: 1 before, 0 now", result.out)

    def test_generate(self):
        result = run("python_generate.py", self.model(), "200M", "Once upon a time")
        self.assertEqual(result.code, 0, str(result))
        self.assertIn("32 tokens", result.out)

    def test_llama(self):
        if subprocess.run([sys.executable, "-c", "import llama_cpp"], capture_output=True, check=False).returncode:
            self.skipTest("llama-cpp-python is not installed")
        if not os.path.exists(os.path.join(support.BUILD, "libggml-weir.so")):
            self.skipTest("built without an engine")
        result = run("python_llama.py", self.model(), "200M", "Once upon a time")
        self.assertEqual(result.code, 0, str(result))
        self.assertIn("of 200 MiB", result.out)
        result = run("python_llama.py", self.model(), "20M", "Once upon a time")
        self.assertEqual((result.code, result.out), (1, ""), str(result))
        self.assertRegex(result.err, r"try \d+ bytes or more")

    def test_packages_that_are_missing(self):
        """One line, which says what to install."""
        for module, name, more in (("torch", "python_torch.py", []), ("mlx", "python_mlx_array.py", ["0", "1", "1", "uint8"])):
            with self.subTest(name):
                hidden = self.path(module)  # found before one that is installed
                os.mkdir(hidden)
                with open(os.path.join(hidden, f"{module}.py"), "w", encoding="ascii") as file:
                    file.write("raise ImportError('hidden')")
                path = os.pathsep.join([hidden, os.environ.get("PYTHONPATH", "")])
                result = h.run([sys.executable, os.path.join(EXAMPLES, name), self.file, *more], env={"PYTHONPATH": path})
                self.assertEqual((result.code, result.out), (1, ""), str(result))
                self.assertIn("pip install", result.err)
                self.assertEqual(len(result.err.splitlines()), 1, result.err)

    def test_refusals(self):
        for name, more in (("python_numpy.py", []), ("python_save.py", ["x"]), ("python_generate.py", ["1G", "x"])):
            with self.subTest(name):
                result = run(name, self.path("absent"), *more)
                self.assertEqual(result.code, 1, str(result))
                self.assertEqual(len(result.err.splitlines()), 1, result.err)


if __name__ == "__main__":
    unittest.main()
