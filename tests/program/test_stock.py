#!/usr/bin/env python3
"""Unmodified llama.cpp programs with the weir device: same text, within the budget, with a report.

llama-bench and llama-server are the engine's own, from WEIR_ENGINE_DIR (its bin/ and lib/); they are given libggml-weir.so by
GGML_BACKEND_PATH and libweir-mmap-preload.so by LD_PRELOAD, nothing else.  Skipped when one of the four is not there.
"""
import atexit
import contextlib
import csv
import functools
import io
import json
import os
import random
import re
import shutil
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request

import harness as h
import gguf_file  # the harness knows where
import make_models
import shapes

BUILD = os.environ.get("WEIR_BUILD_DIR") or os.path.join(h.ROOT, "build")
ENGINE = os.environ.get("WEIR_ENGINE_DIR") or ""
PLUGIN = os.path.join(BUILD, "libggml-weir.so")
PRELOAD = os.path.join(BUILD, "libweir-mmap-preload.so")
BENCH = os.path.join(ENGINE, "bin", "llama-bench")
SERVER = os.path.join(ENGINE, "bin", "llama-server")
CTX = 512
PROMPT = "Once upon a time"
READY_SECONDS = 20
PROGRAM_BYTES = 40 * h.MIB  # what a server takes more than weir: HTTP threads, templates, slots
FIELDS = {"weir_version", "model", "architecture", "budget_bytes", "peak_memory_bytes", "memory", "slots", "prompt_tokens",
          "prompt_seconds", "prompt_tokens_per_second", "tokens", "seconds", "tokens_per_second", "first_token_seconds",
          "load_seconds", "bytes_read", "bytes_per_token", "demanded", "hits", "joined", "misses", "hit_rate", "prefetched",
          "prefetch_used", "evictions", "stall_seconds", "lookahead", "threads", "io", "bound", "forecast", "policy",
          "counts_loaded", "pack", "logits_hash",
          "text", "exit"}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def peak_bytes(pid):
    """VmHWM of a running process."""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


def post(port, path, body):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


