#!/usr/bin/env python3
"""What `weir disk` found is what `weir run` reads with; progress while loading; nothing of it changes a logit."""
import glob
import json
import os
import pty
import select
import shutil
import subprocess
import tempfile
import unittest

import harness
from harness import run, run_json, weir_command


def setUpModule():
    harness.need_programs()


def remember(cache, path, **changes):
    """Measures shortly, and changes what is remembered."""
    run_json([harness.WEIR, "disk", path, "--seconds", "0.2", "--json"], env={"XDG_CACHE_HOME": cache})
    file = os.path.join(cache, "weir", "disk.json")
    with open(file) as stream:
        content = json.load(stream)
    for drive in content["drives"].values():
        drive.update(changes)
    with open(file, "w") as stream:
        json.dump(content, stream)


class Tuning(unittest.TestCase):
    def setUp(self):
        self.model = harness.generated_models()["moe"]
        self.prompt = harness.prompt_of(self.model, 8)

    def report(self, cache, io="auto"):
        budget = harness.least_budget(self.model, 64, io=io) + harness.MIB
        command = weir_command(self.model, budget, self.prompt, 8, 64, 2, "--io", io)
        return run_json(command, env={"XDG_CACHE_HOME": cache})

    def test_run_reads_as_was_found_best(self):
        with tempfile.TemporaryDirectory() as cache:
            plain = self.report(cache)
            self.assertEqual((plain["io"]["queue_depth"], plain["io"]["read_bytes_typical"]), (32, harness.MIB))
            remember(cache, self.model, queue_depth=3, piece_bytes=128 << 10)
            self.assertGreater(plain["bytes_read"], 0)
            tuned = self.report(cache)
            self.assertEqual((tuned["io"]["queue_depth"], tuned["io"]["read_bytes_typical"]), (3, 128 << 10))
            self.assertEqual(tuned["logits_hash"], plain["logits_hash"])
            remember(cache, self.model, method="threads", queue_depth=5)
            self.assertEqual((self.report(cache)["io"]["method"], self.report(cache)["io"]["queue_depth"]), ("threads", 5))
            mapped = self.report(cache, "mmap")
            self.assertEqual((mapped["io"]["method"], mapped["io"]["queue_depth"]), ("mmap", 32))
            self.assertEqual(mapped["logits_hash"], plain["logits_hash"])

    def test_disk_remembers_and_refreshes(self):
        with tempfile.TemporaryDirectory() as cache:
            env = {"XDG_CACHE_HOME": cache}
            command = [harness.WEIR, "disk", self.model, "--seconds", "0.2", "--json"]
            first = run_json(command, env=env)
            self.assertFalse(first["cached"])
            self.assertGreaterEqual(first["burst_latency_us"], 0)
            self.assertTrue(all(point["slices_count"] >= 1 for point in first["points"]))
            again = run_json(command, env=env)
            self.assertTrue(again["cached"])
            self.assertEqual(again["points"], first["points"])
            self.assertFalse(run_json([*command, "--refresh"], env=env)["cached"])
            self.assertIn("rate", run([harness.WEIR, "disk", self.model], env=env).out)

    def test_a_damaged_memory_is_no_memory(self):
        with tempfile.TemporaryDirectory() as cache:
            remember(cache, self.model, queue_depth=0)
            self.assertEqual(self.report(cache)["io"]["queue_depth"], 32)


