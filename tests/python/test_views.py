#!/usr/bin/env python3
"""Tensors as arrays: values, types, read-only, lifetimes, errors, files that change, nothing that leaks."""
import gc
import os
import subprocess
import sys
import threading
import unittest
import warnings

import numpy as np
import support
import weir

NUMPY_TYPES = {"F32": "f4", "F16": "f2", "F64": "f8", "I8": "i1", "I16": "i2", "I32": "i4", "I64": "i8", "U8": "u1", "U16": "u2",
               "U32": "u4", "U64": "u8", "BOOL": "?", "C64": "c8", "BF16": "u2", "F8_E4M3": "u1", "F8_E5M2": "u1",
               "F8_E8M0": "u1"}


def sample(dtype, shape):
    """Values of this type that differ from one another, as a NumPy array."""
    count = int(np.prod(shape, dtype=int))
    values = np.arange(count) % 2 if dtype == "BOOL" else np.arange(count) % 100 + 1
    return values.astype(NUMPY_TYPES[dtype]).reshape(shape)


class Values(support.Folder):
    def test_every_type(self):
        arrays = {dtype: sample(dtype, (3, 8)) for dtype in NUMPY_TYPES}
        support.write_safetensors(self.path("a.safetensors"),
                                  {d: (d, a.shape, a.tobytes()) for d, a in arrays.items()})
        with weir.open(self.path("a.safetensors")) as checkpoint:
            self.assertEqual(set(checkpoint), set(arrays))
            for dtype, expected in arrays.items():
                with self.subTest(dtype):
                    found = checkpoint.numpy(dtype)
                    self.assertEqual(found.dtype, expected.dtype)
                    self.assertEqual(found.shape, (3, 8))
                    self.assertTrue(np.array_equal(found, expected))
                    self.assertFalse(found.flags.writeable)
                    self.assertEqual(checkpoint.view(dtype).plain, dtype not in ("BF16", "F8_E4M3", "F8_E5M2", "F8_E8M0"))

    def test_both_ways_into_numpy(self):
        support.write_safetensors(self.path("a.safetensors"), {"a": ("I32", (6,), np.arange(6, dtype="i4").tobytes())})
        view = weir.open(self.path("a.safetensors")).view("a")
        for array in (np.from_dlpack(view), np.asarray(view), view.numpy()):
            self.assertFalse(array.flags.writeable)
            self.assertEqual(array.__array_interface__["data"][0], view.address, "copied")
            with self.assertRaises(ValueError):
                array[0] = 1
            with self.assertRaises(ValueError):
                array.setflags(write=True)

    def test_infos(self):
        path = self.path("a.safetensors")
        support.write_safetensors(path, {"x": ("F32", (2, 3), bytes(24)), "empty": ("F16", (0, 4), b""), "scalar": ("I8", (), b"7")},
                                  metadata={"format": "pt"})
        checkpoint = weir.open(path)
        info = checkpoint["x"]
        self.assertEqual((info.dtype, info.shape, info.file, info.bytes), ("F32", (2, 3), path, 24))
        with open(path, "rb") as file:
            self.assertEqual(info.offset, int.from_bytes(file.read(8), "little") + 8)
        self.assertEqual(checkpoint.nbytes, 25)
        self.assertEqual(checkpoint.format, "safetensors")
        self.assertEqual(checkpoint.metadata, {"format": "pt"})
        self.assertEqual(checkpoint.numpy("empty").shape, (0, 4))
        self.assertEqual(checkpoint.numpy("scalar"), 55)
        self.assertEqual(checkpoint.numpy("scalar").shape, ())
        with self.assertRaises(KeyError):
            checkpoint.numpy("absent")

    def test_extents(self):
        path = self.path("raw")
        np.arange(1000, dtype="<f4").tofile(path)
        array = weir.mmap_weights(path, 4 * 10, (5, 6), "F32")
        self.assertTrue(np.array_equal(array, np.arange(10, 40, dtype="f4").reshape(5, 6)))
        self.assertFalse(array.flags.writeable)
        for dtype in ("float32", np.float32, np.dtype("float32"), weir.DTYPES["F32"], "f32"):
            self.assertEqual(weir.mmap_weights(path, 0, 3, dtype).tolist(), [0, 1, 2])
        self.assertEqual(weir.mmap_weights(path, 4000, 0, "F32").shape, (0,))
        self.assertEqual(weir.mmap_weights(os.fsencode(path), 4, (), "F32"), 1)
        self.assertEqual(weir.mmap_weights(path, 1, (2, 64), "Q4_0").shape, (2, 36))

    def test_misaligned(self):
        data = np.arange(6, dtype="f4").tobytes()
        path = self.path("a.safetensors")
        support.write_safetensors(path, {"a": ("U8", (1,), b"x"), "b": ("F32", (6,), data)})
        checkpoint = weir.open(path)
        self.assertFalse(checkpoint["b"].aligned)
        self.assertFalse(checkpoint.aligned)
        with self.assertWarnsRegex(weir.CopyWarning, "b: copied, 24 bytes"):
            view = checkpoint.view("b")
        self.assertTrue(view.copied)
        self.assertEqual(view.why_copied, "misaligned")
        self.assertEqual(view.numpy().tolist(), [0, 1, 2, 3, 4, 5])
        self.assertFalse(view.numpy().flags.writeable)
        with self.assertRaisesRegex(weir.MisalignedError, "save_safetensors"):
            checkpoint.numpy("b", copy=False)
        with self.assertRaisesRegex(weir.MisalignedError, "multiple of 4"):
            weir.mmap_weights(path, checkpoint["b"].offset, 6, "F32")
        self.assertEqual(weir.mmap_weights(path, checkpoint["b"].offset, 6, "F32", copy=None).tolist(), [0, 1, 2, 3, 4, 5])


