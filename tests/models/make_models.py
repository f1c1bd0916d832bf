#!/usr/bin/env python3
"""Writes small synthetic GGUF models for the tests, or one of a real model's shape for measurements.

    make_models.py OUTDIR                                    the tests' set, a few seconds, about 100 MB
    make_models.py OUTDIR --only moe,split                   some of it
    make_models.py OUT.gguf --shape qwen3-30b-a3b            17 GB at the drive's speed
    make_models.py OUT.gguf --shape dense-7b --tokenizer FROM.gguf

Weights are random; what such a model writes means nothing.  A tensor's bytes depend only on the seed and on its own name, type
and size: a model that is split or aligned otherwise holds the same weights and gives the same logits.  The made-up vocabulary
has a token for every byte, so any text can be tokenized; --tokenizer copies that of another GGUF.  Needs only Python 3.9.
"""
import argparse
import os
import random
import sys

import gguf_file as g
import quants
import shapes
from shapes import Shape

POOL_BYTES = 64 << 20   # larger tensors are random windows of one random pool, so that writing runs at the drive's speed
DIRECT_BYTES = 4 << 20  # smaller ones are made as they are

_MOE = dict(layers=4, embd=256, ff=256, heads=4, kv=2, head=64, experts=16, used=4)
TEST_MODELS = {
    "moe": Shape("qwen3moe", **_MOE),
    "moe-wide": Shape("qwen3moe", **{**_MOE, "layers": 3, "experts": 48, "used": 8, "ff": 128}, types=dict(down="Q8_0")),
    "mixed": Shape("qwen3moe", **_MOE, types=dict(
        gate=["Q4_K", "Q4_K", "Q8_0", "Q4_0"], up=["Q4_K", "Q5_K", "Q8_0", "Q4_K"], down=["Q6_K", "Q5_K", "Q8_0", "F16"])),
    # 264 rows of 144 bytes: an expert's size is no multiple of 512, nor is the place where it begins
    "odd": Shape("qwen3moe", **{**_MOE, "ff": 264, "layers": 2}, types=dict(down="F16")),
    "shared": Shape("qwen2moe", **{**_MOE, "heads": 4, "kv": 4}),
    "merged": Shape("deepseek2", **{**_MOE, "heads": 2}, types=dict(attn="Q8_0")),
    # 352 × 288 elements of MXFP4 are 53,856 bytes: 105 sectors of 512 and 96 bytes
    "biased": Shape("gpt-oss", 4, 352, 288, 6, 2, 64, 16, 4, types=dict(
        embd="Q8_0", output="Q8_0", attn="Q8_0", gate="MXFP4", up="MXFP4", down="MXFP4")),
    "dense": Shape("llama", 8, 256, 768, 4, 2, 64, vocab=2048),
    "dense-tied": Shape("llama", 8, 256, 768, 4, 2, 64, vocab=2048, types=dict(output=None, embd="Q6_K", ffn=["Q4_K", "Q8_0"])),
    "dense-rows": Shape("llama", 3, 256, 512, 4, 2, 64, vocab=32000, types=dict(embd="Q6_K", output="Q4_K")),
}
# The same weights as "moe", stored otherwise: (name, alignment, shards, has a vocabulary).
MOE_VARIANTS = [("moe-align8", 8, 1, True), ("moe-align64", 64, 1, True), ("moe-align4096", 4096, 1, True),
                ("split", 32, 3, True), ("moe-novocab", 32, 1, False)]


def byte_vocabulary(count):
    """A vocabulary of `count` tokens: unknown, begin, end, the 256 bytes, and made-up words."""
    words = [f"\u2581w{i}" for i in range(count - 259)]
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + words
    kinds = [2, 3, 3] + [6] * 256 + [1] * len(words)
    scores = [0.0] * 259 + [-float(i) for i in range(len(words))]
    return [
        g.entry("tokenizer.ggml.model", g.STRING, "llama"),
        g.entry("tokenizer.ggml.tokens", (g.ARRAY, g.STRING), tokens),
        g.entry("tokenizer.ggml.scores", (g.ARRAY, g.F32), scores),
        g.entry("tokenizer.ggml.token_type", (g.ARRAY, g.I32), kinds),
        g.entry("tokenizer.ggml.bos_token_id", g.U32, 1),
        g.entry("tokenizer.ggml.eos_token_id", g.U32, 2),
        g.entry("tokenizer.ggml.unknown_token_id", g.U32, 0),
        g.entry("tokenizer.ggml.add_bos_token", g.BOOL, False),
        g.entry("tokenizer.ggml.add_space_prefix", g.BOOL, False),
    ]


