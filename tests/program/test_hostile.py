#!/usr/bin/env python3
"""Models that are well formed, or nearly, and make no sense: `weir run` and `weir plan` end with an exit code, never a signal.

weir's own reader checks what the format demands; the engine then asserts what it believes of a model.  Here metadata and
tensors of small models are changed at random, with the header rebuilt around them so that most files still pass the reader.
Every run must end by itself within a time and an address space, with one of the documented exit codes, and a failure must say
so in one line.  WEIR_TEST_FULL=1 tries thousands.
"""
import os
import random
import resource
import struct
import subprocess
import tempfile
import unittest

import harness as h

g = h.gguf_file

FILES = 3000 if h.FULL else 60
ADDRESS_SPACE = 24 << 30
TIMEOUT = 60
CODES = {0, 1, 2, 3, 4}
NUMBERS = (0, 1, 2, 3, 7, 8, 31, 32, 33, 63, 64, 255, 256, 257, 512, 1000, 4096, 65535, 65536, 1 << 20, (1 << 24) + 1, 1 << 30,
           (1 << 31) - 1, 1 << 31, (1 << 32) - 1)
LENGTHS = (0, 1, 2, 3, 31, 32, 33, 64, 96, 128, 256, 257, 512, 4096, 1 << 20, (1 << 31) - 1, 1 << 32, (1 << 63) - 1)
REALS = (0.0, -1.0, 1e-30, 1e30, float("inf"), float("-inf"), float("nan"))
BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 12: (256, 144), 14: (256, 210),
          24: (1, 1), 26: (1, 4), 27: (1, 8), 28: (1, 8), 30: (1, 2), 39: (32, 17)}  # type: elements and bytes of a block
TEXTS = (b"", b"llama", b"gpt2", b"bert", b"qwen2", b"none", b"no_vocab", b"mamba", b"clip", b"t5", b"default", b"\xff\xfe",
         b"a" * 5000, b"{% for m in messages %}{{ m.content }}", b"yarn", b"linear", b"rwkv", b"deepseek2", b"gemma3", b"phi3")