@functools.lru_cache(None)
def generated_model():
    """One of 40 MB, most of it experts.  What a program takes besides differs by some MB from machine to machine and from one
    context to the next: of a smaller model, a budget that is meant to hold a part would hold all of it, or not enough."""
    folder = tempfile.mkdtemp(prefix="stock-model-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = os.path.join(folder, "moe-large.gguf")
    shape = shapes.Shape("qwen3moe", 6, 256, 256, 4, 2, 64, 64, 4)
    gguf_file.write(path, *make_models.parts_of(shape), make_models.Source(7).pieces)
    return path


class Stock(unittest.TestCase):
    """Starts programs in a folder of their own."""

    def setUp(self):
        for path in (h.WEIR, PLUGIN, PRELOAD, BENCH, SERVER):
            if not path or not os.path.exists(path):
                self.skipTest(f"not there: {path or 'the program weir'}")
        if h.SANITIZED:
            self.skipTest("an unmodified program cannot load a sanitized library")
        folder = tempfile.TemporaryDirectory(prefix="stock-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.report_path = os.path.join(self.folder, "report.json")
        self.model = self.choose_model()

    def choose_model(self):
        """One that writes text with experts, where there is one; else a generated one."""
        found, _ = h.given_models()
        named = [path for name, path in found.items() if name.startswith("tinymoe")]
        return named[0] if named else generated_model()

    def environment(self, budget, **more):
        return {**os.environ, "LD_LIBRARY_PATH": os.path.join(ENGINE, "lib"), "LD_PRELOAD": PRELOAD,
                "GGML_BACKEND_PATH": PLUGIN, "WEIR_MEMORY": h.size(budget), "WEIR_REPORT": self.report_path,
                "OMP_WAIT_POLICY": "passive", "GGML_NO_BACKTRACE": "1", **more}

    def budget(self):
        """Enough for a server, whatever it takes itself."""
        return h.least_budget(self.model, CTX * 4) + PROGRAM_BYTES

    def report(self):
        with open(self.report_path, encoding="utf-8") as file:
            report = json.load(file)
        self.assertEqual(set(report), FIELDS)
        self.assertEqual([name for name in os.listdir(self.folder) if name.endswith(".part")], [])
        return report

    def check_report(self, budget):
        report = self.report()
        self.assertEqual(report["budget_bytes"], -(-budget // 1024) * 1024)
        self.assertEqual(report["model"], os.path.realpath(self.model))
        self.assertLessEqual(report["peak_memory_bytes"], report["budget_bytes"])
        self.assertGreater(report["bytes_read"], 0)
        self.assertEqual(report["demanded"], report["hits"] + report["joined"] + report["misses"])
        self.assertLessEqual(sum(report["memory"].values()), report["budget_bytes"])
        return report

    def bench(self, budget, *more, **environment):
        command = [BENCH, "-m", self.model, "-r", "1", "-t", "2", "-dev", "WEIR0", "-ngl", "99", "-o", "csv", *more]
        return h.run(command, env=self.environment(budget, **environment), timeout=60)

    @contextlib.contextmanager
    def server(self, budget, *more):
        """(port, process) of a running server; it must end by itself when told to."""
        port = free_port()
        log = open(os.path.join(self.folder, "log"), "w+", encoding="utf-8", errors="replace")
        self.addCleanup(log.close)
        process = subprocess.Popen(
            [SERVER, "-m", self.model, "--host", "127.0.0.1", "--port", str(port), "--no-webui", "--device", "WEIR0", "-ngl",
             "99", "--fit", "off", "-c", str(CTX), "-t", "2", "--cache-ram", "0", *more],
            env=self.environment(budget), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            self.wait_ready(port, process, log)
            yield port, process
            process.terminate()
            self.assertEqual(process.wait(20), 0, "the server did not end well")
        finally:
            process.kill()
            process.wait()

    def wait_ready(self, port, process, log):
        for _ in range(READY_SECONDS * 10):
            self.assertIsNone(process.poll(), "the server ended at its start")
            with contextlib.suppress(OSError):
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
                    if answer.status == 200:
                        return
            time.sleep(0.1)
        log.seek(0)
        self.fail(f"the server is not ready after {READY_SECONDS} s: {log.read()[-2000:]}")


class Bench(Stock):
    def tight_budget(self, *more):
        """Less than would hold the model in this program: what the program itself takes differs from machine to machine, so the
        least is the one that it names, and a quarter of the model comes on top."""
        refusal = self.bench(8 * h.MIB, *more).err
        return int(re.search(r"the least is (\d+) bytes", refusal)[1]) + h.model_bytes(self.model) // 4

    def test_runs_and_reports(self):
        budget = self.tight_budget("-p", "40", "-n", "6")
        trace = os.path.join(self.folder, "trace.csv")
        result = self.bench(budget, "-p", "40", "-n", "6", WEIR_TRACE=trace)
        self.assertEqual(result.code, 0, str(result))
        self.assertEqual(len(list(csv.DictReader(io.StringIO(result.out)))), 2, "a row for the prompt, one for tokens")
        report = self.check_report(budget)
        self.assertGreater(report["demanded"], 0)
        self.check_trace(trace)

    def check_trace(self, path):
        with open(path, encoding="ascii") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual({row["phase"] for row in rows}, {"0", "1"})
        self.assertEqual({row["residency"] for row in rows}, {"0", "1"})
        self.assertTrue(all(int(row["expert_bytes"]) > 0 for row in rows))
        keys = [(row["step"], row["layer"], row["slot"]) for row in rows]
        self.assertEqual(len(keys), len(set(keys)), "one row for each choice of the router")

    def test_contexts_that_grow(self):
        """One model, then a second context with larger batches: room is made for it, and the budget holds."""
        budget = self.tight_budget("-p", "300", "-n", "0", "-ub", "256")
        result = self.bench(budget, "-p", "300", "-n", "0", "-ub", "32,256")
        self.assertEqual(result.code, 0, str(result))
        self.assertGreater(self.check_report(budget)["demanded"], 0)

    def test_a_budget_that_cannot_hold(self):
        result = self.bench(8 * h.MIB, "-p", "8", "-n", "2")
        self.assertNotEqual(result.code, 0)
        self.assertIn("the least is", result.err)
        self.assertIsNone(self.report()["bytes_read"])

    def test_a_report_that_cannot_be_written(self):
        self.report_path = os.path.join(self.folder, "none", "report.json")
        result = self.bench(self.budget(), "-p", "8", "-n", "2")
        self.assertEqual(result.code, 0, str(result))
        self.assertEqual(result.err.count("weir: " + self.report_path), 1, result.err)

    def test_a_trace_that_cannot_be_written(self):
        result = self.bench(self.budget(), "-p", "8", "-n", "2", WEIR_TRACE="/dev/full")
        self.assertNotEqual(result.code, 0)
        self.assertIn("/dev/full: write failed", result.err)


class Server(Stock):
    def expected(self, tokens):
        result = h.run_json([h.WEIR, "run", self.model, "-M", h.size(self.budget()), "-p", PROMPT, "-n", str(tokens), "-c",
                             str(CTX), "-t", "2", "--raw", "--temp", "0", "--json"])
        return result["text"]

    def test_same_text_within_the_budget(self):
        tokens, budget = 24, self.budget()
        with self.server(budget) as (port, process):
            answer = post(port, "/completion", {"prompt": PROMPT, "n_predict": tokens, "temperature": 0})
            self.assertEqual(answer["content"].strip(), self.expected(tokens).strip())
            self.assertLessEqual(peak_bytes(process.pid), budget)
        self.check_report(budget)

    def test_long_prompts(self):
        """Several slots, prompts of more than one batch: the last layer of all but the last batch has no tokens."""
        budget, rng = self.budget() + 8 * h.MIB, random.Random(5)
        vocabulary = h.limits_of(self.model)[1]
        with self.server(budget, "-b", "128", "-ub", "64") as (port, process):
            for _ in range(3):
                prompt = [rng.randrange(3, vocabulary) for _ in range(300)]
                answer = post(port, "/completion", {"prompt": prompt, "n_predict": 4, "temperature": 0})
                self.assertEqual(answer["tokens_evaluated"], len(prompt))
            self.assertLessEqual(peak_bytes(process.pid), budget)

    def test_a_budget_that_cannot_hold(self):
        """The server answers with an error, and says what would be enough."""
        with self.server(8 * h.MIB) as (port, _):
            with self.assertRaises(urllib.error.HTTPError) as caught:
                post(port, "/completion", {"prompt": PROMPT, "n_predict": 2})
            caught.exception.close()
            self.assertEqual(caught.exception.code, 500)
        with open(os.path.join(self.folder, "log"), encoding="utf-8", errors="replace") as log:
            self.assertIn("the least is", log.read())


if __name__ == "__main__":
    unittest.main()
