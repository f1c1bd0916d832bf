#!/usr/bin/env python3
"""Weights of a safetensors checkpoint as a PyTorch state dict, without reading the file: python_torch.py MODEL"""
import sys
import time

import weir


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        import torch  # which takes longer than what follows
    except ImportError as problem:
        sys.exit(f"python_torch.py: PyTorch cannot be imported ({problem}): pip install '.[torch]' in a clone of weir")

    begun = time.perf_counter()
    try:
        with weir.open(sys.argv[1]) as checkpoint:
            state = {name: checkpoint.torch(name) for name in checkpoint}
    except weir.Error as problem:
        sys.exit(f"python_torch.py: {problem}")
    seconds = time.perf_counter() - begun
    print(f"{len(state)} tensors, {sum(t.nbytes for t in state.values())} bytes, mapped in {seconds * 1000:.1f} ms")
    # Operations that make new tensors work as always; in-place ones change this process's copy of a page, never the file.
    for name, tensor in list(state.items())[:4]:
        print(name, tensor.dtype, tuple(tensor.shape), float(tensor.to(torch.float32).abs().mean()))


if __name__ == "__main__":
    main()
