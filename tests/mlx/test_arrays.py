#!/usr/bin/env python3
"""weir.mlx.mmap_weights: every type, never written to, nothing leaks, swapped while in use, errors with names."""
import gc
import os
import threading
import unittest
import warnings

import mlx.core as mx
import numpy as np
import support
import weir
import weir.mlx
from weir.mlx import _shim

DTYPES = (mx.bool_, mx.uint8, mx.uint16, mx.uint32, mx.uint64, mx.int8, mx.int16, mx.int32, mx.int64, mx.float16, mx.bfloat16,
          mx.float32, mx.float64, mx.complex64)
CYCLES = 2512


def sample(dtype, shape=(3, 5)):
    values = mx.arange(int(np.prod(shape)), stream=mx.cpu).reshape(shape)
    array = (values % 2 == 0) if dtype == mx.bool_ else (values % 100 + 1).astype(dtype, stream=mx.cpu)
    mx.eval(array)
    return array


def write(path, array, offset=4096):
    """The array's bytes, at an offset in a file."""
    bits = array.view(mx.uint16) if array.dtype == mx.bfloat16 else array
    with open(path, "wb") as file:
        file.truncate(offset)
        file.seek(offset)
        file.write(np.array(bits).tobytes())
    return path


def same(left, right):
    return left.dtype == right.dtype and left.shape == right.shape and bool(mx.array_equal(left, right, stream=mx.cpu).item())


class Values(support.Folder):
    def test_each_type(self):
        for dtype in DTYPES:
            with self.subTest(dtype):
                array = sample(dtype)
                mapped = weir.mlx.mmap_weights(write(self.path("x"), array), 4096, array.shape, dtype)
                self.assertTrue(same(mapped, array))
                self.assertEqual(_shim.shim().inspect(mapped).data % 4096, 0, "not at the start of a page: a copy")

    def test_each_type_equals_mx_load(self):
        for dtype in (d for d in DTYPES if d != mx.float64):
            with self.subTest(dtype):
                path = self.path("x.safetensors")
                mx.save_safetensors(path, {"x": sample(dtype, (4, 8))})
                with weir.open(path) as checkpoint, warnings.catch_warnings():
                    warnings.simplefilter("ignore", weir.CopyWarning)
                    self.assertTrue(same(checkpoint.mlx("x"), mx.load(path)["x"]))

    def test_shapes(self):
        path = write(self.path("x"), sample(mx.int32, (4, 6)))
        for shape in ((24,), (2, 3, 4), 24, (1, 24, 1), ()):
            with self.subTest(shape):
                mapped = weir.mlx.mmap_weights(path, 4096, shape, mx.int32)
                wanted = (24,) if shape == 24 else shape
                self.assertEqual(mapped.shape, wanted)
                self.assertEqual(mapped.flatten().tolist(), list(range(1, int(np.prod(wanted)) + 1)))
        self.assertEqual(weir.mlx.mmap_weights(path, 4096, (0, 3), mx.int32).shape, (0, 3))

    def test_names_of_types(self):
        path = write(self.path("x"), sample(mx.bfloat16))
        for name in ("BF16", "bfloat16", mx.bfloat16):
            self.assertEqual(weir.mlx.mmap_weights(path, 4096, (3, 5), name).dtype, mx.bfloat16)
        self.assertEqual(weir.mlx.mmap_weights(path, 4096, (8,), "F8_E4M3").dtype, mx.uint8)

    def test_misaligned_is_copied_and_said_so(self):
        array = sample(mx.float32)
        path = write(self.path("x"), array, offset=4097)
        with self.assertWarnsRegex(weir.CopyWarning, "60 bytes were copied"):
            mapped = weir.mlx.mmap_weights(path, 4097, array.shape, mx.float32)
        self.assertTrue(same(mapped, array))

    def test_products_are_those_of_loaded_weights(self):
        mx.random.seed(1)
        weight = mx.random.normal((4, 32, 64))
        x, rows = mx.random.normal((3, 1, 64)), mx.array([2, 0, 3], mx.uint32)
        for settings in ({"group_size": 32, "bits": 4}, {"group_size": 64, "bits": 8}):
            parts = mx.quantize(weight, **settings)
            mapped = [weir.mlx.mmap_weights(write(self.path(str(i)), part), 4096, part.shape, part.dtype)
                      for i, part in enumerate(parts)]
            self.assertTrue(same(mx.gather_qmm(x, *mapped, rhs_indices=rows, transpose=True, **settings),
                                 mx.gather_qmm(x, *parts, rhs_indices=rows, transpose=True, **settings)))
            self.assertTrue(same(mx.quantized_matmul(x[0], *(m[1] for m in mapped), transpose=True, **settings),
                                 mx.quantized_matmul(x[0], *(p[1] for p in parts), transpose=True, **settings)))
        mapped = weir.mlx.mmap_weights(write(self.path("w"), weight), 4096, weight.shape, mx.float32)
        self.assertTrue(same(x @ mapped[0].T, x @ weight[0].T))


