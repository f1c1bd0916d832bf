#!/usr/bin/env python3
"""`weir inspect`: the fields of its JSON, its exit codes, and that nothing raw from a file reaches the output."""
import json
import os
import re
import struct
import tempfile
import unittest

import harness as h

FIELDS = ["format", "version", "architecture", "files", "tensors", "tensor_bytes", "metadata", "aligned"]
TENSOR_FIELDS = ["name", "dtype", "shape", "file", "offset", "bytes"]
RAW = re.compile(rb"[\x00-\x09\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xef\xbf\xbd")  # last: how the harness shows stray bytes
HOSTILE = [b"\x1b]0;owned\x07", b"a\nb\rc", b"\x7f\x08", "\u009b2J\u0085".encode(), b"\x9b\xff\xfe", "слой.模型".encode()]
UINT32, STRING, ARRAY, F32 = 4, 8, 9, 0


def string(data):
    return struct.pack("<Q", len(data)) + data


def text_entry(key, value):
    return string(key) + struct.pack("<I", STRING) + string(value)


def numbers_entry(key, values):
    return string(key) + struct.pack(f"<IIQ{len(values)}I", ARRAY, UINT32, len(values), *values)


def gguf(entries, names):
    """A GGUF file with these metadata entries, and one F32 tensor of 2 × 3 for each name."""
    infos = [string(name) + struct.pack("<IQQIQ", 2, 2, 3, F32, 32 * i) for i, name in enumerate(names)]
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(infos), len(entries)) + b"".join(entries) + b"".join(infos)
    return head + bytes(-len(head) % 32) + bytes(32 * len(names))


def safetensors(header, data):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


class Inspect(unittest.TestCase):
    def setUp(self):
        if not h.WEIR:
            raise unittest.SkipTest("WEIR_BIN is not set and the build folder does not hold the program")
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = holder.name

    def write(self, name, content):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(content)
        return path

    def inspect(self, path):
        shown = h.run_json([h.WEIR, "inspect", "--json", path])
        self.assertEqual(list(shown), FIELDS)
        for tensor in shown["tensors"]:
            self.assertEqual(list(tensor), TENSOR_FIELDS)
        return shown

    def refused(self, path, code, *says):
        for options in ([], ["--json"]):
            result = h.run([h.WEIR, "inspect", *options, path])
            self.assertEqual((result.code, result.out, result.err.count("\n")), (code, "", 1), str(result))
            for part in says:
                self.assertIn(part, result.err)

    def test_fields_of_a_gguf(self):
        path = self.write("m.gguf", gguf([text_entry(b"general.architecture", b"llama")], [b"a", b"b"]))
        shown = self.inspect(path)
        self.assertEqual((shown["format"], shown["version"], shown["architecture"]), ("gguf", 3, "llama"))
        self.assertEqual(shown["files"], [{"path": path, "bytes": os.path.getsize(path)}])
        self.assertEqual((shown["tensor_bytes"], shown["aligned"]), (48, True))
        data = os.path.getsize(path) - 64
        self.assertEqual(shown["tensors"][1],
                         {"name": "b", "dtype": "F32", "shape": [2, 3], "file": 0, "offset": data + 32, "bytes": 24})

    def test_long_arrays_are_shortened_with_their_count(self):
        entries = [numbers_entry(b"long", range(1000)), numbers_entry(b"short", range(3))]
        metadata = self.inspect(self.write("m.gguf", gguf(entries, [])))["metadata"]
        self.assertEqual(metadata["short"], [0, 1, 2])
        self.assertEqual(metadata["long"], {"type": "uint32", "count": 1000, "first": list(range(8))})

    def test_fields_of_sharded_safetensors(self):
        entry = {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}
        for name in "ab":
            self.write(f"{name}.safetensors", safetensors({name: entry}, bytes(12)))
        index = {"metadata": {"total_size": 1}, "weight_map": {"a": "a.safetensors", "b": "b.safetensors"}}
        path = self.write("model.safetensors.index.json", json.dumps(index).encode())
        for target in (path, self.folder):
            shown = self.inspect(target)
            self.assertEqual((shown["format"], shown["version"], shown["architecture"]), ("safetensors", None, None))
            self.assertEqual([(t["name"], t["file"], t["shape"]) for t in shown["tensors"]], [("a", 0, [2, 3]), ("b", 1, [2, 3])])
        os.remove(os.path.join(self.folder, "b.safetensors"))
        self.refused(path, h.EXIT_FORMAT, "b.safetensors", "missing")

    def test_nothing_raw_reaches_the_output(self):
        entries = [text_entry(b"general.architecture", HOSTILE[0])] + [text_entry(b"k" + name, name) for name in HOSTILE]
        path = self.write("m.gguf", gguf(entries, HOSTILE))
        for options in ([], ["--json"]):
            out = h.run([h.WEIR, "inspect", *options, path]).out.encode()
            self.assertIsNone(RAW.search(out), RAW.search(out))
        names = [tensor["name"] for tensor in self.inspect(path)["tensors"]]
        self.assertEqual(names[0], HOSTILE[0].decode())
        self.assertEqual(names[4], r"\x9b\xff\xfe")
        self.assertEqual(names[5], HOSTILE[5].decode())

    def test_nothing_raw_reaches_the_error_line(self):
        for name in HOSTILE[:5]:
            path = self.write("m.gguf", gguf([], [name, name]))
            result = h.run([h.WEIR, "inspect", path])
            self.assertEqual((result.code, result.err.count("\n")), (h.EXIT_FORMAT, 1), str(result))
            self.assertIsNone(RAW.search(result.err.encode()), result.err)
            self.assertIn("occurs twice", result.err)

    def test_exit_codes(self):
        self.refused(self.write("cut.gguf", gguf([], [b"a"])[:-40]), h.EXIT_FORMAT, "cut.gguf", "tensor 'a'")
        self.refused(self.write("page.gguf", b"<html>"), h.EXIT_FORMAT, "page.gguf", "GGUF")
        self.refused(self.write("text", b"text"), h.EXIT_FORMAT, "text")
        self.refused(self.folder + "/nosuch.gguf", h.EXIT_FAILED, "nosuch.gguf")
        os.mkfifo(os.path.join(self.folder, "fifo.gguf"))
        self.refused(os.path.join(self.folder, "fifo.gguf"), h.EXIT_FORMAT, "FIFO")
        self.assertEqual(h.run([h.WEIR, "inspect"]).code, h.EXIT_USAGE)


if __name__ == "__main__":
    unittest.main()
