#!/usr/bin/env python3
"""A model loaded, asked for one token and closed, again and again: descriptors, mappings and memory stay what they were."""
import json
import unittest

import mlx.core as mx
import support
import tiny_models
from cases import Q4

COUNT = 2500 if support.LONG else 60
MAPPINGS_MAX, BYTES_MAX = 4, 2 << 20  # the allocator's, however many cycles there were

# One kind of cycle, COUNT times; prints by how much descriptors, mappings and resident bytes have grown.
CHILD = """
import gc, json, sys
import mlx.core as mx
import support, weir.mlx

path, kind, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
STREAMED = {"streaming": True, "memory": "4G", "ctx": 256}

def token(model):
    mx.eval(mx.argmax(model(mx.array([[7]]))))

def mapped():
    token(weir.mlx.load(path)[0])

def closed():
    model, _ = weir.mlx.load(path, **STREAMED)
    token(model)
    weir.mlx.release(model)

def dropped():
    token(weir.mlx.load(path, **STREAMED)[0])

def refused():
    try:
        weir.mlx.load(path, **{**STREAMED, "memory": "16M"})
    except weir.BudgetError:
        return
    raise AssertionError("not refused")

def failed():
    model, _ = weir.mlx.load(path, **STREAMED, fault="eio:1", lookahead=False)
    try:
        token(model)
    except weir.InputOutputError:
        return
    raise AssertionError("not failed")

def counts():
    gc.collect()
    return support.descriptors_count(), support.mappings_count(), support.status("VmRSS")

def run(count):
    for number in range(count):
        if number % 10 == 0:
            gc.collect()  # a model is a ring of references
        globals()[kind]()

run(20)
before = counts()
run(count)
print(json.dumps([now - then for now, then in zip(counts(), before)]))
"""


class Leaks(support.Folder):
    def setUp(self):
        super().setUp()
        self.model = tiny_models.add_tokenizer(tiny_models.make(self.path("m"), "qwen3_moe", quantization=Q4, dtype=mx.bfloat16))

    def test_cycles_leave_nothing(self):
        environment = self.own_cache()
        for kind in ("closed", "dropped", "mapped", "refused", "failed"):
            with self.subTest(kind):
                run = support.python(CHILD, self.model, kind, COUNT, timeout=600, **environment)
                self.assertEqual(run.returncode, 0, run.stderr)
                print(f"# {kind}, {COUNT} times: more descriptors, mappings, bytes: {run.stdout.strip()}")
                descriptors, mappings, memory = json.loads(run.stdout)
                self.assertEqual(descriptors, 0)
                self.assertLessEqual(mappings, MAPPINGS_MAX)
                self.assertLess(memory, BYTES_MAX)


if __name__ == "__main__":
    unittest.main()
