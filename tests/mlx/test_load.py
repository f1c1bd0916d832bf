#!/usr/bin/env python3
"""weir.mlx.load(mmap=True): the same logits, no memory, no time, and what stats says of it."""
import gc
import json
import os
import unittest
from pathlib import Path

import mlx.core as mx
import support
import tiny_models
import weir
import weir.mlx
from cases import Q4, dense, equal, logits, moe
from mlx_lm.utils import load_model


class Logits(support.Folder):
    def test_equal_to_those_of_mlx_lm(self):
        for number, (kind, layout, quantization, dtype) in enumerate([*dense(), *moe(support.LONG)]):
            with self.subTest(kind=kind, layout=layout, quantization=quantization, dtype=dtype):
                path = tiny_models.make(self.path(str(number)), kind, layout=layout, quantization=quantization, dtype=dtype,
                                        aligned=number % 4 != 3, shards=1 + number % 2)
                wanted = logits(load_model(Path(path))[0])
                model, config = weir.mlx.load_model(path)
                self.assertTrue(equal(logits(model), wanted))
                self.assertEqual(config["model_type"], kind)
                self.assertEqual(type(model).__mro__[1].__name__, "Module", "the model's class was not given back")

    def test_release_and_restore(self):
        path = tiny_models.make(self.path("m"), "qwen3_moe", quantization=Q4)
        model, _ = weir.mlx.load_model(path)
        wanted, before = logits(model), weir.mlx.stats(model)
        mappings = support.mappings_count()
        for _ in range(3):
            weir.mlx.release(model)
            gc.collect()
            self.assertTrue(weir.mlx.stats(model).released)
            self.assertLess(support.mappings_count(), mappings - before.mapped_count // 2)
            with self.assertRaises(Exception):
                logits(model)
            weir.mlx.restore(model)
            self.assertTrue(equal(logits(model), wanted))
        self.assertEqual(weir.mlx.stats(model), before)

    def test_a_file_replaced_meanwhile(self):
        path = tiny_models.make(self.path("m"), "llama")
        model, _ = weir.mlx.load_model(path)
        wanted = logits(model)
        tiny_models.make(self.path("other"), "llama", seed=8)
        os.replace(self.path("other/model.safetensors"), self.path("m/model.safetensors"))
        self.assertTrue(equal(logits(model), wanted), "a model in use keeps the file that it was loaded from")
        weir.mlx.release(model)
        with self.assertRaises(weir.ChangedError):
            weir.mlx.restore(model)


class Stats(support.Folder):
    def test_everything_is_mapped(self):
        path = tiny_models.make(self.path("m"), "qwen3_moe", quantization=Q4, shards=2)
        model, _ = weir.mlx.load_model(path)
        stats = weir.mlx.stats(model)
        self.assertEqual(stats.copied, [])
        self.assertEqual(stats.mapped_bytes, sum(weir.open(self.path(f"m/{n}")).nbytes for n in os.listdir(path) if "model-" in n))
        self.assertEqual(stats.resident_bytes, stats.mapped_bytes, "just written: in the page cache")

    def test_what_is_copied_and_why(self):
        for kind, layout, aligned, why in (("llama", "mlx", False, "misaligned in its file"),
                                           ("qwen3_next", "hf", True, "changed by the model's sanitize while loading"),
                                           ("mixtral", "hf", True, "computed by the model while loading")):
            with self.subTest(why):
                path = tiny_models.make(self.path(kind), kind, layout=layout, aligned=aligned,
                                        vocab_size=96 if aligned else 97)
                stats = weir.mlx.stats(weir.mlx.load_model(path)[0])
                if aligned or stats.copied:  # where MLX puts the header's end depends on its length
                    self.assertIn(why, {entry.why for entry in stats.copied})
                self.assertEqual(stats.copied_bytes, sum(entry.bytes for entry in stats.copied))


# A dense model of 1 GiB, loaded in a process of its own, after imports and a first tiny model.
LOAD = """
import json, sys, time
from pathlib import Path
import support, weir.mlx, mlx.core as mx
from mlx_lm.utils import load_model
weir.mlx.load_model(sys.argv[2])
def timed(work):
    start = time.perf_counter(); made = work(); return time.perf_counter() - start, made
headers = min(timed(lambda: load_model(Path(sys.argv[1]), lazy=True))[0] for _ in range(3))
before = support.status("VmRSS")
took, (model, _) = timed(lambda: weir.mlx.load_model(sys.argv[1]))
added = support.status("VmRSS") - before
model = None
took = min([took] + [timed(lambda: weir.mlx.load_model(sys.argv[1]))[0] for _ in range(2)])
print(json.dumps({"headers": headers, "took": took, "added": added}))
"""


class Cost(support.Folder):
    def make_large(self, gibibyte=1 << 30):
        config = {**tiny_models.CONFIGS["llama"], "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 8,
                  "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128}
        os.makedirs(self.path("large"))
        with open(self.path("large/config.json"), "w", encoding="ascii") as file:
            json.dump(config, file)
        from mlx.utils import tree_flatten
        from mlx_lm.utils import _get_classes

        model_class, arguments = _get_classes(config)
        header, at = {}, 0
        for name, array in tree_flatten(model_class(arguments.from_dict(config)).parameters()):
            header[name] = {"dtype": "BF16", "shape": list(array.shape), "data_offsets": [at, at + array.size * 2]}
            at += array.size * 2
        text = json.dumps(header).encode()
        text += b" " * (-(len(text) + 8) % 4096)
        with open(self.path("large/model.safetensors"), "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            block = os.urandom(1 << 20)
            for start in range(0, at, len(block)):  # written in full: what lies in a hole is not mapped
                file.write(block[:at - start])
        self.assertGreater(at, gibibyte * 0.9)
        return self.path("large")

    def test_a_gibibyte(self):
        large, small = self.make_large(), tiny_models.make(self.path("small"), "llama", dtype=mx.bfloat16)
        run = support.python(LOAD, large, small)
        self.assertEqual(run.returncode, 0, run.stderr)
        found = json.loads(run.stdout)
        self.assertLess(found["took"], found["headers"] + 0.05, found)
        self.assertLess(found["added"], 10 << 20, found)


class Errors(support.Folder):
    def test_refusals(self):
        path = tiny_models.make(self.path("m"), "llama")
        for name, text in (("none", "{"), ("list", "[]"), ("other", '{"model_type": "nothing known"}')):
            os.makedirs(self.path(name))
            os.symlink(self.path("m/model.safetensors"), self.path(f"{name}/model.safetensors"))
            with open(self.path(f"{name}/config.json"), "w", encoding="ascii") as file:
                file.write(text)
        os.makedirs(self.path("fifo"))
        os.mkfifo(self.path("fifo/model.safetensors"))
        os.symlink(self.path("m/config.json"), self.path("fifo/config.json"))
        for kind, arguments, options in ((weir.NotFoundError, (self.path("absent"),), {}),
                                         (weir.NotFoundError, (self.folder,), {}),
                                         (weir.NotFoundError, (self.path("m/model.safetensors"),), {}),
                                         (weir.InvalidArgumentError, (None,), {}),
                                         (weir.FormatError, (self.path("none"),), {}),
                                         (weir.FormatError, (self.path("list"),), {}),
                                         (weir.UnsupportedError, (self.path("other"),), {}),
                                         (weir.NotRegularFileError, (self.path("fifo"),), {}),
                                         (weir.InvalidArgumentError, (path,), {"memory": "4G"}),
                                         (weir.InvalidArgumentError, (path,), {"policy": "lru"})):
            with self.subTest(arguments=arguments, options=options), self.assertRaises(kind):
                weir.mlx.load_model(*arguments, **options)
        with self.assertRaises(weir.InvalidArgumentError):
            weir.mlx.stats(load_model(Path(path))[0])
        with open(self.path("m/model.safetensors"), "r+b") as file:
            file.truncate(8192)
        with self.assertRaises(Exception):
            weir.mlx.load_model(path)


if __name__ == "__main__":
    unittest.main()
