#!/usr/bin/env python3
"""weir.save_safetensors: legal, aligned, the same values, whole or not there, safe over a file that is mapped."""
import json
import os
import resource
import signal
import subprocess
import sys
import unittest

import numpy as np
import support
import weir

sys.path.insert(0, os.path.join(support.ROOT, "tests", "program"))
import harness as h  # noqa: E402

PAGE = 4096


class Save(support.Folder):
    def save(self, tensors, metadata=None, name="out.safetensors"):
        weir.save_safetensors(self.path(name), tensors, metadata)
        return weir.open(self.path(name))

    def test_values_and_alignment(self):
        rng = np.random.default_rng(3)
        tensors = {"odd": rng.integers(0, 9, 7, dtype=np.int8), "f32": rng.random((3, 5), dtype=np.float32),
                   "pages": rng.random((2, PAGE), dtype=np.float32), "f16": rng.random(5).astype(np.float16),
                   "f64": rng.random((2, 3)), "flags": np.array([True, False, True]), "c64": np.ones(3, np.complex64),
                   "empty": np.zeros((0, 3), np.float64), "scalar": np.float32(2.5).reshape(()), "слой": np.arange(4),
                   "turned": np.arange(6.0).reshape(2, 3).T, "big": np.arange(5, dtype=">i4")}
        checkpoint = self.save(tensors, {"format": "np", "note": "ein Wörtchen"})
        self.assertEqual(set(checkpoint), set(tensors))
        self.assertEqual(checkpoint.metadata, {"format": "np", "note": "ein Wörtchen"})
        self.assertTrue(checkpoint.aligned)
        self.assertEqual(checkpoint["pages"].offset % PAGE, 0)
        self.assertEqual(min(info.offset for info in checkpoint.values()) % PAGE, 0)
        for name, expected in tensors.items():
            with self.subTest(name):
                view = checkpoint.view(name, copy=False)
                self.assertFalse(view.copied)
                self.assertEqual(view.shape, expected.shape)
                self.assertTrue(np.array_equal(view.numpy(), expected))

    def test_it_is_legal(self):
        """By the program's own strict reader, and by the format's rules: no holes, offsets in order, the file covered."""
        self.save({"a": np.arange(5, dtype=np.uint8), "b": np.arange(9, dtype=np.int64)})
        with open(self.path("out.safetensors"), "rb") as file:
            content = file.read()
        length = int.from_bytes(content[:8], "little")
        self.assertEqual((length + 8) % PAGE, 0)
        header = json.loads(content[8:8 + length])
        spans = sorted(entry["data_offsets"] for entry in header.values())
        self.assertEqual([span[0] for span in spans] + [len(content) - 8 - length], [0] + [span[1] for span in spans])
        if h.WEIR:
            self.assertTrue(h.run_json([h.WEIR, "inspect", self.path("out.safetensors"), "--json"])["aligned"])

    def test_bit_types_pass_through(self):
        """Views keep types that NumPy lacks."""
        raw = np.arange(64, dtype="u2").tobytes()
        support.write_safetensors(self.path("in.safetensors"), {"x": ("U8", (3,), b"abc"), "b": ("BF16", (4, 16), raw),
                                                                "e": ("F8_E4M3", (128,), raw)})
        source = weir.open(self.path("in.safetensors"))
        self.assertFalse(source.aligned)
        saved = self.save({name: source.view(name, copy=True) for name in source})
        self.assertEqual({n: (i.dtype, i.shape) for n, i in saved.items()}, {n: (i.dtype, i.shape) for n, i in source.items()})
        self.assertTrue(saved.aligned)
        self.assertEqual(saved.numpy("b").tobytes(), raw)

    def test_over_the_file_itself(self):
        """The views that are saved keep their bytes, and so does the new file."""
        first = self.save({"a": np.arange(5000.0), "b": np.arange(3.0)})
        views = {name: first.view(name) for name in first}
        self.save(views, {"again": "yes"})
        again = weir.open(self.path("out.safetensors"))
        self.assertEqual(again.metadata, {"again": "yes"})
        for name, view in views.items():
            self.assertTrue(np.array_equal(view.numpy(), again.numpy(name)))
        self.assertEqual(again.numpy("a").tolist(), list(range(5000)))
        with self.assertRaises(weir.ChangedError):
            first.numpy("a")
        self.assertEqual(os.listdir(self.folder), ["out.safetensors"])

    def test_refusals(self):
        path = self.path("out.safetensors")
        cases = ((weir.DtypeError, {"a": np.array(["text"])}, None), (weir.DtypeError, {"a": np.zeros(2, np.complex128)}, None),
                 (weir.InvalidArgumentError, {"a": [1, 2]}, None), (weir.InvalidArgumentError, {"__metadata__": np.zeros(2)}, None),
                 (weir.InvalidArgumentError, {3: np.zeros(2)}, None), (weir.InvalidArgumentError, {}, {"n": 1}),
                 (weir.InvalidArgumentError, {"\ud800": np.zeros(1)}, None), (weir.InvalidArgumentError, [np.zeros(1)], None),
                 (weir.InvalidArgumentError, {"a": np.zeros(1)}, "note"))
        for number, (kind, tensors, metadata) in enumerate(cases):
            with self.subTest(number), self.assertRaises(kind):
                weir.save_safetensors(path, tensors, metadata)
        with self.assertRaises(weir.NotFoundError):
            weir.save_safetensors(self.path("no/where"), {"a": np.zeros(1)})
        with self.assertRaises(weir.NotRegularFileError):
            weir.save_safetensors(self.folder, {"a": np.zeros(1)})
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_write_that_fails_leaves_nothing(self):
        """The process's limit on file sizes stands for a full drive: the old file stays, and nothing lies beside it."""
        self.save({"a": np.arange(10)})
        program = ("import numpy, weir, sys\n"
                   "try: weir.save_safetensors(sys.argv[1], {'a': numpy.zeros(1 << 20)})\n"
                   "except weir.InputOutputError as problem: print(problem.errno)")

        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

        done = subprocess.run([sys.executable, "-c", program, self.path("out.safetensors")], capture_output=True, text=True,
                              preexec_fn=limit, check=False)
        self.assertEqual(done.stdout.strip(), "27", done.stderr)
        self.assertEqual(os.listdir(self.folder), ["out.safetensors"])
        self.assertEqual(weir.open(self.path("out.safetensors")).numpy("a").tolist(), list(range(10)))


if __name__ == "__main__":
    unittest.main()
