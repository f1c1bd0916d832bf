#!/usr/bin/env python3
"""Measurements of weir.mlx: mlx_models.py [memory|speed|load] [--folder DIR].  Each prints one JSON line with what it compared.

    memory  a 2 GB mixture of experts generates in a cgroup of 600 MB (as root; otherwise only the peak is judged)
    speed   streamed with every expert in memory, beside mlx_lm's own generation of the same tokens; time outside MLX for each token
    load    load(mmap=True) of that model beside opening its headers: time, memory

The model has the shapes of Qwen3's mixtures and random weights, and is made once in DIR (a temporary folder by default).  Run it
with the Python that tools/setup/mlx.sh names; WEIR_LIBRARY names libweir.so.0 if the package is not installed.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CONFIG = {"model_type": "qwen3_moe", "hidden_size": 1024, "num_hidden_layers": 16, "num_attention_heads": 16,
          "num_key_value_heads": 4, "head_dim": 64, "rms_norm_eps": 1e-6, "vocab_size": 8192,
          "max_position_embeddings": 4096, "rope_theta": 1e6, "tie_word_embeddings": False, "intermediate_size": 1024,
          "num_experts": 96, "num_experts_per_tok": 2, "moe_intermediate_size": 768, "decoder_sparse_step": 1,
          "mlp_only_layers": [], "norm_topk_prob": True,
          "quantization": {"group_size": 64, "bits": 4}}
LIMIT_BYTES = 600 * 1000 * 1000
PROMPT = list(range(1, 17))


def make_model(folder):
    """Writes the model, unless it is there; tensors go to the file one after the other."""
    import numpy as np
    from mlx.utils import tree_flatten
    from mlx_lm.utils import _get_classes
    import mlx.nn as nn

    path = os.path.join(folder, "model.safetensors")
    if os.path.exists(path):
        return folder
    os.makedirs(folder, exist_ok=True)
    model_class, arguments = _get_classes(CONFIG)
    model = model_class(arguments.from_dict(CONFIG))
    nn.quantize(model, 64, 4)
    parameters = sorted(tree_flatten(model.parameters()), key=lambda item: -item[1].itemsize)
    header, at = {}, 0
    for name, array in parameters:
        dtype, size = ("U32", 4) if "uint32" in str(array.dtype) else ("BF16", 2)
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [at, at + array.size * size]}
        at += array.size * size
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % 4096)
    random = np.random.default_rng(7)
    with open(path + ".part", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, array in parameters:
            if header[name]["dtype"] == "U32":
                blob = random.integers(0, 1 << 32, array.size, dtype=np.uint32)
            else:
                spread, middle = (0.02, 1) if "norm" in name else (0.004, 0)
                values = random.standard_normal(array.size) * spread + middle
                blob = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
            file.write(blob.tobytes())
    os.replace(path + ".part", path)
    with open(os.path.join(folder, "config.json"), "w", encoding="ascii") as file:
        json.dump(CONFIG, file)
    return folder


class Cgroup:
    """A cgroup of its own with a limit of memory, where that is allowed."""

    def __init__(self, limit_bytes):
        self.folder = None
        for root, limit, peak in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
                                  ("/sys/fs/cgroup", "memory.max", "memory.peak")):
            folder = os.path.join(root, f"weir-bench-{os.getpid()}")
            try:
                os.mkdir(folder)
                with open(os.path.join(folder, limit), "w", encoding="ascii") as file:
                    file.write(str(limit_bytes))
                self.folder, self._peak = folder, os.path.join(folder, peak)
                return
            except OSError:
                if os.path.isdir(folder):
                    os.rmdir(folder)

    def enter(self):
        if self.folder:
            with open(os.path.join(self.folder, "cgroup.procs"), "w", encoding="ascii") as file:
                file.write(str(os.getpid()))

    def close(self):
        if not self.folder:
            return None
        with open(self._peak, encoding="ascii") as file:
            peak = int(file.read())
        os.rmdir(self.folder)
        return peak


def memory(folder):
    group = Cgroup(LIMIT_BYTES)
    command = [sys.executable, "-m", "weir.mlx", "generate", folder, "--json", "--memory", str(LIMIT_BYTES - (24 << 20)), "-n", "8",
               "--prompt-tokens", ",".join(map(str, PROMPT)), "--ignore-eos"]
    run = subprocess.run(command, preexec_fn=group.enter, capture_output=True, text=True, check=False)
    peak = group.close()
    if run.returncode:
        return {"measure": "memory", "passed": False, "exit": run.returncode, "error": run.stderr.strip()[-400:]}
    found = json.loads(run.stdout)
    size = os.path.getsize(os.path.join(folder, "model.safetensors"))
    return {"measure": "memory", "model_bytes": size, "limit_bytes": LIMIT_BYTES, "cgroup": group.folder is not None,
            "cgroup_peak_bytes": peak, "budget_bytes": found["budget_bytes"],
            "peak_memory_bytes": found["peak_memory_bytes"], "tokens_per_second": found["tokens_per_second"],
            "hit_rate": found["hit_rate"], "slots": found["slots"],
            "passed": found["peak_memory_bytes"] <= found["budget_bytes"] and found["tokens"] == 8}


def _generate(model, tokens):
    """Tokens a second after the first, by mlx_lm's own generate_step; and the tokens."""
    import mlx.core as mx
    from mlx_lm.generate import generate_step

    made, start = [], 0.0
    for token, _ in generate_step(mx.array(PROMPT[:2]), model, max_tokens=tokens):
        made.append(int(token))
        if len(made) == 1:
            start = time.perf_counter()
    return (tokens - 1) / (time.perf_counter() - start), made