NO_VOCABULARY = [g.entry("tokenizer.ggml.model", g.STRING, "none")]


class Source:
    """Makes tensor data from a seed."""

    def __init__(self, seed):
        self.seed = seed
        self.pools = {}

    def _pool(self, tensor):
        key = (tensor.kind, tensor.scale)
        if key not in self.pools:
            elements, size = quants.TYPES[tensor.kind][1:]
            rng = random.Random(f"{self.seed}/pool/{key}")
            self.pools[key] = memoryview(quants.weights(tensor.kind, POOL_BYTES // size * elements, tensor.scale, rng))
        return self.pools[key]

    def pieces(self, tensor):
        """The tensor's bytes in parts."""
        rng = random.Random(f"{self.seed}/{tensor.name}/{tensor.kind}/{tensor.size}")
        if tensor.kind == "ones":
            yield quants.ones(tensor.size // 4)
            return
        elements, size = quants.TYPES[tensor.kind][1:]
        if tensor.size <= DIRECT_BYTES:
            yield quants.weights(tensor.kind, tensor.size // size * elements, tensor.scale, rng)
            return
        pool, left = self._pool(tensor), tensor.size
        while left:
            start = rng.randrange(len(pool) // size) * size
            part = pool[start:start + left]
            yield part
            left -= len(part)


def parts_of(shape, tokenizer=None, vocabulary=True):
    """(metadata entries, tensors) of a shape."""
    if tokenizer:
        entries, vocab = g.tokenizer_of(tokenizer)
    else:
        vocab = shape.vocab
        entries = byte_vocabulary(vocab) if vocabulary else NO_VOCABULARY
    return shapes.hyperparameters(shape, vocab) + entries, shapes.tensors(shape, vocab)


def make_test_set(folder, only, seed):
    """Writes the tests' models; returns {name: path of the (first) file}."""
    os.makedirs(folder, exist_ok=True)
    source, made = Source(seed), {}
    for name, shape in TEST_MODELS.items():
        if not only or name in only:
            made[name] = os.path.join(folder, name + ".gguf")
            g.write(made[name], *parts_of(shape), source.pieces)
    for name, alignment, shards, vocabulary in MOE_VARIANTS:
        if only and name not in only:
            continue
        entries, tensors = parts_of(TEST_MODELS["moe"], vocabulary=vocabulary)
        stem = os.path.join(folder, name)
        if shards > 1:
            made[name] = g.write_split(stem, shards, entries, tensors, source.pieces, alignment)
        else:
            made[name] = stem + ".gguf"
            g.write(made[name], entries, tensors, source.pieces, alignment)
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", help="a folder for the tests' set, or a file with --shape")
    parser.add_argument("--only", default="", help="names out of the tests' set, with commas")
    parser.add_argument("--shape", choices=sorted(shapes.NAMED), help="write one model of this shape")
    parser.add_argument("--tokenizer", help="a GGUF whose tokenizer is copied (with --shape)")
    parser.add_argument("--seed", type=int, default=7)
    a = parser.parse_args()
    if a.shape:
        g.write(a.out, *parts_of(shapes.NAMED[a.shape], a.tokenizer), Source(a.seed).pieces)
        return 0
    only = set(filter(None, a.only.split(",")))
    unknown = only - set(TEST_MODELS) - {v[0] for v in MOE_VARIANTS}
    if unknown:
        parser.error("no such test model: " + ", ".join(sorted(unknown)))
    for name, path in make_test_set(a.out, only, a.seed).items():
        print(f"{name}\t{path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
