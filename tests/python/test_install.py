#!/usr/bin/env python3
"""`pip install .` into an environment that has nothing: the package, its libraries and its command work from there.

Builds everything once more and fetches the build's own packages, so only with WEIR_TEST_FULL=1 (make check-long).
"""
import json
import os
import subprocess
import sys
import unittest

import support

MODULES = ("weir", "weir.llama")


class Install(support.Folder):
    def setUp(self):
        super().setUp()
        if os.environ.get("WEIR_TEST_FULL") != "1":
            self.skipTest("takes a minute: WEIR_TEST_FULL=1 runs it")

    def run_in(self, *command):
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH" and not name.startswith("WEIR_")}
        done = subprocess.run(command, env=clean, cwd=self.folder, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr[-2000:])
        return done.stdout

    def test_a_fresh_environment(self):
        self.run_in(sys.executable, "-m", "venv", self.path("env"))
        python = self.path("env/bin/python3")
        self.run_in(python, "-m", "pip", "install", "-q", "-C", "build-dir=" + self.path("build"), support.ROOT)
        support.write_safetensors(self.path("a.safetensors"), {"a": ("F32", (2,), bytes(8))})
        program = f"import {', '.join(MODULES)}; print(weir.__file__, weir.__version__); print(weir.open('a.safetensors').numpy('a'))"
        out = self.run_in(python, "-c", program)
        self.assertIn(os.path.realpath(self.path("env")), os.path.realpath(out.split()[0]))
        self.assertIn("[0. 0.]", out)
        package = os.path.dirname(out.split()[0])
        self.assertTrue(os.path.exists(os.path.join(package, "py.typed")))
        for name in ("libggml-weir.so", "libweir-mmap-preload.so"):
            if os.path.exists(os.path.join(support.BUILD, name)):
                self.assertTrue(os.path.exists(os.path.join(package, "lib", name)), name)
        if os.path.exists(os.path.join(support.BUILD, "libggml-weir.so")):
            listed = json.loads(self.run_in(self.path("env/bin/weir"), "inspect", "a.safetensors", "--json"))
            self.assertEqual(listed["format"], "safetensors")


if __name__ == "__main__":
    unittest.main()