class Errors(support.Folder):
    def setUp(self):
        super().setUp()
        self.raw = self.path("raw")
        with open(self.raw, "wb") as file:
            file.write(bytes(100))
        os.mkfifo(self.path("fifo"))

    def refused(self, kind, code, part, *arguments):
        with self.assertRaises(kind) as caught:
            weir.mmap_weights(*arguments)
        self.assertIsInstance(caught.exception, weir.Error)
        self.assertEqual(caught.exception.code_name, code)
        self.assertLess(caught.exception.code, 0)
        self.assertIn(part, str(caught.exception))
        return caught.exception

    def test_files(self):
        error = self.refused(weir.NotFoundError, "WEIR_ENOTFOUND", "cannot open", self.path("absent"), 0, 1, "F32")
        self.assertIsInstance(error, FileNotFoundError)
        self.assertEqual(error.file, self.path("absent"))
        self.assertEqual(error.errno, 2)
        self.refused(weir.NotRegularFileError, "WEIR_ENOTREGULAR", "FIFO", self.path("fifo"), 0, 1, "F32")
        self.refused(weir.NotRegularFileError, "WEIR_ENOTREGULAR", "directory", self.folder, 0, 1, "F32")
        self.refused(weir.NotRegularFileError, "WEIR_ENOTREGULAR", "device", "/dev/null", 0, 1, "F32")
        self.refused(weir.InvalidArgumentError, "WEIR_EINVAL", "NUL", "a\0b", 0, 1, "F32")
        self.refused(weir.InvalidArgumentError, "WEIR_EINVAL", "os.PathLike", 7.5, 0, 1, "F32")

    def test_extents(self):
        self.assertEqual(self.refused(weir.InvalidArgumentError, "WEIR_EINVAL", "past the end", self.raw, 80, 6, "F32").offset, 80)
        self.refused(weir.InvalidArgumentError, "WEIR_EINVAL", "past the end", self.raw, 2**62, 1, "F32")
        self.refused(weir.InvalidArgumentError, "WEIR_EINVAL", "byte_offset is -4", self.raw, -4, 1, "F32")
        self.refused(weir.InvalidArgumentError, "WEIR_EINVAL", "byte_offset is", self.raw, 2**64, 1, "F32")
        self.refused(weir.InvalidArgumentError, "WEIR_EINVAL", "whole number", self.raw, 1.5, 1, "F32")
        self.refused(weir.InvalidArgumentError, "WEIR_EINVAL", "dimension of the shape is -1", self.raw, 0, (2, -1), "F32")
        self.refused(weir.InvalidArgumentError, "WEIR_EINVAL", "sequence", self.raw, 0, None, "F32")
        self.refused(weir.InvalidArgumentError, "WEIR_EINVAL", "more elements", self.raw, 0, (2**40, 2**40), "F32")
        self.refused(weir.InvalidArgumentError, "WEIR_EINVAL", "at most 8", self.raw, 0, (1,) * 9, "F32")
        self.refused(weir.MisalignedError, "WEIR_EINVAL", "multiple of 4", self.raw, 2, 1, "F32")

    def test_types(self):
        self.refused(weir.DtypeError, "WEIR_EUNSUPPORTED", "no element type", self.raw, 0, 1, "float128")
        self.refused(weir.DtypeError, "WEIR_EUNSUPPORTED", "no element type", self.raw, 0, 1, None)
        self.refused(weir.InvalidArgumentError, "WEIR_EINVAL", "groups of 32", self.raw, 0, 33, "Q4_0")

    def test_checkpoints(self):
        for path, kind in ((self.path("absent"), weir.NotFoundError), (self.path("fifo"), weir.NotRegularFileError),
                           (self.raw, weir.FormatError), (self.folder, weir.Error)):
            with self.subTest(path), self.assertRaises(kind) as caught:
                weir.open(path)
            self.assertIsInstance(caught.exception, weir.Error)

    def test_text_is_safe_to_print(self):
        error = weir.NotFoundError("no\x1b[2J", file="a\nb\udcff")
        self.assertEqual(str(error), "a\\nb\\udcff: no\\x1b[2J")

    def test_older_dlpack_is_refused(self):
        view = weir.open(self.small()).view("a")
        with self.assertRaisesRegex(BufferError, "read-only"):
            view.__dlpack__()
        with self.assertRaises(BufferError):
            view.__dlpack__(max_version=(1, 0), copy=True)
        self.assertIn("dltensor", repr(view.allow_writes().__dlpack__()))

    def small(self):
        support.write_safetensors(self.path("s.safetensors"), {"a": ("F32", (4,), bytes(16))})
        return self.path("s.safetensors")


