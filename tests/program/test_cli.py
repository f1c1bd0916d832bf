#!/usr/bin/env python3
"""What every command does alike: help, options, exit codes, one line for an error, one JSON object, nothing raw on a terminal.

Most tests need no model and no engine.  Those of `weir run` and `weir plan` with a model are skipped when this build has no
engine.
"""
import json
import os
import pty
import resource
import re
import select
import signal
import subprocess
import tempfile
import time
import unittest

import harness as h

COMMON = ("--help", "--version", "--quiet", "--verbose", "--json", "--color")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
BAD_SIZES = ("", "0", "-1", "-4G", "4X", "4 G", "nan", "1e9", "0x10", "101%", "0%", "1.G", "99999999999999999999G", "16777216T")
REPORT = ("weir_version model architecture budget_bytes peak_memory_bytes memory slots prompt_tokens prompt_seconds "
          "prompt_tokens_per_second tokens seconds tokens_per_second first_token_seconds load_seconds bytes_read "
          "bytes_per_token demanded hits joined misses hit_rate prefetched prefetch_used evictions stall_seconds "
          "lookahead threads io bound forecast policy counts_loaded pack logits_hash text exit").split()
PLAN = ("budget_bytes least_budget_bytes memory slots token_cycle_bytes expected_hit_rate bytes_per_token "
        "device_bytes_per_second compute_tokens_per_second tokens_per_second first_token_seconds limits").split()
VARIES = 16 * h.MIB if h.SANITIZED else 0  # a sanitizer's own memory differs from one start to the next
MEMORY = "dense experts kv compute other".split()


def commands():
    """Names of the commands that this build has."""
    listing = h.run([h.WEIR, "--help"]).out.split("commands:\n")[1].split("\n\n")[0]
    return [line.split()[0] for line in listing.splitlines()]


def need_weir():
    if not h.WEIR:
        raise unittest.SkipTest("WEIR_BIN is not set and the build folder does not hold the program")


class Case(unittest.TestCase):
    def setUp(self):
        need_weir()
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = holder.name

    def weir(self, *arguments, code, **more):
        result = h.run([h.WEIR, *arguments], **more)
        self.assertEqual(result.code, code, str(result))
        return result

    def fails(self, *arguments, code, says="", **more):
        """Exit code, nothing on standard output, one clean line on standard error that holds `says`."""
        result = self.weir(*arguments, code=code, **more)
        self.assertEqual(result.out, "", str(result))
        self.assert_one_line(result.err, says)
        return result

    def assert_one_line(self, text, says):
        self.assertEqual(text.count("\n"), 1, repr(text))
        self.assertTrue(text.startswith("weir"), repr(text))
        self.assertIsNone(CONTROL.search(text), repr(text))
        self.assertIn(says, text)

    def path(self, name, data=None):
        path = os.path.join(self.folder, name)
        if data is not None:
            with open(path, "wb") as file:
                file.write(data)
        return path