class Model:
    """A GGUF file taken apart: metadata entries, tensors, data."""

    def __init__(self, path):
        with open(path, "rb") as file:
            cursor = g._Cursor(file)
            cursor.take(8)
            tensors, entries = cursor.number("<Q"), cursor.number("<Q")
            self.entries = [self._entry(cursor) for _ in range(entries)]
            self.tensors = [self._tensor(cursor) for _ in range(tensors)]
            file.seek(-(-file.tell() // 32) * 32)
            self.data = file.read()

    @staticmethod
    def _entry(cursor):
        key, kind = cursor.take(cursor.number("<Q")), cursor.number("<I")
        return [key, kind, cursor.value(kind)[0]]

    @staticmethod
    def _tensor(cursor):
        name = cursor.take(cursor.number("<Q"))
        dims = [cursor.number("<Q") for _ in range(cursor.number("<I"))]
        return [name, dims, cursor.number("<I"), cursor.number("<Q")]

    def lay_out(self, alignment=32, most=32 * h.MIB):
        """Offsets as the engine wants them, one tensor after the other, for what the dimensions and types are now."""
        at = 0
        for tensor in self.tensors:
            elements = 1
            for length in tensor[1]:
                elements *= length
            block, size = BLOCKS.get(tensor[2], (32, 18))
            tensor[3] = at % (1 << 64)
            at = -(-(at + elements // block * size) // alignment) * alignment
        self.data += bytes(max(0, min(at, most) - len(self.data)))

    def write(self, path, alignment=32):
        head = g.MAGIC + struct.pack("<IQQ", g.VERSION, len(self.tensors), len(self.entries))
        head += b"".join(g._string(k) + struct.pack("<I", kind) + raw for k, kind, raw in self.entries)
        for name, dims, kind, offset in self.tensors:
            head += g._string(name) + struct.pack(f"<I{len(dims)}Q", len(dims), *dims) + struct.pack("<IQ", kind, offset)
        with open(path, "wb") as file:
            file.write(head + bytes(-len(head) % alignment) + self.data)


def change_value(rng, entry):
    """Another value of the same type, or of another."""
    _, kind, raw = entry
    if kind == g.STRING:
        text = rng.choice(TEXTS)
        entry[2] = g._string(text)
    elif kind == g.ARRAY:
        change_array(rng, entry)
    elif kind == g.F32:
        entry[2] = struct.pack("<f", rng.choice(REALS))
    else:
        size = len(raw)
        number = rng.choice((rng.choice(NUMBERS), int.from_bytes(raw, "little") + rng.choice((-1, 1)),
                             int.from_bytes(raw, "little") * 2))
        entry[2] = (number % (1 << 8 * size)).to_bytes(size, "little")


def change_array(rng, entry):
    """Fewer elements, other numbers, or another element type altogether."""
    element, count = struct.unpack("<IQ", entry[2][:12])
    size = g._SCALAR_BYTES.get(element)
    body = bytearray(entry[2][12:])
    if size is None or rng.random() < 0.3:
        entry[2] = struct.pack("<IQ", rng.choice((4, 5, 6)), 3) + struct.pack("<3I", *rng.choices(NUMBERS, k=3))
        return
    if rng.random() < 0.5 and count:
        keep = rng.randrange(count)
        entry[2] = struct.pack("<IQ", element, keep) + bytes(body[:keep * size])
        return
    for _ in range(min(count, 8)):
        at = rng.randrange(count) * size
        body[at:at + size] = (rng.choice(NUMBERS) % (1 << 8 * size)).to_bytes(size, "little")
    entry[2] = struct.pack("<IQ", element, count) + bytes(body)


def change_entry(rng, model):
    entry = rng.choice(model.entries)
    what = rng.random()
    if what < 0.75:
        change_value(rng, entry)
    elif what < 0.85:
        model.entries.remove(entry)
    elif what < 0.95:
        entry[1], entry[2] = rng.choice(((g.U32, struct.pack("<I", rng.choice(NUMBERS))), (g.BOOL, b"\1"),
                                         (g.STRING, g._string(rng.choice(TEXTS))), (g.F32, struct.pack("<f", rng.choice(REALS)))))
    else:
        entry[0] = rng.choice(model.entries)[0] + rng.choice((b"", b"x", b"_exps"))


def change_tensor(rng, model):
    tensor = rng.choice(model.tensors)
    what = rng.random()
    if what < 0.35:
        tensor[2] = rng.choice((0, 1, 2, 3, 6, 7, 8, 12, 14, 16, 20, 24, 26, 27, 28, 30, 39, 41, rng.randrange(64)))
    elif what < 0.6 and tensor[1]:
        tensor[1][rng.randrange(len(tensor[1]))] = rng.choice(LENGTHS)
    elif what < 0.7:
        rng.shuffle(tensor[1])
    elif what < 0.75:
        tensor[1] = tensor[1] + [rng.choice((1, 2))] if rng.random() < 0.5 else tensor[1][:-1]
    elif what < 0.85:
        other = rng.choice(model.tensors)
        tensor[1:], other[1:] = other[1:], tensor[1:]
    elif what < 0.93:
        model.tensors.remove(tensor)
    else:
        tensor[0] = rng.choice((tensor[0] + b"x", b"output.weight", b"rope_freqs.weight", b"\x1b[2J", b"", b"n" * 70))


def change(rng, model):
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        (change_entry if rng.random() < 0.7 else change_tensor)(rng, model)
    if rng.random() < 0.7:
        model.lay_out()
    if rng.random() < 0.05:
        model.entries.append([b"general.alignment", g.U32, struct.pack("<I", rng.choice((1, 2, 4, 8, 16, 64, 1 << 20)))])


def limit():
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Hostile(unittest.TestCase):
    def setUp(self):
        h.need_programs()

    def check(self, path, command):
        env = {**os.environ, "OMP_WAIT_POLICY": "passive", "GGML_NO_BACKTRACE": "1"}
        process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   preexec_fn=None if h.SANITIZED else limit)
        output = h._finish(process, TIMEOUT)
        self.assertIsNotNone(output, f"no end after {TIMEOUT} s")
        err = output[1].decode(errors="replace")
        self.assertIn(process.returncode, CODES, err[-1500:])
        if process.returncode:
            lines = err.splitlines()
            self.assertEqual(len(lines), 1, err[-1500:])
            self.assertTrue(lines[0].startswith("weir "), err[-1500:])
        if process.returncode == h.EXIT_FORMAT:
            self.assertIn(os.path.basename(path), err)

    def models(self):
        paths = {name: path for name, path in h.generated_models().items() if name in ("moe", "dense", "biased")}
        paths.update((n, p) for n, p in h.given_models()[0].items() if os.path.getsize(p) < 10 * h.MIB)
        return [paths[name] for name in sorted(paths)]

    def test_changed_models(self):
        rng = random.Random(int(os.environ.get("WEIR_TEST_SEED", "1")))
        paths = self.models()
        with tempfile.TemporaryDirectory(dir=os.path.dirname(h.WEIR)) as folder:
            for number in range(FILES):
                model = Model(rng.choice(paths))
                change(rng, model)
                path = os.path.join(folder, f"{number}.gguf")
                model.write(path)
                more = ["--prompt-tokens", "1,2,3,4,5"] if rng.random() < 0.5 else ["-p", "Hello, world"]
                base = [h.WEIR, "run", path, "-M", "300M", "-n", "3", "-c", "64", "-t", "1", "-q", "--json", *more]
                if rng.random() < 0.15:
                    base = [h.WEIR, "plan", path, "-M", "300M", "-q", "--no-measure"]
                with self.subTest(number):
                    self.check(path, base)
                os.unlink(path)

    def test_an_assertion_of_the_engine_is_an_exit_code(self):
        """The engine maps tensors at multiples of 32 bytes only, and asserts it."""
        path = h.generated_models()["moe-align8"]
        self.check(path, [h.WEIR, "run", path, "-M", "300M", "-n", "2", "--prompt-tokens", "1,2", "-q"])


if __name__ == "__main__":
    unittest.main()
