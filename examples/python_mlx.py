#!/usr/bin/env python3
"""Writes text with a mixture of experts in MLX, within a budget: python_mlx.py MODEL MEMORY PROMPT

MODEL is a folder as mlx_lm has it; MEMORY the budget of this process, 4G or 60%, or "map" for none: then all weights are mapped.
"""
import sys

import weir
import weir.mlx

CTX = 512


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__.splitlines()[0])
    _, path, memory, prompt = sys.argv
    try:
        if memory == "map":
            model, tokenizer = weir.mlx.load(path)
        else:
            model, tokenizer = weir.mlx.load(path, streaming=True, memory=memory, ctx=CTX, batch=64)
    except weir.BudgetError as problem:
        sys.exit(f"{problem}\ntry {problem.least_budget_bytes} bytes or more")
    except weir.Error as problem:
        sys.exit(f"python_mlx.py: {problem}")
    from mlx_lm import stream_generate  # mlx_lm's own, and all else that takes a model of its

    for piece in stream_generate(model, tokenizer, prompt, max_tokens=32, prefill_step_size=64):
        print(piece.text, end="", flush=True)
    stats = weir.mlx.stats(model)
    print(f"\n\n{stats.mapped_bytes / 2**20:.1f} MiB mapped, {stats.copied_bytes / 2**20:.1f} MiB copied", end="")
    if stats.streaming:
        found = stats.streaming
        print(f", {found['slots_bytes'] / 2**20:.1f} MiB for experts; {found['bytes_read'] / 2**20:.1f} MiB read")
    else:
        print()


if __name__ == "__main__":
    main()
