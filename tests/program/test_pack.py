#!/usr/bin/env python3
"""`weir pack`, `weir verify`, and runs that read from a pack: the same logits, every flipped bit found, nothing lost by a kill.

    WEIR_BIN=build/weir python3 tests/program/test_pack.py [-v]
"""
import glob
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest

import harness as h
import test_stock

CTX, PROMPT_TOKENS, TOKENS = 256, 20, 16
MODELS = ("odd", "merged", "split", "dense") if not h.FULL else tuple(h.make_models.TEST_MODELS)
SPLIT_FILE = "-00001-of-"


def shards_of(path):
    return sorted(glob.glob(path.replace(SPLIT_FILE, "-*-of-")))


class Packs(unittest.TestCase):
    """A folder for each test, with a model of its own in it."""

    def setUp(self):
        if not h.WEIR:
            raise unittest.SkipTest("WEIR_BIN is not set and the build folder does not hold the program")
        holder = tempfile.TemporaryDirectory(dir=os.path.dirname(h.generated_models()["moe"]))
        self.addCleanup(holder.cleanup)
        self.folder = holder.name

    def model(self, name="moe"):
        """A copy of a generated model: its path."""
        source = h.generated_models()[name]
        for shard in shards_of(source):
            shutil.copy(shard, self.folder)
        return os.path.join(self.folder, os.path.basename(source))

    def weir(self, *arguments, code=h.EXIT_DONE):
        result = h.run([h.WEIR, *arguments])
        self.assertEqual(result.code, code, str(result))
        return result

    def packed(self, name="moe", *more):
        path = self.model(name)
        self.weir("pack", path, "-q", *more)
        return path, os.path.join(self.folder, os.path.basename(path).split(SPLIT_FILE)[0].replace(".gguf", "") + ".weir")

    def report(self, path, budget, *more):
        ids = h.prompt_of(path, PROMPT_TOKENS)
        return h.run_json(h.weir_command(path, budget, ids, TOKENS, CTX, 2, *more))


class Exact(Packs):
    """What is computed does not depend on where it was read from."""

    def budgets(self, path):
        least = h.least_budget(path, CTX)
        return (least + h.MIB, least + h.model_bytes(path) // 3, least + h.model_bytes(path) * 5 // 4 + 64 * h.MIB)

    def compare(self, name, path, pack, expected, methods):
        for budget, method in zip(self.budgets(path), methods):
            if not method:
                continue
            with self.subTest(name, method=method, budget=budget):
                report = self.report(path, budget, "--io", method)
                self.assertEqual(report["logits_hash"], expected)
                self.assertEqual(os.path.realpath(report["pack"]), os.path.realpath(pack))
                if not h.SANITIZED:
                    self.assertLessEqual(report["peak_memory_bytes"], report["budget_bytes"])

    def test_logits_with_a_pack_are_those_without(self):
        for name in MODELS:
            path, pack = self.packed(name)
            plain = self.report(path, self.budgets(path)[1], "--no-pack")
            self.assertIsNone(plain["pack"])
            self.compare(name, path, pack, plain["logits_hash"], ("uring", "threads", "mmap" if h.FULL else None))

    def test_logits_of_a_model_whose_experts_are_in_the_pack_alone(self):
        for name in ("odd", "split"):
            path, pack = self.packed(name)
            expected = self.report(path, self.budgets(path)[1], "--no-pack")["logits_hash"]
            before = sum(os.stat(s).st_blocks for s in shards_of(path))
            self.weir("pack", path, "--replace", "-q")
            self.assertLess(sum(os.stat(s).st_blocks for s in shards_of(path)), before)
            self.compare(name, path, pack, expected, ("threads", None, "mmap"))
            self.weir("verify", path)

    def test_a_run_says_which_pack_it_reads(self):
        path, pack = self.packed()
        command = [h.WEIR, "run", path, "-M", "256M", "--prompt-tokens", "1,2,3", "-n", "2", "--temp", "0"]
        self.assertIn("reading from the pack " + pack, h.run(command).err)
        self.assertIn("moe.weir", self.weir("plan", path, "-M", "256M", "--no-measure").err)
        shutil.copy(h.generated_models()["mixed"], path)
        result = h.run(command)
        self.assertEqual(result.code, h.EXIT_DONE, str(result))
        self.assertIn("not using the pack", result.err)

    def test_holes_are_never_computed_on(self):
        path, pack = self.packed("moe", "--replace")
        os.rename(pack, pack + ".away")
        for command in (["run", path, "-M", "256M", "--prompt-tokens", "1,2,3", "-n", "2"], ["plan", path, "-M", "256M"],
                        ["verify", path], ["pack", path, "--force"],
                        ["run", path, "--plain", "mmap", "--prompt-tokens", "1,2,3", "-n", "2"]):
            with self.subTest(command[0]):
                result = self.weir(*command, code=h.EXIT_FORMAT)
                self.assertIn("hole", result.err)
                self.assertIn("exps", result.err)
        os.rename(pack + ".away", pack)
        self.weir("run", path, "-M", "256M", "--prompt-tokens", "1,2,3", "-n", "2")
        self.weir("run", path, "-M", "256M", "--prompt-tokens", "1,2,3", "-n", "2", "--no-pack", code=h.EXIT_FORMAT)

    def test_a_flipped_bit_ends_a_run(self):
        path, pack = self.packed()
        shown = json.loads(self.weir("inspect", pack, "--json").out)
        expert = next(t for t in shown["tensors"] if "exps" in t["name"])
        flip(pack, expert["offset"] + 5)
        ids = ",".join(str(i) for i in range(3, 60))
        result = h.run([h.WEIR, "run", path, "-M", h.size(h.least_budget(path, CTX) + h.MIB), "-c", str(CTX),
                        "--prompt-tokens", ids, "-n", "1"])
        self.assertEqual(result.code, h.EXIT_FORMAT, str(result))
        self.assertIn("checksum", result.err)
        self.assertIn("moe.weir", result.err)


def flip(path, offset, bit=0):
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1 << bit]))


