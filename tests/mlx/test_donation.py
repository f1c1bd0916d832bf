#!/usr/bin/env python3
"""An operation may take the memory of an operand that nobody else holds, but never that of a file: with every type of MLX."""
import concurrent.futures
import json
import os
import unittest

import mlx.core as mx
import numpy as np
import support

FLOATS = ("float32", "float16", "bfloat16", "float64")
WHOLE = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES = (*FLOATS, *WHOLE, "bool_", "complex64")

# Each is tried with the mapped array as the only reference to it, so that MLX might take its memory for the result.
OPERATIONS = {
    "abs": "mx.abs(t())", "negative": "-t()", "square": "mx.square(t())", "sqrt": "mx.sqrt(t())", "rsqrt": "mx.rsqrt(t())",
    "exp": "mx.exp(t())", "expm1": "mx.expm1(t())", "log": "mx.log(t())", "log1p": "mx.log1p(t())", "log2": "mx.log2(t())",
    "sin": "mx.sin(t())", "cos": "mx.cos(t())", "tanh": "mx.tanh(t())", "sigmoid": "mx.sigmoid(t())", "erf": "mx.erf(t())",
    "erfinv": "mx.erfinv(t())", "floor": "mx.floor(t())", "ceil": "mx.ceil(t())", "round": "mx.round(t())",
    "sign": "mx.sign(t())", "reciprocal": "mx.reciprocal(t())", "logical not": "mx.logical_not(t())",
    "conjugate": "mx.conjugate(t())", "real": "mx.real(t())", "imag": "mx.imag(t())", "isnan": "mx.isnan(t())",
    "nan_to_num": "mx.nan_to_num(t())", "arctan": "mx.arctan(t())", "arctan2": "mx.arctan2(t(), t())", "add": "t() + 1",
    "subtract": "t() - 1", "reverse subtract": "1 - t()", "multiply": "t() * 2", "divide": "t() / 2", "power": "t() ** 2",
    "floor divide": "t() // 2", "remainder": "t() % 3", "divmod": "mx.divmod(t(), 3)[1]", "maximum": "mx.maximum(t(), 3)",
    "minimum": "mx.minimum(t(), 3)", "logaddexp": "mx.logaddexp(t(), 1)", "both mapped": "t() + t()", "equal": "t() == t()",
    "bitwise and": "t() & 3", "bitwise or": "t() | 4", "bitwise xor": "t() ^ 1", "bitwise invert": "~t()",
    "left shift": "t() << 1", "right shift": "t() >> 1", "logical and": "mx.logical_and(t(), t())", "clip": "mx.clip(t(), 2, 5)",
    "where": "mx.where(t() > 3, t(), 0)", "astype 8 bits": "t().astype(mx.uint8) + 1",
    "astype 16 bits": "t().astype(mx.float16) + 1", "astype 32 bits": "t().astype(mx.float32) + 1",
    "astype 64 bits": "t().astype(mx.int64) + 1", "view": "t().view(mx.int32) + 1", "cumsum": "mx.cumsum(t(), axis=0)",
    "cumprod": "mx.cumprod(t(), axis=0)", "cummax": "mx.cummax(t(), axis=0)", "sort": "mx.sort(t(), axis=0)",
    "argsort": "mx.argsort(t(), axis=0)", "partition": "mx.partition(t(), 3, axis=0)", "softmax": "mx.softmax(t(), axis=-1)",
    "logsumexp": "mx.logsumexp(t(), axis=-1)", "sum": "mx.sum(t())", "max": "mx.max(t(), axis=0)", "transpose": "t().T + 1",
    "reshape": "t().reshape(-1) + 1", "slice": "t()[2:4] + 1", "slice update": "u(t())",
    "scatter add": "t().at[mx.array([0, 1])].add(1)", "scatter max": "t().at[mx.array([0, 1])].maximum(9)",
    "put along axis": "mx.put_along_axis(t(), i(), t(), axis=0)", "take": "mx.take(t(), i()[0], axis=0)",
    "concatenate": "mx.concatenate([t(), t()])", "pad": "mx.pad(t(), 1)", "contiguous": "mx.contiguous(t()) + 1",
    "roll": "mx.roll(t(), 1)", "tile": "mx.tile(t(), (2, 1))", "matmul": "t() @ t().T",
    "addmm": "mx.addmm(t(), t(), t())", "rms_norm": "mx.fast.rms_norm(t(), mx.ones((16,)), 1e-5)",
    "layer_norm": "mx.fast.layer_norm(t(), None, None, 1e-5)",
    "rope": "mx.fast.rope(t()[None, None], 16, traditional=False, base=1e4, scale=1.0, offset=0)",
    "hadamard": "mx.hadamard_transform(t())", "stop gradient": "mx.stop_gradient(t()) + 1",
    "compiled": "mx.compile(lambda a: mx.exp(a) * 2 + 1)(t())", "vmapped": "mx.vmap(lambda a: a + 1)(t())",
    "in-place add": "a(t())", "fft": "mx.abs(mx.fft.fft(t()))", "quantize": "mx.quantize(mx.tile(t(), (1, 4)))[0]",
}