class PageCache(unittest.TestCase):
    """What another reader left in the page cache is read from there; nothing is brought into it."""

    def models(self):
        """Copies that nobody else reads, one at a time."""
        known, _ = harness.given_models()
        large = [path for path in known.values() if os.path.getsize(path) > 40 * harness.MIB]  # the start drops 16 MiB
        if not large:
            self.skipTest("no model that is large enough")
        for model in large:
            with tempfile.TemporaryDirectory(dir=os.path.dirname(harness.WEIR)) as folder:
                copy = os.path.join(folder, os.path.basename(model))
                shutil.copyfile(model, copy)
                with open(copy, "rb") as file:
                    os.fsync(file.fileno())  # pages that are not written yet could not be dropped
                yield copy

    @staticmethod
    def cached_pages(path, cached):
        """Empties the page cache of a file, or fills it."""
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            while cached and file.read(harness.MIB):
                pass

    def report(self, model, *more):
        budget = harness.least_budget(model, 128) + 4 * harness.MIB
        with tempfile.TemporaryDirectory() as cache:
            report = run_json(weir_command(model, budget, harness.prompt_of(model, 8), 12, 128, 2, *more),
                              env={"XDG_CACHE_HOME": cache})
            self.assertLessEqual(report["peak_memory_bytes"], report["budget_bytes"])
            self.assertLessEqual(report["io"]["page_cache_bytes"], report["bytes_read"])
            self.assertEqual(bool(glob.glob(os.path.join(cache, "weir", "models", "*.json"))),
                             report["io"]["page_cache_bytes"] <= report["bytes_read"] / 16, "what a run teaches is of the drive")
        return report

    def hot_report(self, model):
        """Of a run during which the page cache held the model: others on this machine may need that memory, or empty it."""
        for _ in range(3):
            self.cached_pages(model, True)
            report = self.report(model)
            shown = run([harness.WEIR, "disk", model, "--no-cache", "--seconds", "0.2"]).out
            if "page cache       holds" in shown:
                break
        self.assertIn("page cache       holds", shown)
        return report

    def check(self, model):
        self.cached_pages(model, False)
        before = run_json([harness.WEIR, "disk", model, "--no-cache", "--seconds", "0.2", "--json"])
        if before["page_cache_bytes"] is None or not before["direct"]:
            self.skipTest("this kernel does not tell what is cached, or the file system has no direct reads")
        cold = self.report(model)
        self.assertGreater(cold["bytes_read"], 8 * harness.MIB)
        self.assertLess(cold["io"]["page_cache_bytes"], cold["bytes_read"] / 8)
        again = self.report(model)
        self.assertLess(again["io"]["page_cache_bytes"], again["bytes_read"] / 8)  # the first run has not filled it
        self.cached_pages(model, True)
        named = self.report(model, "--io", "threads")
        self.assertEqual(named["io"]["page_cache_bytes"], 0)  # that is what was asked for
        hot = self.hot_report(model)
        self.assertGreater(hot["io"]["page_cache_bytes"], hot["bytes_read"] / 8)
        self.assertLess(hot["bound"]["io_seconds"], hot["bytes_per_token"] / hot["io"]["device_bytes_per_second"])
        self.assertEqual({r["logits_hash"] for r in (again, named, hot)}, {cold["logits_hash"]})

    def test_reads_from_the_page_cache_what_it_holds(self):
        for model in self.models():
            with self.subTest(model=os.path.basename(model)):
                self.check(model)


class Threads(unittest.TestCase):
    """By default fewer threads may compute a token; no bit depends on it."""

    TOKENS = 24  # the first trial begins after 15 and has each number of threads for 4

    def report(self, model, prompt, threads, slow=True):
        """On a drive so slow that tokens wait for it most of their time, or with everything in memory."""
        spare = 2 * harness.MIB if harness.SANITIZED or "dense-rows" not in model else harness.MIB // 2
        budget = harness.least_budget(model, 1024) + spare if slow else 4 << 30
        command = weir_command(model, budget, harness.prompt_of(model, prompt), self.TOKENS, 1024, 0, "-t", threads)
        return run_json(command, env={"WEIR_FAULT": "latency-us:12000"} if slow else None)

    def test_a_number_that_is_given_stays(self):
        for threads in (1, 2):
            report = self.report(harness.generated_models()["moe"], 8, str(threads))
            self.assertEqual(report["threads"], {"most": threads, "last": threads, "mean": float(threads)})

    def check(self, model, prompt):
        most = str(len(os.sched_getaffinity(0)))
        fixed = self.report(model, prompt, most, slow=False)
        self.assertEqual(fixed["threads"], {"most": int(most), "last": int(most), "mean": float(most)})
        auto = self.report(model, prompt, "auto")
        self.assertEqual(auto["logits_hash"], fixed["logits_hash"])
        self.assertEqual(auto["threads"]["most"], int(most))
        if int(most) > 1 and auto["stall_seconds"] > 0.7 * auto["seconds"]:
            self.assertLess(auto["threads"]["mean"], int(most), "waiting for a slow drive, fewer threads are tried")
            self.assertGreaterEqual(auto["threads"]["mean"], 1)

    def test_fewer_give_the_same_bits(self):
        known, _ = harness.given_models()
        # 520: attention to so many cells is divided among all threads, whatever is chosen.
        generated = harness.generated_models()
        for model, prompts in ((generated["moe"], (8, 520)), (generated["dense-rows"], (8, 520)),
                               (known.get("tinymoe-q4_k_m"), (520,)), (known.get("smollm2"), (8,))):
            for prompt in prompts if model and harness.limits_of(model)[0] >= 1024 else ():
                with self.subTest(model=os.path.basename(model), prompt=prompt):
                    self.check(model, prompt)

    def test_what_is_no_number_is_wrong_usage(self):
        for wrong in ("aut", "", "-1", "1x", "auto1"):
            result = run([harness.WEIR, "run", "none.gguf", "-t", wrong])
            self.assertEqual(result.code, 2, wrong)