class Verify(Packs):
    def verify_fails(self, path, *says):
        result = self.weir("verify", path, code=h.EXIT_FORMAT)
        self.assertEqual(result.err.count("\n"), 1, str(result))
        for part in says:
            self.assertIn(part, result.err)
        return result.err

    def test_fields(self):
        path, pack = self.packed()
        shown = json.loads(self.weir("verify", path, "--json").out)
        self.assertEqual(list(shown), ["pack", "checkpoint", "pack_bytes", "checkpoint_bytes", "freed_bytes", "seconds"])
        self.assertEqual(shown["pack_bytes"], os.path.getsize(pack))
        self.assertEqual(shown["freed_bytes"], 0)
        os.remove(pack)
        shown = json.loads(self.weir("verify", path, "--json").out)
        self.assertIsNone(shown["pack"])

    def test_any_flipped_bit_of_a_pack_is_found(self):
        _, pack = self.packed()
        size = os.path.getsize(pack)
        tensors = json.loads(self.weir("inspect", pack, "--json").out)["tensors"]
        rng = random.Random(1)
        places = [(rng.randrange(size), rng.randrange(8)) for _ in range(60)]
        places += [(at, 3) for at in (0, 8, 12, 16, 31, 56, 64, 90, 104, 112, 119, 120, 4095, 4096, 4110, size - 1)]
        places += [(t["offset"] + t["bytes"] - 1, 7) for t in tensors if t["slices"] == 1][:10]
        places += [(t["offset"] + t["bytes"], 0) for t in tensors if t["bytes"] % 4096 and t["slices"] == 1][:10]  # padding
        for offset, bit in places:
            with self.subTest(offset=offset, bit=bit):
                flip(pack, offset, bit)
                self.verify_fails(pack, "offset" if offset > 4096 else "")
                flip(pack, offset, bit)
        self.weir("verify", pack)

    def test_the_line_names_tensor_expert_and_offset(self):
        path, pack = self.packed()
        tensors = {t["name"]: t for t in json.loads(self.weir("inspect", pack, "--json").out)["tensors"]}
        up = tensors["blk.1.ffn_up_exps.weight"]
        at = up["offset"] + 3 * up["stride"]
        flip(pack, at + 100)
        self.verify_fails(path, "moe.weir", f"offset {at}", "blk.1.ffn_up_exps.weight", "expert 3")
        flip(pack, at + 100)
        source = {t["name"]: t for t in json.loads(self.weir("inspect", path, "--json").out)["tensors"]}
        flip(path, source["output.weight"]["offset"] + 9)
        self.verify_fails(path, "moe.gguf", "output.weight")

    def test_a_pack_of_another_model_is_told_apart(self):
        path, pack = self.packed()
        shutil.copy(h.generated_models()["mixed"], path)
        self.verify_fails(path, "moe.gguf")

    def test_cut_and_foreign_files(self):
        _, pack = self.packed()
        with open(pack, "rb") as file:
            whole = file.read()
        for keep in (0, 7, 100, 4096, 5000, 20000, len(whole) - 1):
            with self.subTest(keep=keep):
                with open(pack, "wb") as file:
                    file.write(whole[:keep])
                self.weir("verify", pack, code=h.EXIT_FORMAT)
                self.weir("inspect", pack, code=h.EXIT_FORMAT)
        with open(pack, "wb") as file:
            file.write(whole + bytes(4096))
        self.weir("verify", pack, code=h.EXIT_FORMAT)
        self.assertIn("pack", self.weir("run", pack, "-M", "256M", "-p", "x", code=h.EXIT_FORMAT).err)