class Changes(support.Folder):
    def setUp(self):
        super().setUp()
        self.file = self.path("a.safetensors")
        self.data = np.arange(5000, dtype="f4")
        self.write()

    def write(self, add=0):
        support.write_safetensors(self.file, {"a": ("F32", (5000,), (self.data + add).tobytes())})

    def test_replaced_by_rename(self):
        """Views stay as they were, new ones are refused."""
        checkpoint = weir.open(self.file)
        array = checkpoint.numpy("a")
        os.rename(self.file, self.path("old"))
        self.write(add=1)
        self.assertTrue(np.array_equal(array, self.data))
        with self.assertRaises(weir.ChangedError):
            checkpoint.numpy("a")
        with self.assertRaises(weir.ChangedError):
            checkpoint.check()
        self.assertTrue(np.array_equal(weir.open(self.file).numpy("a"), self.data + 1))

    def test_shrunk(self):
        checkpoint = weir.open(self.file)
        checkpoint.check()
        copy = checkpoint.numpy("a", copy=True)
        os.truncate(self.file, 100)
        with self.assertRaises(weir.ChangedError):
            checkpoint.numpy("a")
        self.assertTrue(np.array_equal(copy, self.data), "a copy does not see it")

    def test_removed(self):
        checkpoint = weir.open(self.file)
        array = checkpoint.numpy("a")
        os.unlink(self.file)
        self.assertTrue(np.array_equal(array, self.data))
        with self.assertRaises(weir.NotFoundError):
            checkpoint.check()

    def test_writes_never_reach_the_file(self):
        with open(self.file, "rb") as file:
            before = file.read()
        array = np.asarray(weir.open(self.file).view("a").allow_writes())
        array[:] = 7
        self.assertEqual(array.sum(), 7 * 5000)
        with open(self.file, "rb") as file:
            self.assertEqual(file.read(), before)
        self.assertTrue(np.array_equal(weir.open(self.file).numpy("a"), self.data), "another view saw it")

    def test_closed(self):
        checkpoint = weir.open(self.file)
        array = checkpoint.numpy("a")
        checkpoint.close()
        checkpoint.close()
        self.assertEqual(checkpoint["a"].shape, (5000,))
        for call in (checkpoint.check, lambda: checkpoint.numpy("a")):
            with self.assertRaisesRegex(weir.InvalidArgumentError, "closed"):
                call()
        self.assertTrue(np.array_equal(array, self.data))