class Frame(Case):
    def test_version(self):
        version = self.weir("--version", code=0).out
        self.assertRegex(version, r"^weir \d+\.\d+\.\d+\n$")
        self.assertEqual(self.weir("-V", code=0).out, version)
        for command in commands():
            self.assertEqual(self.weir(command, "--version", code=0).out, version)

    def test_help_of_each_command(self):
        for command in commands():
            with self.subTest(command):
                result = self.weir(command, "--help", code=0)
                self.assertEqual(result.err, "")
                self.assertIn(f"usage: weir {command}", result.out)
                self.assertIn(f"  weir {command}", result.out.split("example:")[1])
                for option in COMMON:
                    self.assertIn(option, result.out)
                self.assertEqual(self.weir("help", command, code=0).out, result.out)
                self.assertEqual(self.weir(command, "-h", code=0).out, result.out)

    def test_help_lists_the_commands(self):
        self.assertIn("inspect", commands())
        self.assertEqual(self.weir("help", code=0).out, self.weir("--help", code=0).out)

    def test_no_command(self):
        self.fails(code=h.EXIT_USAGE, says="command")

    def test_unknown_command(self):
        self.fails("nosuch", code=h.EXIT_USAGE, says="'nosuch'")
        self.fails("run\x1b[31m", code=h.EXIT_USAGE, says="\\x1b[31m")
        self.fails("help", "nosuch", code=h.EXIT_USAGE, says="'nosuch'")
        self.fails("--nosuch", code=h.EXIT_USAGE)

    def test_unknown_option_of_each_command(self):
        for command in commands():
            with self.subTest(command):
                self.fails(command, "--nosuch-option", code=h.EXIT_USAGE, says="--nosuch-option")
                self.fails(command, "-Z", code=h.EXIT_USAGE, says="-Z")
                self.fails(command, "--color", "sometimes", code=h.EXIT_USAGE, says="auto|always|never")
                self.fails(command, "--json=1", code=h.EXIT_USAGE, says="--json")
                self.fails(command, "--color", code=h.EXIT_USAGE, says="--color")

    def test_an_operand_is_missing_or_too_many(self):
        for command in set(commands()) & {"run", "plan", "inspect", "verify"}:
            with self.subTest(command):
                self.fails(command, code=h.EXIT_USAGE, says="missing")
                self.fails(command, "a", "b", code=h.EXIT_USAGE, says="'b'")

    def test_options_end_at_two_dashes(self):
        self.fails("inspect", "--", "--json", code=h.EXIT_FAILED, says="--json")

    def test_color(self):
        def error(*arguments, **env):
            return h.run([h.WEIR, "inspect", "/nosuch", *arguments], env={"TERM": "xterm", **env}).err
        self.assertNotIn("\x1b", error())
        self.assertIn("\x1b[", error("--color", "always"))
        self.assertIn("\x1b[", error("--color", "always", NO_COLOR="1"))
        self.assertNotIn("\x1b", error("--color", "never"))


