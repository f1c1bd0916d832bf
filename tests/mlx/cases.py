"""Models and comparisons that several tests share."""
import mlx.core as mx
import tiny_models
from mlx_lm.models.cache import make_prompt_cache

Q4 = {"group_size": 32, "bits": 4}
Q8 = {"group_size": 32, "bits": 8}
MXFP4 = {"group_size": 32, "bits": 4, "mode": "mxfp4"}
MIXED = {**Q4, "down_proj": Q8, "up_proj": MXFP4}
PROMPT = [[5, 17, 80, 3, 9, 41, 2, 66, 31]]


def logits(model, steps=3, prompt=None):
    """Of a prompt, and of the tokens that follow it."""
    cache, tokens, found = make_prompt_cache(model), mx.array(prompt or PROMPT), []
    for _ in range(steps):
        found.append(model(tokens, cache=cache))
        mx.eval(found[-1])
        tokens = mx.argmax(found[-1][:, -1], axis=-1)[:, None]
    return found


def equal(left, right):
    return all(a.dtype == b.dtype and bool(mx.array_equal(a, b).item()) for a, b in zip(left, right, strict=True))


def moe(everything=False):
    """kind, layout, quantisation, dtype: MLX on a CPU multiplies experts that are not quantised in 32 bits only."""
    for kind in tiny_models.MOE:
        if kind == "gpt_oss":
            yield kind, "mlx", MXFP4, mx.bfloat16
            yield kind, "hf", MXFP4, mx.bfloat16
            continue
        yield kind, "mlx", Q4, mx.bfloat16
        yield kind, "hf", None, mx.float32
        if everything or kind == "qwen3_moe":
            yield kind, "mlx", None, mx.float32
            yield kind, "mlx", Q8, mx.float16
            yield kind, "mlx", MIXED, mx.bfloat16
    yield "mixtral", "hf", Q4, mx.bfloat16
    yield "deepseek_v3", "hf", Q8, mx.bfloat16


def dense():
    yield "llama", "mlx", None, mx.float32
    yield "qwen3", "mlx", None, mx.bfloat16
    yield "qwen3", "mlx", Q4, mx.bfloat16
    yield "llama", "mlx", Q8, mx.float16