class Lifetime(support.Folder):
    def test_cycles_leave_nothing(self):
        array = sample(mx.float32, (64, 64))
        path = write(self.path("x"), array)
        before_hash, total = support.sha256_of(path), float(mx.sum(array).item())

        def cycle():
            mapped = weir.mlx.mmap_weights(path, 4096, (64, 64), mx.float32)
            return float(mx.sum(mapped).item())

        for _ in range(200):
            cycle()
        gc.collect()
        before = support.mappings_count(), support.descriptors_count(), support.status("RssAnon")
        for _ in range(CYCLES):
            self.assertEqual(cycle(), total)
        gc.collect()
        self.assertLessEqual(support.mappings_count(), before[0] + 2)
        self.assertEqual(support.descriptors_count(), before[1])
        self.assertLess(support.status("RssAnon") - before[2], 2 << 20)
        self.assertEqual(support.sha256_of(path), before_hash)

    def test_failures_leave_nothing(self):
        path = write(self.path("x"), sample(mx.float32))
        before = support.mappings_count(), support.descriptors_count()
        for number in range(CYCLES):
            with self.assertRaises(weir.InvalidArgumentError):
                weir.mlx.mmap_weights(path, 4096, (16 + number,), mx.float32)
        gc.collect()
        self.assertLessEqual(support.mappings_count(), before[0] + 2)
        self.assertEqual(support.descriptors_count(), before[1])

    def test_the_array_outlives_what_made_it(self):
        array = sample(mx.float32)
        path = write(self.path("x"), array)
        view = weir.mlx.mmap_weights(path, 4096, array.shape, mx.float32)[1]
        os.unlink(path)
        gc.collect()
        self.assertTrue(same(view, array[1]))

    def test_mapping_takes_no_memory(self):
        path = self.path("big")
        with open(path, "wb") as file:
            file.truncate(256 << 20)
        weir.mlx.mmap_weights(path, 0, (16,), mx.float32)
        before = support.status("RssAnon")
        mapped = weir.mlx.mmap_weights(path, 0, (64 << 20,), mx.float32)
        self.assertEqual(float(mx.max(mapped).item()), 0.0)
        self.assertLess(support.status("RssAnon") - before, 4 << 20)
        with open("/proc/self/smaps", encoding="ascii", errors="replace") as lines:
            block = lines.read().split(path)[1].split("VmFlags")[0]
        self.assertIn("Private_Dirty:         0 kB", block)

    def test_swapped_while_evaluations_are_in_flight(self):
        arrays = [sample(mx.float32, (128, 128)), sample(mx.float32, (128, 128)) * 3]
        paths = [write(self.path(str(i)), array) for i, array in enumerate(arrays)]
        x = mx.ones((64, 128))
        wanted = [x @ array for array in arrays]
        mx.eval(wanted)
        held = None
        for number in range(100):
            held = weir.mlx.mmap_weights(paths[number % 2], 4096, (128, 128), mx.float32)
            result = x @ held
            mx.async_eval(result)
            held = None
            self.assertTrue(same(result, wanted[number % 2]))

    def test_threads(self):
        array = sample(mx.int32, (64, 8))
        path = write(self.path("x"), array)
        wrong = []

        def work():
            for _ in range(50):
                mapped = weir.mlx.mmap_weights(path, 4096, (64, 8), mx.int32)
                if np.array(mapped).sum() != np.array(array).sum():
                    wrong.append(1)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