class Streams(Case):
    def run_with(self, arguments, **streams):
        done = subprocess.run([h.WEIR, *arguments], timeout=h.TIMEOUT_SECONDS, stdin=subprocess.DEVNULL, **streams)
        self.assertGreaterEqual(done.returncode, 0, "ended by a signal")
        return done

    def test_a_full_drive_is_an_error(self):
        with open("/dev/full", "w") as full:
            done = self.run_with(["--help"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, h.EXIT_FAILED)
        self.assert_one_line(done.stderr, "standard output")

    def test_a_closed_pipe_is_an_error(self):
        reader, writer = os.pipe()
        os.close(reader)
        done = self.run_with(["--help"], stdout=writer, stderr=subprocess.PIPE, text=True)
        os.close(writer)
        self.assertEqual(done.returncode, h.EXIT_FAILED)
        self.assert_one_line(done.stderr, "standard output")

    def test_closed_streams(self):
        for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
            with self.subTest(closed):
                command = f'"$0" inspect /nosuch {closed}; echo $? >"$1"'
                code = self.path("code")
                subprocess.run(["sh", "-c", command, h.WEIR, code], timeout=h.TIMEOUT_SECONDS, capture_output=True, check=True)
                with open(code) as file:
                    self.assertEqual(file.read(), "1\n")


class NotAModel(Case):
    """Commands that take a model, given what is none."""

    def setUp(self):
        super().setUp()
        self.takers = [c for c in commands() if c in ("run", "plan", "inspect")]

    def each(self, path, code, says):
        for command in self.takers:
            more = ["--prompt", "x"] if command == "run" else []
            with self.subTest(command):
                self.fails(command, path, *more, code=code, says=says)

    def test_nothing_there(self):
        self.each(self.path("none.gguf"), h.EXIT_FAILED, "none.gguf")

    def test_garbage(self):
        for name, data in (("empty", b""), ("short", b"GGUF"), ("text", b"hello\n" * 100), ("zero", bytes(4096))):
            self.each(self.path(name + ".gguf", data), h.EXIT_FORMAT, name + ".gguf")

    def test_no_regular_file(self):
        self.each(self.folder, h.EXIT_FORMAT, self.folder)
        fifo = self.path("fifo.gguf")
        os.mkfifo(fifo)
        self.each(fifo, h.EXIT_FORMAT, "fifo.gguf")
        self.each("/dev/zero", h.EXIT_FORMAT, "/dev/zero")

    def test_what_says_nothing_about_a_drive(self):
        """Neither when its drive is known from before, nor when it is measured."""
        self.weir("disk", self.path("some", bytes(1 << 20)), "--seconds", "0.2", code=h.EXIT_DONE)
        fifo, empty = self.path("fifo"), self.path("empty", b"")
        os.mkfifo(fifo)
        self.fails("disk", fifo, code=h.EXIT_FORMAT, says="FIFO")
        self.fails("disk", empty, "--refresh", code=h.EXIT_FORMAT, says="empty")

    def test_a_name_with_controls(self):
        path = self.path("a\x1b[2J\u009bb.gguf", b"nonsense")
        self.each(path, h.EXIT_FORMAT, "a\\x1b[2J\\u009bb.gguf")

    def test_json_has_no_output_for_wrong_usage(self):
        for command in self.takers:
            self.fails(command, "--json", "--nosuch", code=h.EXIT_USAGE)


class WithEngine(Case):
    """`run` and `plan` on a small generated model."""

    def setUp(self):
        super().setUp()
        if not {"run", "plan"} <= set(commands()):
            self.skipTest("this build has no engine")
        self.model = h.generated_models()["moe"]
        self.ids = h.prompt_of(self.model, 6)

    def base(self, *more, tokens=8, budget="1G"):
        return ["run", self.model, "--prompt-tokens", self.ids, "-M", budget, "-n", str(tokens), "-c", "256", "--temp", "0",
                "--ignore-eos", "-t", "1", *more]


class Usage(WithEngine):
    def test_bad_sizes(self):
        for command in ("run", "plan"):
            for size in BAD_SIZES:
                with self.subTest(f"{command} {size}"):
                    self.fails(command, self.model, "-M", size, code=h.EXIT_USAGE, says="--memory")

    def test_bad_numbers(self):
        for option, values in {"-n": ("0", "-1", "x", "1.5", "99999999999"), "--temp": ("x", "-1", "nan", "inf"),
                               "--top-p": ("1.5", "-0.1", ""), "--top-k": ("-1", "x"), "--seed": ("x", "4294967296", "-2"),
                               "-c": ("-1", "x"), "-t": ("-1", "10000"), "--io": ("fast", ""), "--policy": ("nosuch",),
                               "--device": ("nosuch",), "--prompt-tokens": ("", "x", "1,,2", "-1")}.items():
            for value in values:
                with self.subTest(f"{option} {value}"):
                    more = [] if option == "--prompt-tokens" else ["--prompt", "x"]
                    self.fails("run", self.model, *more, option, value, code=h.EXIT_USAGE)

    def test_a_policy_that_is_none(self):
        self.fails("run", self.model, "-p", "x", "--policy", "nosuch", code=h.EXIT_USAGE, says="take one of auto, odds, lfu")

    def test_one_prompt_only(self):
        self.fails(*self.base("--prompt", "x"), code=h.EXIT_USAGE, says="only one")

    def test_prompts_that_are_none(self):
        self.fails("run", self.model, "-p", "", code=h.EXIT_USAGE, says="empty")
        self.fails("run", self.model, code=h.EXIT_USAGE, says="standard input")
        self.fails("run", self.model, "-f", self.path("nul", b"a\0b"), code=h.EXIT_USAGE, says="NUL")
        self.fails("run", self.model, "-f", self.path("none"), code=h.EXIT_FAILED, says="none")
        self.fails("run", self.model, "-f", self.folder, code=h.EXIT_FAILED, says=self.folder)

    def test_a_prompt_longer_than_the_context(self):
        long = h.prompt_of(self.model, 300)
        self.fails("run", self.model, "--prompt-tokens", long, "-c", "256", code=h.EXIT_USAGE, says="too long")
        self.fails(*self.base(tokens=255), code=h.EXIT_USAGE, says="context")
        self.fails("run", self.model, "--prompt-tokens", "999999999", code=h.EXIT_USAGE, says="999999999")

    def test_outputs_that_cannot_be(self):
        for option in ("--report", "--trace", "--token-times"):
            with self.subTest(option):
                self.fails(*self.base(option, self.path("none/out")), code=h.EXIT_FAILED, says="none/out")
                self.fails(*self.base(option, self.folder), code=h.EXIT_USAGE, says=self.folder)
                self.fails(*self.base(option, self.model), code=h.EXIT_USAGE, says="model itself")
        self.assertEqual(os.listdir(self.folder), [])


class Budget(WithEngine):
    def test_too_small(self):
        result = self.fails(*self.base(budget="1M"), code=h.EXIT_BUDGET, says=self.model)
        least = int(re.search(r"the least is (\d+) bytes", result.err)[1])
        self.assertRegex(result.err, "most of it for (dense weights|expert slots|KV cache|compute buffers|the program itself)")
        shown = re.search(r"bytes \(([\d.]+) MiB\)", result.err)[1]
        self.assertTrue(0 <= float(shown) * (1 << 20) - least <= (1 << 20) / 100 + 1, result.err)
        self.weir(*self.base("-q", budget=str(least + VARIES)), code=0)

    def test_the_least_of_a_plan_works(self):
        for _ in range(3):
            least = h.run_json([h.WEIR, "plan", self.model, "-c", "256", "-t", "1", "--json"])["least_budget_bytes"]
            report = h.run_json([h.WEIR, *self.base("--json", budget=str(least + VARIES))])
            if not h.SANITIZED:
                self.assertLessEqual(report["peak_memory_bytes"], least)

    def test_plan_of_too_small_a_budget(self):
        result = self.weir("plan", self.model, "-M", "1M", "--json", code=h.EXIT_BUDGET)
        plan = json.loads(result.out)
        self.assertEqual(list(plan), PLAN)
        self.assertGreater(plan["least_budget_bytes"], 1 << 20)
        self.assertIsNone(plan["memory"])
        self.assert_one_line(result.err, str(plan["least_budget_bytes"]))
        self.fails("plan", self.model, "-M", "1M", code=h.EXIT_BUDGET, says="the least is")

    def test_plan(self):
        plan = h.run_json([h.WEIR, "plan", self.model, "-M", "1G", "--json"])
        self.assertEqual(list(plan), PLAN)
        self.assertEqual(list(plan["memory"]), MEMORY)
        self.assertEqual(plan["budget_bytes"], 1 << 30)
        self.assertLessEqual(sum(plan["memory"].values()), plan["budget_bytes"])
        self.assertIn(plan["limits"], ("disk", "compute", "memory"))
        self.assertTrue(0 <= plan["expected_hit_rate"] <= 1)
        tight = h.run_json([h.WEIR, "plan", self.model, "-M", str(plan["least_budget_bytes"] + (4 << 20)), "--json"])
        self.assertLess(tight["slots"]["count"], plan["slots"]["count"])
        self.assertGreater(tight["bytes_per_token"], 0)
        self.assertIsNotNone(tight["device_bytes_per_second"])
        self.assertIn("expert slots", self.weir("plan", self.model, code=0).out)

    def test_shares_and_auto(self):
        whole = h.run_json([h.WEIR, "plan", self.model, "-M", "100%", "--json"])["budget_bytes"]
        half = h.run_json([h.WEIR, "plan", self.model, "-M", "50%", "--json"])["budget_bytes"]
        automatic = h.run_json([h.WEIR, "plan", self.model, "--json"])["budget_bytes"]
        self.assertAlmostEqual(half / whole, 0.5, delta=0.05)  # other processes come and go in between
        self.assertLess(automatic, whole * 1.01)
        self.assertGreater(automatic, whole * 0.5)


class Context(WithEngine):
    def test_a_context_smaller_than_a_batch(self):
        long = h.prompt_of(self.model, 60)
        report = h.run_json([h.WEIR, "run", self.model, "--prompt-tokens", long, "-c", "64", "-n", "2", "-M", "1G", "--json"])
        self.assertEqual(report["prompt_tokens"], 60)

    def test_without_a_number_of_tokens_the_context_is_filled(self):
        report = h.run_json([h.WEIR, "run", self.model, "--prompt-tokens", self.ids, "-c", "256", "-M", "1G", "--ignore-eos",
                             "-t", "1", "--json"])
        self.assertEqual(report["prompt_tokens"] + report["tokens"], 256)


    def test_more_than_the_model_was_trained_for(self):
        """It is taken, and said with both numbers; a default never goes beyond."""
        trained, _ = h.limits_of(self.model)
        more = trained + 256
        base = ["--prompt-tokens", self.ids, "-n", "1", "--temp", "0", "-t", "1", "-M", "4G"]
        says = f"--ctx of {more} tokens is more than the {trained} that"
        for json_too in ([], ["--json"]):
            planned = self.weir("plan", self.model, "-c", str(more), "--no-measure", *json_too, code=0)
            self.assert_one_line(planned.err, says)
            err = self.weir("run", self.model, *base, "-c", str(more), *json_too, code=0).err
            self.assertEqual(err.count(says), 1, err)
        self.assertIn(f"{more} tokens; the model was trained for {trained}\n",
                      self.weir("plan", self.model, "-c", str(more), "--no-measure", code=0).out)
        for command in (["plan", self.model, "--no-measure"], ["run", self.model, *base]):
            self.assertEqual(self.weir(*command, "-c", str(more), "-q", code=0).err, "")
            for ctx in ([], ["-c", str(trained)]):
                self.assertNotIn("trained", self.weir(*command, *ctx, code=0).err)


class Report(WithEngine):
    def check(self, report, code):
        self.assertEqual(list(report), REPORT)
        self.assertEqual(list(report["memory"]), MEMORY)
        self.assertEqual(list(report["slots"]), ["count", "bytes"])
        self.assertEqual(list(report["threads"]), ["most", "last", "mean"])
        self.assertEqual(list(report["io"]), ["method", "queue_depth", "read_bytes_typical", "device_bytes_per_second",
                                                "page_cache_bytes"])
        self.assertEqual(list(report["bound"]), ["compute_seconds", "io_seconds", "tokens_per_second", "ratio"])
        self.assertEqual(list(report["forecast"]), ["tokens_per_second", "error"])
        self.assertEqual(report["exit"], code)
        self.assertEqual(report["model"], self.model)

    def test_json_and_file_are_the_same(self):
        path = self.path("report.json")
        result = self.weir(*self.base("--json", "--report", path, "--logits-hash"), code=0)
        self.assertEqual(result.err, "")
        report = json.loads(result.out)
        self.check(report, 0)
        with open(path) as file:
            self.assertEqual(json.load(file), report)
        self.assertEqual(os.listdir(self.folder), ["report.json"])
        self.assertRegex(report["logits_hash"], "^[0-9a-f]{16}$")
        self.assertEqual(report["tokens"], 8)
        self.assertEqual(report["prompt_tokens"], 6)
        self.assertEqual(report["demanded"], report["hits"] + report["joined"] + report["misses"])
        self.assertLessEqual(sum(report["memory"].values()), report["budget_bytes"])
        self.assertAlmostEqual(report["tokens_per_second"], 7 / report["seconds"], delta=1e-6 * report["tokens_per_second"])

    def test_streamed_run_measures_the_drive(self):
        if h.SANITIZED:
            self.skipTest("this model is smaller than what a sanitizer's memory varies by")
        budget = h.least_budget(self.model, 256)
        report = h.run_json([h.WEIR, *self.base("--json", budget=str(budget))])
        self.assertGreater(report["bytes_read"], 0)
        self.assertAlmostEqual(report["bytes_per_token"], report["bytes_read"] / 7, delta=1)
        self.assertGreater(report["io"]["device_bytes_per_second"], 0)
        bound = report["bound"]
        slower = max(bound["compute_seconds"], bound["io_seconds"])
        self.assertAlmostEqual(bound["tokens_per_second"] * slower, 1, delta=1e-6)
        self.assertAlmostEqual(bound["ratio"], report["tokens_per_second"] / bound["tokens_per_second"], delta=1e-6)

    def test_streamed_text_is_the_text(self):
        plain = subprocess.run([h.WEIR, *self.base()], capture_output=True, stdin=subprocess.DEVNULL,
                               timeout=h.TIMEOUT_SECONDS, check=True)
        report = h.run_json([h.WEIR, *self.base("--json")])
        self.assertEqual(plain.stdout.decode(errors="replace").removesuffix("\n"), report["text"].removesuffix("\n"))
        self.assertIn(b"tokens/s", plain.stderr)
        self.assertEqual(self.weir(*self.base("-q"), code=0).err, "")

    def test_one_token_is_no_tokens(self):
        self.ids = "3"
        err = self.weir(*self.base(tokens=1), code=0).err
        self.assertRegex(err, r"prompt: 1 token in [^;]*; generated 1 token\n")
        self.assertRegex(self.weir(*self.base(), code=0).err, "generated 8 tokens,")

    def test_token_times_and_the_engine_alone(self):
        runs = []
        for more in ([], ["--plain", "mmap"], ["--plain", "read"]):
            path = self.path("times.csv")
            report = h.run_json([h.WEIR, *self.base("--json", "--logits-hash", "--token-times", path, *more)])
            self.check(report, 0)
            with open(path) as file:
                rows = [line.strip().split(",") for line in file]
            self.assertEqual(rows[0], ["token", "seconds", "logits_hash"])
            self.assertEqual([int(row[0]) for row in rows[1:]], list(range(1, 9)))
            self.assertAlmostEqual(sum(float(row[1]) for row in rows[2:]), report["seconds"], delta=1e-6)
            self.assertEqual(rows[-1][2], report["logits_hash"])
            runs.append([row[2] for row in rows])
            self.assertEqual(report["budget_bytes"] is None, bool(more))
        self.assertEqual(runs[0], runs[1])
        self.assertEqual(runs[0], runs[2])
        self.assertRegex(self.weir(*self.base("--plain", "read"), code=0).err, r"memory: peak [\d.]+ [KMG]iB\n")

    def test_slots_are_those_of_the_plan(self):
        """Also where everything stays, and where there are no experts."""
        dense = h.generated_models()["dense"]
        for model, experts in ((self.model, True), (dense, False)):
            plan = h.run_json([h.WEIR, "plan", model, "-M", "1G", "-c", "256", "-t", "1", "--no-measure", "--json"])
            self.assertEqual(plan["bytes_per_token"], 0)
            self.model = model
            report = h.run_json([h.WEIR, *self.base("--json")])
            self.assertEqual(report["slots"], plan["slots"])
            self.assertEqual(report["slots"]["bytes"], report["memory"]["experts"])
            self.assertEqual(report["slots"]["count"] > 0, experts)
            self.assertEqual(report["demanded"], 0)  # and no hit rate, as nothing can be missed
            self.assertIsNone(report["hit_rate"])

    def test_a_failed_run_reports(self):
        path = self.path("report.json")
        result = self.weir(*self.base("--json", "--report", path, budget="1M"), code=h.EXIT_BUDGET)
        report = json.loads(result.out)
        self.check(report, h.EXIT_BUDGET)
        self.assertIsNone(report["tokens"])
        self.assertEqual(report["budget_bytes"], 1 << 20)
        with open(path) as file:
            self.assertEqual(json.load(file), report)
        self.assert_one_line(result.err, "the least is")

    def test_a_model_that_is_none_reports(self):
        self.model = self.path("bad.gguf", b"bad")
        result = self.weir("run", self.model, "-p", "x", "--json", code=h.EXIT_FORMAT)
        self.check(json.loads(result.out), h.EXIT_FORMAT)

    def test_a_report_is_not_written_over_by_wrong_usage(self):
        path = self.path("report.json", b"before")
        self.fails(*self.base("--report", path, "-p", "x"), code=h.EXIT_USAGE)
        with open(path, "rb") as file:
            self.assertEqual(file.read(), b"before")


class Interrupted(WithEngine):
    def start(self, *more):
        return subprocess.Popen([h.WEIR, *more], bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)

    def finish(self, process):
        out, err = process.communicate(timeout=h.TIMEOUT_SECONDS)
        self.assertEqual(process.returncode, 130, err)
        return out, err.decode()

    def test_while_generating(self):
        path = self.path("report.json")
        budget = str(h.least_budget(self.model, 4096) + VARIES)
        process = self.start("run", self.model, "--prompt-tokens", self.ids, "-M", budget, "-c", "4096", "--ignore-eos", "-t",
                             "1", "--report", path, "--trace", self.path("trace"))
        first = process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        out, err = self.finish(process)
        with open(path) as file:
            report = json.load(file)
        self.assertEqual(report["exit"], 130)
        self.assertGreater(report["tokens"], 0)
        self.assertEqual((first + out).decode(errors="replace").removesuffix("\n"), report["text"].removesuffix("\n"))
        self.assertIn("interrupted", err)

    def start_generating(self, *more):
        process = self.start("run", self.model, "--prompt-tokens", self.ids, "-M", "1G", "-c", "4096", "--ignore-eos", "-t", "2",
                             *more)
        process.stdout.read(1)
        return process

    def test_other_signals_that_ask_for_an_end(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            path = self.path(f"report-{int(number)}.json")
            process = self.start_generating("--report", path)
            process.send_signal(number)
            self.assertIn("interrupted", self.finish(process)[1])
            with open(path) as file:
                self.assertEqual(json.load(file)["exit"], 130)

    def test_no_memory_and_no_descriptors(self):
        """What the system refuses is said to be that, and is not the file's fault."""
        if h.SANITIZED:
            self.skipTest("a sanitizer needs address space of its own")
        base = self.base("--json")
        for command in (base, ["plan", self.model, "--no-measure"], ["verify", self.model],
                        ["pack", self.model, "-o", self.path("pack")]):
            for kind, limits in ((resource.RLIMIT_AS, range(16, 120, 8)), (resource.RLIMIT_NOFILE, range(4, 14))):
                for limit in limits:
                    self.check_limited(command, kind, limit << 20 if kind == resource.RLIMIT_AS else limit)

    def check_limited(self, command, kind, limit):
        with self.subTest(f"{command[0]}, limit {kind} of {limit}"):
            done = subprocess.run([h.WEIR, *command], stdin=subprocess.DEVNULL, capture_output=True, timeout=h.TIMEOUT_SECONDS,
                                  preexec_fn=lambda: resource.setrlimit(kind, (limit, limit)))
            if b"error while loading shared libraries" in done.stderr:
                return  # not even started
            self.assertIn(done.returncode, (h.EXIT_DONE, h.EXIT_FAILED, h.EXIT_BUDGET), done.stderr)
            if done.returncode == h.EXIT_FAILED:
                self.assertRegex(done.stderr, rb"(?i)memory|too many open files|unavailable|allocate")

    def test_a_crash_is_an_exit_code(self):
        """As if the engine had crashed: one line, no signal, nothing left of the trace."""
        if h.SANITIZED:
            self.skipTest("a sanitizer takes these signals itself")
        for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGABRT):
            process = self.start_generating("--trace", self.path("trace"))
            process.send_signal(number)
            err = process.communicate(timeout=h.TIMEOUT_SECONDS)[1].decode()
            self.assertEqual(process.returncode, h.EXIT_FAILED, err)
            self.assert_one_line(err, signal.Signals(number).name)
            self.assertIn(self.model, err)
            self.assertEqual(os.listdir(self.folder), [])

    def test_killed(self):
        """Nothing is left of the trace, what was there before is, and a run that goes on writing to the same file is not
        disturbed."""
        try:
            os.close(os.open(self.folder, os.O_TMPFILE | os.O_WRONLY))
        except OSError as error:
            self.skipTest(f"the file system has no files without a name: {error}")
        trace = self.path("trace", b"before")
        other = self.start_generating("--trace", trace)
        process = self.start_generating("--trace", trace)
        process.kill()
        process.communicate(timeout=h.TIMEOUT_SECONDS)
        self.assertEqual(process.returncode, -signal.SIGKILL)
        self.assertEqual(os.listdir(self.folder), ["trace"])
        with open(trace, "rb") as file:
            self.assertEqual(file.read(), b"before")
        other.send_signal(signal.SIGINT)
        self.finish(other)
        with open(trace, encoding="ascii") as file:
            self.assertTrue(file.readline().startswith("turn,phase,step"))
            self.assertGreater(len(file.readlines()), 8)
        self.assertEqual(os.listdir(self.folder), ["trace"])

    def test_stopped_and_continued(self):
        process = self.start_generating("-n", "200")
        for _ in range(3):
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.05)
            process.send_signal(signal.SIGCONT)
            time.sleep(0.05)
        process.communicate(timeout=h.TIMEOUT_SECONDS)
        self.assertEqual(process.returncode, 0)

    def test_a_second_interrupt_ends_at_once(self):
        process = self.start_generating("--trace", self.path("trace"))
        for _ in range(2):
            process.send_signal(signal.SIGINT)
        self.finish(process)
        self.assertEqual([name for name in os.listdir(self.folder) if name.endswith(".part")], [])

    def test_while_waiting_for_a_prompt(self):
        process = self.start("run", self.model)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        self.assertIn("interrupted", self.finish(process)[1])

    def test_a_reader_that_goes_away(self):
        process = self.start("run", self.model, "--prompt-tokens", self.ids, "-c", "4096", "-M", "1G", "--ignore-eos", "-t",
                             "1")
        process.stdin.close()
        process.stdout.read(1)
        process.stdout.close()
        err = process.stderr.read().decode()
        process.stderr.close()
        self.assertEqual(process.wait(h.TIMEOUT_SECONDS), h.EXIT_FAILED)
        self.assertIn("standard output", err)