class Forecast(unittest.TestCase):
    """A model's own runs inform the next forecast."""

    def test_runs_inform_the_next_plan(self):
        model = harness.generated_models()["moe-wide"]
        budget = harness.least_budget(model, 128) + 5 * harness.MIB
        # A plan keeps 2 MiB for starts that need more: with as much more budget it has about the slots of the run.
        planned = harness.size(budget + 2 * harness.MIB)
        with tempfile.TemporaryDirectory() as cache:
            env = {"XDG_CACHE_HOME": cache}
            plan = [harness.WEIR, "plan", model, "-M", planned, "-c", "128", "-t", "2"]
            self.assertNotIn("earlier runs", run(plan, env=env).out)
            command = weir_command(model, budget, harness.prompt_of(model, 8), 40, 128, 2)
            first = run_json(command, env=env)
            self.assertGreater(first["misses"], 0)
            told = run_json([*plan, "--json"], env=env)
            self.assertAlmostEqual(told["expected_hit_rate"], first["hit_rate"], delta=0.1)
            self.assertAlmostEqual(told["bytes_per_token"] / first["bytes_per_token"], 1, delta=0.4)
            self.assertAlmostEqual(told["compute_tokens_per_second"] * first["bound"]["compute_seconds"], 1, delta=0.01)
            self.assertRegex(run(plan, env=env).out, "from earlier runs +1")
            second = run_json(command, env=env)
            self.assertEqual(second["logits_hash"], first["logits_hash"])
            forecast = second["forecast"]
            self.assertAlmostEqual(forecast["error"], forecast["tokens_per_second"] / second["tokens_per_second"] - 1, delta=1e-6)

    def test_what_was_remembered_may_be_anything(self):
        model = harness.generated_models()["moe"]
        with tempfile.TemporaryDirectory() as cache:
            env = {"XDG_CACHE_HOME": cache}
            command = weir_command(model, 256 * harness.MIB, harness.prompt_of(model, 4), 12, 64, 2)
            expected = run_json(command, env=env)["logits_hash"]
            folder = os.path.join(cache, "weir", "models")
            (name,) = os.listdir(folder)
            for text in ("", '{"version": 1, "runs": [3, null, {}]}', '{"version": 1, "runs": [{"overlap_share": 1e999}]}',
                         '{"version": 1, "runs": [{"slots_share": -1, "hit_rate": "x", "at_s": {}}]}'):
                with open(os.path.join(folder, name), "w") as file:
                    file.write(text)
                self.assertEqual(run_json(command, env=env)["logits_hash"], expected, text)


class Progress(unittest.TestCase):
    def test_loading_is_shown_on_a_terminal(self):
        """On a terminal there is a bar; elsewhere there is none."""
        model = harness.generated_models()["dense"]
        command = weir_command(model, 512 * harness.MIB, harness.prompt_of(model, 4), 2, 64, 1)
        self.assertNotIn("loading", run(command).err)
        ours, theirs = pty.openpty()
        env = {**os.environ, "XDG_CACHE_HOME": harness.CACHE, "TERM": "xterm", "OMP_WAIT_POLICY": "passive"}
        process = subprocess.Popen([part for part in command if part != "--json"], env=env, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=theirs)
        os.close(theirs)
        shown = b""
        while True:
            ready = select.select([ours], [], [], 1)[0]
            if not ready and process.poll() is not None:
                break
            if ready:
                try:
                    part = os.read(ours, 65536)
                except OSError:
                    break
                shown += part
        os.close(ours)
        self.assertEqual(process.wait(), 0, shown[-500:])
        self.assertIn(b"loading", shown)


if __name__ == "__main__":
    unittest.main()
