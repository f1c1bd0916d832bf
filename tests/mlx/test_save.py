#!/usr/bin/env python3
"""weir.save_safetensors of MLX arrays: mlx.load reads the same, and every tensor is mapped in place."""
import os
import shutil
import subprocess
import tempfile
import unittest

import mlx.core as mx
import support
import tiny_models
import weir
import weir.mlx
from cases import Q4, equal, logits

TENSORS = {"bf16": mx.arange(6).astype(mx.bfloat16).reshape(2, 3), "flags": mx.array([True, False]),
           "turned": mx.arange(6.0).reshape(2, 3).T, "empty": mx.zeros((0, 2)), "scalar": mx.array(3, mx.int16),
           "complex": mx.array([1 + 2j]), "odd": mx.array([1, 2, 3], mx.uint8)}


class Save(unittest.TestCase):
    def test_round_trip(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a.safetensors")
            weir.save_safetensors(path, TENSORS, {"format": "mlx"})
            checkpoint, loaded = weir.open(path), mx.load(path)
            self.assertTrue(checkpoint.aligned)
            self.assertEqual(set(loaded), set(TENSORS))
            for name, expected in TENSORS.items():
                for found in (checkpoint.mlx(name), loaded[name]):
                    with self.subTest(name):
                        self.assertEqual((found.dtype, found.shape), (expected.dtype, expected.shape))
                        self.assertTrue(mx.array_equal(found, expected).item())

    def test_a_packed_model_maps_in_place(self):
        program = os.path.join(os.environ.get("WEIR_BUILD_DIR") or os.path.join(support.ROOT, "build"), "weir")
        if not os.path.exists(program):
            self.skipTest("no program")
        with tempfile.TemporaryDirectory() as folder:
            old = tiny_models.make(os.path.join(folder, "old"), "qwen3_moe", quantization=Q4, dtype=mx.bfloat16, aligned=False)
            new = os.path.join(folder, "new")
            os.mkdir(new)
            shutil.copy(os.path.join(old, "config.json"), new)
            subprocess.run([program, "pack", os.path.join(old, "model.safetensors"), "-o", os.path.join(new, "model.safetensors")],
                           check=True, capture_output=True, stdin=subprocess.DEVNULL)
            models = [weir.mlx.load_model(path)[0] for path in (old, new)]
            self.assertTrue(equal(*map(logits, models)))
            self.assertEqual(weir.mlx.stats(models[1]).copied, [])


if __name__ == "__main__":
    unittest.main()
