#!/usr/bin/env python3
"""Tensors of files in PyTorch: every type, no copy, the file never written to, released with the last reference."""
import gc
import hashlib
import os
import sys
import threading
import unittest

import torch
import weir

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "python"))
import support  # noqa: E402

TYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "F64": torch.float64, "I8": torch.int8,
         "I16": torch.int16, "I32": torch.int32, "I64": torch.int64, "U8": torch.uint8, "U16": torch.uint16, "U32": torch.uint32,
         "U64": torch.uint64, "BOOL": torch.bool, "C64": torch.complex64, "F8_E4M3": torch.float8_e4m3fn,
         "F8_E5M2": torch.float8_e5m2, "F8_E4M3FNUZ": torch.float8_e4m3fnuz, "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
         "F8_E8M0": torch.float8_e8m0fnu}


def bits(tensor):
    return bytes(tensor.contiguous().view(torch.uint8).reshape(-1).tolist())


class Torch(support.Folder):
    def setUp(self):
        super().setUp()
        self.file = self.path("a.safetensors")
        count = 24
        self.data = {name: bytes(i % 2 if name == "BOOL" else (i * 7) % 120 for i in range(count * weir.DTYPES[name].block_bytes))
                     for name in TYPES}
        order = sorted(TYPES, key=lambda name: -weir.DTYPES[name].alignment_bytes)
        support.write_safetensors(self.file, {name: (name, (4, 6), self.data[name]) for name in order})
        with open(self.file, "rb") as file:
            self.hash = hashlib.sha256(file.read()).hexdigest()

    def file_hash(self):
        with open(self.file, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()

    def test_every_type(self):
        checkpoint = weir.open(self.file)
        for name, dtype in TYPES.items():
            with self.subTest(name):
                view = checkpoint.view(name, copy=False)
                tensor = view.torch()
                self.assertEqual((tensor.dtype, tuple(tensor.shape)), (dtype, (4, 6)))
                self.assertEqual(tensor.data_ptr(), view.address, "copied")
                self.assertEqual(bits(tensor), self.data[name])

    def test_the_file_is_never_written_to(self):
        checkpoint = weir.open(self.file)
        tensor = checkpoint.torch("F32")
        tensor.fill_(3).mul_(2).relu_()
        self.assertTrue(bool((tensor == 6).all()))
        torch.add(checkpoint.torch("F64"), 1, out=checkpoint.torch("F64"))
        self.assertEqual(self.file_hash(), self.hash)
        self.assertEqual(bits(checkpoint.torch("F32")), self.data["F32"], "another view saw it")

    def test_quantised_blocks_and_extents(self):
        tensor = weir.open(self.file).view("U8").torch()
        self.assertEqual(tensor.dtype, torch.uint8)
        array = torch.from_dlpack(weir.open(self.file).view("I32").allow_writes())
        self.assertEqual(bits(array), self.data["I32"])

    def test_released_with_the_last_reference(self):
        tensor = weir.open(self.file).torch("F32")
        part = tensor[1]
        del tensor
        gc.collect()
        self.assertEqual(support.mappings_of(self.file), 1)
        holder = [part]
        del part
        thread = threading.Thread(target=holder.clear)
        thread.start()
        thread.join()
        gc.collect()
        self.assertEqual(support.mappings_of(self.file), 0)

    def test_cycles_leave_nothing(self):
        def cycle():
            with weir.open(self.file) as checkpoint:
                return sum(float(checkpoint.torch(name).sum()) for name in ("F32", "BF16"))

        for _ in range(100):
            cycle()
        gc.collect()
        before = support.mappings_count(), support.descriptors_count(), support.resident_bytes()
        for _ in range(2500):
            cycle()
        gc.collect()
        self.assertLessEqual(support.mappings_count(), before[0] + 8)
        self.assertEqual(support.descriptors_count(), before[1])
        self.assertLess(support.resident_bytes() - before[2], 4 << 20)

    def test_saving(self):
        tensors = {name: weir.open(self.file).torch(name) for name in TYPES}
        tensors["turned"] = torch.arange(6.0).reshape(2, 3).T
        tensors["graph"] = torch.ones(3, requires_grad=True)
        tensors["none"] = torch.zeros(0, 2)
        weir.save_safetensors(self.path("out.safetensors"), tensors)
        saved = weir.open(self.path("out.safetensors"))
        self.assertTrue(saved.aligned)
        for name, tensor in tensors.items():
            with self.subTest(name):
                found = saved.torch(name)
                self.assertEqual((found.dtype, found.shape), (tensor.dtype, tensor.shape))
                self.assertEqual(bits(found), bits(tensor.detach()))


if __name__ == "__main__":
    unittest.main()