class Lifetimes(support.Folder):
    def setUp(self):
        super().setUp()
        self.file = self.path("a.safetensors")
        support.write_safetensors(self.file, {"a": ("F32", (1 << 18,), np.arange(1 << 18, dtype="f4").tobytes())})

    def test_released_with_the_last_reference(self):
        checkpoint = weir.open(self.file)
        array = checkpoint.numpy("a")
        part = array[10:20]
        del checkpoint, array
        gc.collect()
        self.assertEqual(support.mappings_of(self.file), 1)
        self.assertEqual(part.tolist(), list(range(10, 20)))
        del part
        gc.collect()
        self.assertEqual(support.mappings_of(self.file), 0)

    def test_released_in_another_thread(self):
        arrays = [weir.open(self.file).numpy("a") for _ in range(8)]
        self.assertEqual(support.mappings_of(self.file), 8)

        def drop():
            while arrays:
                arrays.pop()

        threads = [threading.Thread(target=drop) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(support.mappings_of(self.file), 0)

    def test_threads_share_a_checkpoint(self):
        checkpoint, problems = weir.open(self.file), []

        def use():
            try:
                for _ in range(100):
                    if checkpoint.numpy("a")[77] != 77:
                        problems.append("wrong value")
            except weir.InvalidArgumentError:
                pass  # closed meanwhile
            except Exception as problem:  # pylint: disable=broad-except
                problems.append(problem)

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        checkpoint.close()
        for thread in threads:
            thread.join()
        self.assertEqual(problems, [])
        self.assertEqual(support.mappings_of(self.file), 0)

    def cycle(self):
        with weir.open(self.file) as checkpoint:
            view = checkpoint.view("a")
            total = view.numpy()[::4096].sum() + np.asarray(view)[5] + checkpoint.numpy("a", copy=False)[6]
            view.__dlpack__(max_version=(1, 0))  # never taken
            with self.assertRaises(weir.Error):
                weir.mmap_weights(self.file, 1 << 21, 1, "F32")
        return total

    def test_cycles_leave_nothing(self):
        for _ in range(100):
            self.cycle()
        gc.collect()
        before = support.mappings_count(), support.descriptors_count(), support.resident_bytes()
        for _ in range(2500):
            self.cycle()
        gc.collect()
        self.assertLessEqual(support.mappings_count(), before[0] + 3)
        self.assertEqual(support.descriptors_count(), before[1])
        self.assertLess(support.resident_bytes() - before[2], 1 << 20)
        self.assertEqual(support.mappings_of(self.file), 0)

    def test_at_exit(self):
        """Arrays that are alive when the interpreter ends do no harm."""
        program = f"import weir; a = weir.open({self.file!r}).numpy('a'); b = weir.open({self.file!r}).view('a'); import numpy"
        done = subprocess.run([sys.executable, "-X", "dev", "-c", program], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    warnings.simplefilter("error", weir.CopyWarning)
    unittest.main()