# One operation with each type; a line of JSON for each: the type, whether MLX has the operation for it, whether the result is the
# one over memory of its own, whether file and mapping are what they were.
CHILD = """
import hashlib, json, sys
import mlx.core as mx
import numpy as np
import weir.mlx
from weir.mlx import _shim

folder, code, dtypes, writable = sys.argv[1], sys.argv[2], sys.argv[3].split(","), sys.argv[4] == "writable"

def read(dtype):
    with open(f"{folder}/{dtype}", "rb") as file:
        return file.read()

def plain(dtype):
    made = mx.array(np.frombuffer(read(dtype), np.uint8, offset=4096)).view(getattr(mx, dtype)).reshape(16, 16)
    mx.eval(made)
    return made

def mapped(dtype):
    if not writable:
        return weir.mlx.mmap_weights(f"{folder}/{dtype}", 4096, (16, 16), getattr(mx, dtype))
    import ctypes, mmap
    from weir.mlx._store import RELEASE_NOTHING
    with open(f"{folder}/{dtype}", "r+b") as file:
        held.append(mmap.mmap(file.fileno(), 0))
    address = ctypes.addressof(ctypes.c_char.from_buffer(held[-1])) + 4096
    return _shim.shim().alias(address, (16, 16), getattr(mx, dtype), RELEASE_NOTHING, None)

def i(): return mx.zeros((16, 16), mx.int32) + 3
def u(x): x[1:3] = 0; return x
def a(x): x += 1; return x
def w(x): np.asarray(x)[0] = 0; return mx.array(1)  # what must not be done

def result(make, dtype):
    try:
        found = eval(code, {"mx": mx, "i": i, "u": u, "a": a, "w": w, "t": lambda: make(dtype)})
        mx.eval(found)
        return found
    except (ValueError, RuntimeError, TypeError) as problem:
        return str(problem)

held = []
for dtype in dtypes:
    before = read(dtype)
    wanted, found = result(plain, dtype), result(mapped, dtype)
    defined = not isinstance(wanted, str)
    same = wanted.dtype == found.dtype and bool(mx.array_equal(wanted, found, equal_nan=True).item()) if defined else wanted == found
    print(json.dumps([dtype, defined, same, read(dtype) == before]), flush=True)
"""


def values(dtype):
    """16 × 16 numbers, none of them 0 in a type of whole numbers."""
    array = mx.arange(256, dtype=mx.float32)
    array = array % 2 == 0 if dtype == "bool_" else (array % 100 + 1) / (1 if dtype in WHOLE else 17)
    array = array.astype(getattr(mx, dtype), stream=mx.cpu)
    return np.array(array.view(mx.uint16) if dtype == "bfloat16" else array).tobytes()


class Donation(support.Folder):
    def setUp(self):
        super().setUp()
        for dtype in DTYPES:
            with open(self.path(dtype), "wb") as file:
                file.write(bytes(4096) + values(dtype))
        support.python("from weir.mlx import _shim; _shim.shim()")  # compiled once, before many want it

    def run_operation(self, code, dtypes=DTYPES, mapping="read-only"):
        """In a process of its own: its exit code, and what it printed of each type."""
        run = support.python(CHILD, self.folder, code, ",".join(dtypes), mapping)
        return run, {line[0]: line[1:] for line in map(json.loads, run.stdout.splitlines())}

    def test_operations(self):
        defined = dict.fromkeys(DTYPES, 0)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            runs = pool.map(self.run_operation, OPERATIONS.values())
            for name, (run, found) in zip(OPERATIONS, runs):
                with self.subTest(name):
                    self.assertEqual(list(found), list(DTYPES), f"ended with {run.returncode}: {run.stderr[-500:]}")
                    self.assertTrue(any(known for known, _, _ in found.values()), "MLX does not have it")
                for dtype, (known, same, unchanged) in found.items():
                    defined[dtype] += known
                    with self.subTest(name, dtype=dtype):
                        self.assertTrue(same, "another result than over memory of its own")
                        self.assertTrue(unchanged, "the file changed")
        self.assertGreaterEqual(min(defined.values()), 70, defined)

    def test_a_write_would_be_noticed(self):
        """To pages that may not be written to, it ends the process; otherwise it shows in the file."""
        for dtype in ("float32", "int16"):
            run, found = self.run_operation("w(t())", [dtype])
            self.assertEqual((run.returncode, found), (-11, {}))
            run, found = self.run_operation("w(t())", [dtype], "writable")
            self.assertEqual((run.returncode, found), (0, {dtype: [True, True, False]}), run.stderr)


if __name__ == "__main__":
    unittest.main()
