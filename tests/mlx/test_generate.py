#!/usr/bin/env python3
"""python -m weir.mlx generate: tokens, report, exit codes; within the budget, and ended by Ctrl-C."""
import json
import os
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

import mlx.core as mx
import support
import tiny_models
from cases import PROMPT, Q4
from mlx_lm.generate import generate_step
from mlx_lm.utils import load_model

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.path.join(support.ROOT, "python")}
IDS = ",".join(map(str, PROMPT[0]))


def command(*arguments):
    return [sys.executable, "-m", "weir.mlx", "generate", *map(str, arguments)]


def run_program(words, stdin=""):
    return subprocess.run(words, capture_output=True, text=True, input=stdin, timeout=240, env=ENVIRONMENT, check=False)


def generate(*arguments, stdin=""):
    return run_program(command(*arguments), stdin)


def report(*arguments):
    run = generate(*arguments, "--json")
    if run.returncode:
        raise AssertionError(f"ended with {run.returncode}: {run.stderr}")
    return json.loads(run.stdout)


class Generate(support.Folder):
    def setUp(self):
        super().setUp()
        self.model = tiny_models.make(self.path("m"), "qwen3_moe", quantization=Q4, dtype=mx.bfloat16)
        self.common = (self.model, "--prompt-tokens", IDS, "--ignore-eos")

    def test_tokens_are_those_of_mlx_lm(self):
        wanted = [int(token) for token, _ in generate_step(mx.array(PROMPT[0]), load_model(Path(self.model))[0], max_tokens=12)]
        for options in (("-M", "1G"), ("-M", "1G", "--batch", 2), ("--no-streaming",),
                        ("-M", "1G", "--io", "threads", "--policy", "lru")):
            with self.subTest(options):
                run = generate(*self.common, "-n", 12, "-q", *options)
                self.assertEqual((run.returncode, run.stderr), (0, ""))
                self.assertEqual([int(word) for word in run.stdout.split(",")], wanted)

    def test_report(self):
        found = report(*self.common, "-n", 12, "-M", "400M", "--logits-hash", "--report", self.path("report.json"))
        with open(self.path("report.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file), found)
        self.assertEqual((found["tokens"], found["prompt_tokens"], found["exit"]), (12, len(PROMPT[0]), "length"))
        self.assertEqual(found["budget_bytes"], 400 << 20)
        self.assertLessEqual(found["peak_memory_bytes"], found["budget_bytes"])
        self.assertLessEqual(sum(found["memory"].values()), found["budget_bytes"])
        self.assertEqual(found["demanded"], found["hits"] + found["joined"] + found["misses"])
        self.assertGreater(found["outside_seconds"], 0)
        self.assertLess(found["outside_seconds"], found["seconds"])
        mapped = report(*self.common, "-n", 12, "--no-streaming", "--logits-hash")
        self.assertEqual(mapped["logits_hash"], found["logits_hash"])
        self.assertIsNone(mapped["budget_bytes"])

    def test_exit_codes(self):
        os.mkdir(self.path("empty"))
        broken = tiny_models.make(self.path("broken"), "qwen3_moe")
        os.truncate(os.path.join(broken, "model.safetensors"), 5000)
        for code, arguments, message in (
                (2, (*self.common, "-M", "much"), "much"), (2, (*self.common, "-n", 0), "at least 1"),
                (2, (*self.common, "-c", 10, "-n", 20), "do not fit a context of 10"),
                (2, (self.model, "--prompt-tokens", "1,x"), "with commas"), (2, (self.model, "--prompt-tokens", "-1"), "negative"),
                (1, (self.path("absent"), "--prompt-tokens", IDS), "config.json"),
                (1, (self.path("empty"), "--prompt-tokens", IDS), "config.json"),
                (3, (*self.common, "-M", "16M"), "the least is"),
                (4, (broken, "--prompt-tokens", IDS, "-M", "1G"), "model.safetensors")):
            with self.subTest(arguments[1:]):
                run = generate(*arguments)
                self.assertEqual(run.returncode, code, run.stderr)
                self.assertIn(message, run.stderr)
                self.assertEqual(run.stdout, "")
                self.assertEqual(len(run.stderr.splitlines()), 1, run.stderr)

    def test_the_least_budget_is_enough(self):
        refused = generate(*self.common, "-M", "16M")
        least = int(refused.stderr.split("the least is ")[1].split()[0])
        self.assertRegex(refused.stderr, r"the least is \d+ bytes \(\d+\.\d\d MiB\), most of it for ")
        found = report(*self.common, "-n", 4, "-M", int(least * 1.1))
        self.assertLessEqual(found["peak_memory_bytes"], found["budget_bytes"])

    def test_help(self):
        run = generate("--help")
        self.assertEqual(run.returncode, 0)
        text = " ".join(run.stdout.split())
        for default in ("auto (the default), odds, lfu, lru", "auto (the default), uring, threads or mmap", "60%, auto (the default)"):
            self.assertIn(default, text)

    def test_interrupted(self):
        run = subprocess.Popen(command(*self.common, "-M", "1G", "-n", 100000, "-c", 200000, "--report", self.path("r.json")),
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        self.addCleanup(run.kill)
        self.assertTrue(run.stdout.read(8))  # it is in the middle
        time.sleep(0.2)
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate(timeout=60)
        self.assertEqual(run.returncode, 130, errors)
        self.assertNotIn("Traceback", errors)
        with open(self.path("r.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["exit"], "interrupted")

    def test_standard_output_that_is_closed(self):
        run = subprocess.Popen(command(*self.common, "-M", "1G", "-n", 3000, "-c", 4000), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        run.stdout.read(8)
        run.stdout.close()
        with run.stderr:
            errors = run.stderr.read()
        self.assertNotEqual(run.wait(timeout=60), 0)
        self.assertNotIn("Traceback", errors)
        self.assertNotIn("Exception ignored", errors)


class Documented(support.Folder):
    def test_a_model_to_try_with(self):
        """The commands of docs/mlx.md."""
        made = run_program([sys.executable, os.path.join(support.HERE, "tiny_models.py"), self.path("tiny")])
        self.assertEqual((made.returncode, made.stdout.strip()), (0, self.path("tiny")), made.stderr)
        run = generate(self.path("tiny"), "--memory", "1G", "--prompt", "w5 w17 w80", "--tokens", "16")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertRegex(run.stdout, r"^(w\d+ ){3,}")
        self.assertIn("of 1024 MiB", run.stderr)


class Text(support.Folder):
    """With a tokenizer."""

    def setUp(self):
        super().setUp()
        self.model = tiny_models.add_tokenizer(tiny_models.make(self.path("m"), "qwen3_moe", quantization=Q4, dtype=mx.bfloat16))
        self.prompt = " ".join(f"w{token}" for token in PROMPT[0])

    def example(self, name, *arguments):
        return run_program([sys.executable, os.path.join(support.ROOT, "examples", name), *map(str, arguments)])

    def test_prompts(self):
        with open(self.path("prompt"), "w", encoding="ascii") as file:
            file.write(self.prompt)
        words = (self.model, "-M", "1G", "-n", 8, "--ignore-eos", "-q")
        found = [generate(*words, "-p", self.prompt), generate(*words, "-f", self.path("prompt")),
                 generate(*words, stdin=self.prompt)]
        self.assertEqual([run.returncode for run in found], [0, 0, 0], found[0].stderr)
        self.assertEqual(len({run.stdout for run in found}), 1)
        ids = report(self.model, "--prompt-tokens", IDS, "-M", "1G", "-n", 8, "--ignore-eos")["text"]
        self.assertEqual(found[0].stdout.replace("w", "").split(), ids.split(","))
        sampling = ("--temp", 1, "--seed", 5, "--top-k", 20, "--top-p", 0.9)
        drawn = [generate(*words, "-p", self.prompt, *sampling).stdout for _ in range(2)]
        self.assertEqual(drawn[0], drawn[1])

    def test_example(self):
        texts = []
        for memory in ("1G", "map"):
            run = self.example("python_mlx.py", self.model, memory, self.prompt)
            self.assertEqual(run.returncode, 0, run.stderr)
            texts.append(run.stdout.split("\n\n")[0])
            self.assertIn("MiB mapped, 0.0 MiB copied", run.stdout)
        self.assertEqual(texts[0], texts[1])
        run = self.example("python_mlx.py", self.model, "16M", self.prompt)
        self.assertEqual(run.returncode, 1)
        self.assertRegex(run.stderr, r"try \d+ bytes or more")

    def test_example_of_arrays(self):
        run = self.example("python_mlx_array.py", self.path("m/model.safetensors"), 8192, 4, 8, "bfloat16")
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        self.assertIn("mlx.core.bfloat16 (4, 8) mean", run.stdout)
        run = self.example("python_mlx_array.py", self.path("m/model.safetensors"), 8192, 4, 8, "float12")
        self.assertEqual((run.returncode, len(run.stderr.splitlines())), (1, 1))


if __name__ == "__main__":
    unittest.main()