class Errors(support.Folder):
    def test_bad_arguments(self):
        path = write(self.path("x"), sample(mx.float32))
        os.mkfifo(self.path("fifo"))
        for kind, arguments in (
                (weir.NotFoundError, (self.path("absent"), 0, (1,), mx.float32)),
                (weir.NotRegularFileError, (self.path("fifo"), 0, (1,), mx.float32)),
                (weir.NotRegularFileError, (self.folder, 0, (1,), mx.float32)),
                (weir.InvalidArgumentError, (path, 4096, (4096,), mx.float32)),
                (weir.InvalidArgumentError, (path, 1 << 62, (1 << 30, 1 << 30, 1 << 30), mx.float32)),
                (weir.InvalidArgumentError, (path, -4, (1,), mx.float32)),
                (weir.InvalidArgumentError, (path, 0, (-1,), mx.float32)),
                (weir.InvalidArgumentError, (path, 0.5, (1,), mx.float32)),
                (weir.DtypeError, (path, 0, (1,), "float12")),
                (weir.DtypeError, (path, 0, (1,), None))):
            with self.subTest(arguments), self.assertRaises(kind) as caught:
                weir.mlx.mmap_weights(*arguments)
            self.assertTrue(str(caught.exception))

    def test_versions(self):
        for version in ("0.32.3", "0.31.9", "0.9.0"):
            with self.assertRaisesRegex(weir.mlx.ShimError, "needs 0.32.4 or later"):
                _shim.check_version(version)
        for version in ("0.32.4", "0.32.4.dev20260101+abc", "0.33.0", "1.0.0"):
            _shim.check_version(version)

    def test_what_is_not_installed(self):
        path = write(self.path("x"), sample(mx.float32))
        for missing, call in (("mlx.core", "weir.mlx.mmap_weights(sys.argv[1], 0, (1,), 'F32')"),
                              ("mlx_lm", "weir.mlx.load(sys.argv[1])")):
            with self.subTest(missing):
                found = support.python(f"import sys; sys.modules['{missing}'] = None; import weir.mlx; {call}", path)
                self.assertRegex(found.stderr, "ShimError: .* is not installed .*pip install")

    def test_no_compiler(self):
        found = support.python("import weir.mlx, mlx.core as mx, sys; weir.mlx.mmap_weights(sys.argv[1], 0, (1,), mx.float32)",
                               write(self.path("x"), sample(mx.float32)), XDG_CACHE_HOME=self.path("cache"), PATH=self.folder)
        self.assertIn("ShimError", found.stderr)
        self.assertIn("install g++", found.stderr)
        self.assertEqual(os.listdir(self.path("cache/weir/mlx")), ["lock"])

    def test_a_cache_that_others_may_write_to(self):
        folder = self.path("cache/weir/mlx")
        os.makedirs(folder)
        os.chmod(folder, 0o777)
        found = support.python("from weir.mlx import _shim; _shim.shim()", XDG_CACHE_HOME=self.path("cache"))
        self.assertIn("AccessError", found.stderr)
        self.assertEqual(os.listdir(folder), [])

    def test_built_once_by_many(self):
        code = "from weir.mlx import _shim; print(_shim.shim().path)"
        found = []
        threads = [threading.Thread(target=lambda: found.append(support.python(code, XDG_CACHE_HOME=self.path("cache"))))
                   for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual({run.returncode for run in found}, {0}, [run.stderr for run in found])
        self.assertEqual(len({run.stdout for run in found}), 1)
        self.assertEqual(len(os.listdir(self.path("cache/weir/mlx"))), 2, "one shim and the lock")


if __name__ == "__main__":
    unittest.main()