class Write(Packs):
    def test_the_same_model_gives_the_same_pack(self):
        path, pack = self.packed()
        with open(pack, "rb") as file:
            first = file.read()
        shown = json.loads(self.weir("pack", path, "--json").out)
        self.assertTrue(shown["up_to_date"])
        self.weir("pack", path, "--force", "-t", "1", "-q")
        with open(pack, "rb") as file:
            self.assertEqual(file.read(), first)

    def test_killed_anywhere_the_next_call_goes_on(self):
        path, pack = self.packed()
        with open(pack, "rb") as file:
            whole = file.read()
        rng = random.Random(2)
        for _ in range(12):
            os.path.exists(pack) and os.remove(pack)
            process = subprocess.Popen([h.WEIR, "pack", path, "-q"], stderr=subprocess.DEVNULL)
            time.sleep(rng.random() * 0.05)
            process.send_signal(signal.SIGKILL)
            process.wait()
            self.weir("pack", path, "-q")
            with open(pack, "rb") as file:
                self.assertEqual(file.read(), whole)
            self.assertEqual([n for n in os.listdir(self.folder) if n.endswith(".part")], [])

    def test_a_full_file_system_is_told_before_anything_is_written(self):
        """As root, in a mount namespace of its own."""
        path = self.model()
        small = os.path.join(self.folder, "small")
        os.mkdir(small)
        script = 'mount -t tmpfs -o size=2M none "$1" || exit 77; "$2" pack "$3" -o "$1/m.weir"; echo "rc $?"; ls "$1"'
        result = h.run(["unshare", "-m", "sh", "-c", script, "sh", small, h.WEIR, path])
        if "rc" not in result.out:
            self.skipTest("no file system can be mounted here")
        self.assertEqual(result.out, "rc 1\n", str(result))
        self.assertRegex(result.err, r"m.weir: \d+ bytes are needed and \d+ are free")

    def test_a_limit_on_file_sizes_leaves_nothing(self):
        path = self.model()
        limit = os.path.getsize(path) // 2
        result = h.run(["sh", "-c", f"ulimit -f {limit // 512}; exec \"$@\"", "sh", h.WEIR, "pack", path])
        self.assertEqual(result.code, h.EXIT_FAILED, str(result))
        self.assertEqual(sorted(os.listdir(self.folder)), ["moe.gguf"])

    def test_outputs_that_are_refused(self):
        path = self.model()
        other = os.path.join(self.folder, "text")
        with open(other, "w") as file:
            file.write("mine")
        for output in (path, other, self.folder):
            with self.subTest(output):
                self.weir("pack", path, "-o", output, code=h.EXIT_USAGE)
        with open(other) as file:
            self.assertEqual(file.read(), "mine")
        self.weir("pack", path, "-o", os.path.join(self.folder, "no", "such", "x.weir"), code=h.EXIT_FAILED)

    def test_a_hard_link_keeps_its_weights(self):
        path = self.model()
        os.link(path, os.path.join(self.folder, "second.gguf"))
        self.assertIn("hard links", self.weir("pack", path, "--replace", code=h.EXIT_FORMAT).err)