class Terminal(WithEngine):
    """Both outputs on a terminal: nothing that the model makes may steer it."""

    def on_terminal(self, *arguments, **env):
        try:
            pid, fd = pty.fork()
        except OSError as error:
            self.skipTest(f"no pseudo-terminal to be had here (is /dev/pts mounted?): {error}")
        if not pid:
            os.environ.update(env)
            os.execv(h.WEIR, [h.WEIR, *arguments])
        out, ends = b"", time.monotonic() + h.TIMEOUT_SECONDS
        while time.monotonic() < ends and select.select([fd], [], [], 1)[0] is not None:
            try:
                block = os.read(fd, 65536)
            except OSError:  # the other side is closed
                break
            if not block:
                break
            out += block
        os.close(fd)
        return os.waitpid(pid, 0)[1], out.decode(errors="replace")

    def test_generated_controls_are_escaped(self):
        status, out = self.on_terminal(*self.base("-q", "--temp", "2", "--seed", "1", tokens=200), TERM="xterm")
        self.assertEqual(status, 0)
        self.assertIsNone(CONTROL.search(out.replace("\r\n", "\n")), repr(out))
        self.assertGreater(len(out), 20)

    def test_no_color(self):
        self.assertIn("\x1b[1", self.on_terminal("inspect", "/nosuch", TERM="xterm", NO_COLOR="")[1])
        self.assertNotIn("\x1b[1", self.on_terminal("inspect", "/nosuch", TERM="xterm", NO_COLOR="1")[1])
        self.assertNotIn("\x1b[1", self.on_terminal("inspect", "/nosuch", TERM="dumb", NO_COLOR="")[1])


class Prompts(WithEngine):
    """The same text by every way gives the same answer.  Needs a vocabulary that the model knows how to split."""

    def test_option_file_and_standard_input(self):
        more = ["-M", "1G", "-n", "4", "-c", "256", "--temp", "0", "--raw", "--logits-hash", "--json", "-t", "1"]
        given = h.run([h.WEIR, "run", self.model, "-p", "hello", *more])
        if given.code == h.EXIT_USAGE:
            self.skipTest("this model has no vocabulary for text")
        expected = json.loads(given.out)["logits_hash"]
        file = self.path("prompt", b"hello")
        self.assertEqual(h.run_json([h.WEIR, "run", self.model, "-f", file, *more])["logits_hash"], expected)
        done = subprocess.run([h.WEIR, "run", self.model, *more], input=b"hello", capture_output=True, check=True,
                              timeout=h.TIMEOUT_SECONDS)
        self.assertEqual(json.loads(done.stdout)["logits_hash"], expected)


if __name__ == "__main__":
    unittest.main()
