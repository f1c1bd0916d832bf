#!/usr/bin/env python3
"""weir.save_safetensors of MLX arrays: mlx.load reads the same, and every tensor is mapped in place."""
import os
import tempfile
import unittest

import mlx.core as mx
import weir
import weir.mlx

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


if __name__ == "__main__":
    unittest.main()