class Safetensors(Packs):
    DTYPES = {"F32": 4, "BF16": 2, "U8": 1, "F64": 8}

    def write(self, name, seed, prefix=""):
        """A file with misaligned tensors of many sizes; {name: bytes}."""
        rng, at, header, data = random.Random(seed), 0, {"__metadata__": {"format": "pt", "wörd": "é\u0085"}}, {}
        for i in range(40):
            dtype = rng.choice(list(self.DTYPES))
            count = rng.choice((0, 1, 3, 1024, 2048, 5000, 100003))
            raw = rng.randbytes(count * self.DTYPES[dtype])
            header[f"{prefix}t{i}"] = {"dtype": dtype, "shape": [count], "data_offsets": [at, at + len(raw)]}
            data[f"{prefix}t{i}"] = raw
            at += len(raw)
        text = json.dumps(header).encode()
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + b"".join(data.values()))
        return path, header, data

    def check(self, path, header, data):
        shown = h.run_json([h.WEIR, "inspect", path, "--json"])
        self.assertTrue(shown["aligned"])
        with open(path, "rb") as file:
            whole = file.read()
        length = struct.unpack("<Q", whole[:8])[0]
        self.assertEqual((8 + length) % 4096, 0)
        written = json.loads(whole[8:8 + length])
        self.assertEqual(written["__metadata__"], header["__metadata__"])
        for name, raw in data.items():
            first, end = written[name]["data_offsets"]
            self.assertEqual(whole[8 + length + first:8 + length + end], raw)
            self.assertEqual((8 + length + first) % min(4096, len(raw) & -len(raw) or 1), 0, name)
            self.assertEqual({**written[name], "data_offsets": 0}, {**header[name], "data_offsets": 0})

    def test_a_file(self):
        path, header, data = self.write("a.safetensors", 3)
        out = os.path.join(self.folder, "b.safetensors")
        self.weir("pack", path, "-o", out, "-q")
        self.check(out, header, data)
        self.weir("verify", out)
        self.weir("pack", path, code=h.EXIT_USAGE)
        self.weir("pack", path, "-o", path, code=h.EXIT_USAGE)

    def test_a_set(self):
        shards = [self.write(f"{n}.safetensors", i, n) for i, n in enumerate("xy")]
        index = {"metadata": {"total_size": 1}, "weight_map": {t: os.path.basename(p) for p, _, d in shards for t in d}}
        path = os.path.join(self.folder, "m.safetensors.index.json")
        with open(path, "w") as file:
            json.dump(index, file)
        out = os.path.join(self.folder, "out")
        self.weir("pack", path, "-o", out, "-q")
        for shard, header, data in shards:
            self.check(os.path.join(out, os.path.basename(shard)), header, data)
        self.assertEqual(len(h.run_json([h.WEIR, "inspect", out, "--json"])["tensors"]), 80)
        self.weir("pack", path, "-o", self.folder, code=h.EXIT_USAGE)

    def test_an_empty_file(self):
        path = os.path.join(self.folder, "a.safetensors")
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", 2) + b"{}")
        self.weir("pack", path, "-o", path + ".out.safetensors", "-q")
        self.assertEqual(os.path.getsize(path + ".out.safetensors"), 4096)


class Plugin(test_stock.Stock):
    """An unmodified llama-bench reads from the pack that lies beside its model."""

    def choose_model(self):
        return shutil.copy(h.generated_models()["moe"], self.folder)

    def test_the_pack_is_used_and_holes_are_refused(self):
        h.run([h.WEIR, "pack", self.model, "--replace", "-q"])
        pack = os.path.join(self.folder, "moe.weir")
        result = self.bench(self.budget(), "-p", "8", "-n", "4")
        self.assertEqual(result.code, h.EXIT_DONE, str(result))
        self.assertEqual(os.path.realpath(self.check_report(self.budget())["pack"]), os.path.realpath(pack))
        away = os.path.join(self.folder, "elsewhere")
        os.rename(pack, away)
        result = self.bench(self.budget(), "-p", "8", "-n", "4", WEIR_PACK=away)
        self.assertEqual(result.code, h.EXIT_DONE, str(result))
        result = self.bench(self.budget(), "-p", "8", "-n", "4")
        self.assertNotEqual(result.code, h.EXIT_DONE, str(result))
        self.assertIn("hole", result.err)


if __name__ == "__main__":
    unittest.main()
