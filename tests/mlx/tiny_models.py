"""Tiny models with random weights, made of mlx_lm's own classes and saved the way it, or Hugging Face, saves them.

    make(folder, "qwen3_moe", quantization={"group_size": 32, "bits": 4}, layout="mlx", aligned=True)

As a program, tiny_models.py FOLDER writes one to try weir.mlx with: a mixture of experts of 4 bits, with a tokenizer.

layout "mlx": expert tensors stacked, names as mlx_lm converts them.  "hf": as the original checkpoints have them, so that the
model's sanitize has work to do.  Not aligned: as mx.save_safetensors writes, at whatever offset.
"""
import json
import os
import sys

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.utils import _get_classes

VOCABULARY = 96
_COMMON = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
           "rms_norm_eps": 1e-6, "vocab_size": VOCABULARY, "max_position_embeddings": 512, "rope_theta": 10000.0,
           "tie_word_embeddings": False, "intermediate_size": 96}
_MOE = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32, "decoder_sparse_step": 1, "mlp_only_layers": [],
        "norm_topk_prob": True}

CONFIGS = {
    "llama": {**_COMMON, "model_type": "llama"},
    "qwen3": {**_COMMON, "model_type": "qwen3"},
    "qwen3_moe": {**_COMMON, **_MOE, "model_type": "qwen3_moe"},
    "qwen3_next": {**_COMMON, **_MOE, "model_type": "qwen3_next", "linear_num_value_heads": 2, "linear_num_key_heads": 1,
                   "linear_key_head_dim": 32, "linear_value_head_dim": 32, "linear_conv_kernel_dim": 4,
                   "shared_expert_intermediate_size": 32, "full_attention_interval": 2, "partial_rotary_factor": 0.5},
    "gpt_oss": {**_COMMON, "model_type": "gpt_oss", "num_local_experts": 8, "num_experts_per_tok": 3, "intermediate_size": 64,
                "sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]},
    "mixtral": {**_COMMON, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 64},
    "deepseek_v3": {**_COMMON, "model_type": "deepseek_v3", "num_hidden_layers": 3, "num_key_value_heads": 2,
                    "n_routed_experts": 8, "num_experts_per_tok": 3, "n_shared_experts": 1, "moe_intermediate_size": 32,
                    "kv_lora_rank": 32, "q_lora_rank": 32, "qk_rope_head_dim": 32, "v_head_dim": 32, "qk_nope_head_dim": 32,
                    "n_group": 2, "topk_group": 1, "routed_scaling_factor": 1.0, "first_k_dense_replace": 1,
                    "moe_layer_freq": 1, "norm_topk_prob": True, "topk_method": "noaux_tc", "scoring_func": "sigmoid"},
}
MOE = ("qwen3_moe", "qwen3_next", "gpt_oss", "mixtral", "deepseek_v3")
_DTYPES = {mx.bfloat16: "BF16", mx.float16: "F16", mx.float32: "F32", mx.uint32: "U32", mx.uint8: "U8"}


def classes_of(kind):
    """The model's class and that of its arguments."""
    return _get_classes({"model_type": kind})


def _random_model(config, seed, dtype):
    model_class, arguments = _get_classes(config)
    model = model_class(arguments.from_dict(config))
    mx.random.seed(seed)
    values = [(name, (mx.random.normal(array.shape) * 0.15 + (1.0 if "norm" in name else 0.0)).astype(dtype))
              for name, array in tree_flatten(model.parameters())]
    model.update(tree_unflatten(values))
    mx.eval(model.parameters())
    return model


def _quantize(model, quantization):
    """`quantization`: as in config.json; a path in it names a module with settings of its own."""
    def settings(path, module):
        if not hasattr(module, "to_quantized") or module.weight.shape[-1] % 32:
            return False
        for key, value in quantization.items():
            if isinstance(value, dict) and path.endswith(key):
                return value
        return True

    chosen = {}
    nn.quantize(model, quantization["group_size"], quantization["bits"], mode=quantization.get("mode", "affine"),
                class_predicate=lambda path, module: chosen.setdefault(path, settings(path, module)))
    own = {path: value for path, value in chosen.items() if isinstance(value, dict)}
    return {**{k: v for k, v in quantization.items() if not isinstance(v, dict)}, **own}


def _unstack(weights, old, new, projections, count):
    """Stacked expert tensors into one for each expert, as Hugging Face has them."""
    made = {}
    for name, array in weights.items():
        for projection, theirs in projections.items():
            middle = f"{old}.{projection}."
            if middle in name:
                head, kind = name.split(middle)
                made.update({f"{head}{new}.{e}.{theirs}.{kind}": array[e] for e in range(count)})
                break
        else:
            made[name] = array
    return made


def _interleave_gpt_oss(weights):
    made = {}
    for name, array in weights.items():
        if ".experts.up_proj." in name:
            continue
        if ".experts.gate_proj." in name:
            up = weights[name.replace("gate_proj", "up_proj")]
            axis = 1
            both = mx.stack([array, up], axis=axis + 1).flatten(axis, axis + 1)
            kind = name.rsplit(".", 1)[1]
            name = name.replace("gate_proj." + kind, {"weight": "gate_up_proj_blocks", "scales": "gate_up_proj_scales",
                                                      "bias": "gate_up_proj_bias"}[kind])
            array = both
        elif ".experts.down_proj." in name:
            kind = name.rsplit(".", 1)[1]
            name = name.replace("down_proj." + kind, {"weight": "down_proj_blocks", "scales": "down_proj_scales",
                                                      "bias": "down_proj_bias"}[kind])
        if name.endswith("_blocks"):
            array = array.view(mx.uint8).reshape(*array.shape[:-1], -1, 16)
        made[name] = array
    return made


def _to_hf(weights, config):
    kind = config["model_type"]
    names = {n: n for n in ("gate_proj", "up_proj", "down_proj")}
    if kind == "gpt_oss":
        return _interleave_gpt_oss(weights)
    if kind == "mixtral":
        return _unstack(weights, "block_sparse_moe.switch_mlp", "block_sparse_moe.experts",
                        {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}, config["num_local_experts"])
    count = config.get("num_experts") or config.get("n_routed_experts")
    weights = _unstack(weights, "mlp.switch_mlp", "mlp.experts", names, count)
    if kind == "qwen3_next":  # the trap: its sanitize also turns the convolution and adds one to the norms
        for name in list(weights):
            if name.endswith("conv1d.weight"):
                weights[name] = weights[name].moveaxis(2, 1)
            elif weights[name].ndim == 1 and name.endswith((".input_layernorm.weight", ".post_attention_layernorm.weight",
                                                            "model.norm.weight", ".q_norm.weight", ".k_norm.weight")):
                weights[name] = weights[name] - 1.0
    return weights


def _bytes(array):
    mx.eval(array)
    view = array.view(mx.uint16) if array.dtype == mx.bfloat16 else array
    return np.ascontiguousarray(np.array(view)).tobytes()


def save_aligned(path, weights):
    """A safetensors file whose header ends at a page, tensors in order of falling element size."""
    entries, blobs, offset = {}, [], 0
    for name, array in sorted(weights.items(), key=lambda item: (-item[1].itemsize, item[0])):
        blob = _bytes(array)
        entries[name] = {"dtype": _DTYPES[array.dtype], "shape": list(array.shape), "data_offsets": [offset, offset + len(blob)]}
        offset += len(blob)
        blobs.append(blob)
    header = json.dumps({"__metadata__": {"format": "mlx"}, **entries}).encode()
    header += b" " * (-(len(header) + 8) % 4096)
    with open(path, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header + b"".join(blobs))


def add_tokenizer(folder):
    """A tokenizer whose words are w0, w1... with the ids 0, 1...; the last one ends a text."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({f"w{i}": i for i in range(VOCABULARY)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="ascii") as file:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "w0", "eos_token": f"w{VOCABULARY - 1}"}, file)
    return str(folder)


def make(folder, kind, *, quantization=None, layout="mlx", aligned=True, dtype=mx.float32, shards=1, seed=7, **config):
    """Writes a model; returns its folder as text."""
    config = {**CONFIGS[kind], **config}
    model = _random_model(config, seed, dtype)
    if quantization:
        config["quantization"] = config["quantization_config"] = _quantize(model, quantization)
        mx.eval(model.parameters())
    weights = dict(tree_flatten(model.parameters()))
    if layout == "hf":
        weights = _to_hf(weights, config)
        if kind == "gpt_oss":
            del config["quantization"]
            config["quantization_config"] = {"quant_method": "mxfp4"}
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file)
    names = sorted(weights)
    for shard in range(shards):
        part = {name: weights[name] for name in names[shard::shards]}
        path = os.path.join(folder, "model.safetensors" if shards == 1 else f"model-{shard + 1:05}-of-{shards:05}.safetensors")
        if aligned:
            save_aligned(path, part)
        else:
            mx.save_safetensors(path, part, metadata={"format": "mlx"})
    return str(folder)


def main():
    if len(sys.argv) != 2:
        sys.exit("tiny_models.py FOLDER: writes a tiny model with random weights")
    make(sys.argv[1], "qwen3_moe", quantization={"group_size": 32, "bits": 4}, dtype=mx.bfloat16)
    print(add_tokenizer(sys.argv[1]))


if __name__ == "__main__":
    main()