def speed(folder):
    import weir.mlx
    from mlx_lm.utils import load_model

    whole, _ = load_model(Path(folder))
    streamed, _ = weir.mlx.load_model(folder, streaming=True, memory="100%", ctx=256, lookahead=False)
    rates, same, tokens = {"mlx_lm": [], "streamed": []}, True, 6
    _generate(streamed, tokens)  # brings in the experts that these tokens want
    outside = []
    for _ in range(2):
        rate, wanted = _generate(whole, tokens)
        rates["mlx_lm"].append(rate)
        before = weir.mlx.stats(streamed).streaming["outside_ns"]
        rate, made = _generate(streamed, tokens)
        rates["streamed"].append(rate)
        outside.append((weir.mlx.stats(streamed).streaming["outside_ns"] - before) / 1e9 / (tokens + 1))
        same = same and made == wanted
    best = {name: max(values) for name, values in rates.items()}
    return {"measure": "speed", "tokens_per_second": rates, "ratio": best["streamed"] / best["mlx_lm"],
            "outside_seconds_per_token": min(outside), "same_tokens": same,
            "passed": same and best["streamed"] >= 0.9 * best["mlx_lm"]}


def _resident():
    with open("/proc/self/status", encoding="ascii", errors="replace") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


def load(folder):
    import weir.mlx
    from mlx_lm.utils import load_model

    def timed(work):
        start = time.perf_counter()
        made = work()
        return time.perf_counter() - start, made

    weir.mlx.load_model(folder)
    headers = min(timed(lambda: load_model(Path(folder), lazy=True))[0] for _ in range(3))
    before = _resident()
    took, model = timed(lambda: weir.mlx.load_model(folder)[0])
    added = _resident() - before
    stats = weir.mlx.stats(model)
    took = min([took] + [timed(lambda: weir.mlx.load_model(folder)[0])[0] for _ in range(2)])
    return {"measure": "load", "headers_seconds": headers, "load_seconds": took, "added_bytes": added,
            "mapped_bytes": stats.mapped_bytes, "copied_bytes": stats.copied_bytes,
            "passed": took < headers + 0.05 and added < 10 << 20}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("measures", nargs="*", choices=("memory", "speed", "load"), default=["memory", "speed", "load"])
    parser.add_argument("--folder")
    options = parser.parse_args()
    sys.path.insert(0, os.path.join(ROOT, "python"))
    os.environ["PYTHONPATH"] = os.path.join(ROOT, "python")
    with tempfile.TemporaryDirectory(prefix="weir-bench-mlx-") as temporary:
        folder = make_model(options.folder or temporary)
        passed = True
        for name in options.measures:
            result = globals()[name](folder)
            passed = passed and result["passed"]
            print(json.dumps(result), flush=True)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
