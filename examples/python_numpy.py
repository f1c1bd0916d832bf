#!/usr/bin/env python3
"""Looks into a checkpoint without reading it: python_numpy.py MODEL [TENSOR]

Lists the tensors, then maps one and prints its first values.  Only the pages that are looked at are read.
"""
import sys

import numpy
import weir


def as_floats(view):
    """Values of a view; BF16, which NumPy lacks, by way of the upper half of float32."""
    if view.dtype.name == "BF16":
        return (view.numpy().astype(numpy.uint32) << 16).view(numpy.float32)
    return view.numpy()  # of quantised types, the bytes of their blocks


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__.splitlines()[0])
    try:
        checkpoint = weir.open(sys.argv[1])
        for info in checkpoint.values():
            print(f"{info.name:40} {info.dtype:8} {list(info.shape)}")
        name = sys.argv[2] if len(sys.argv) == 3 else next(iter(checkpoint))
        view = checkpoint.view(name)
    except (weir.Error, KeyError) as problem:
        sys.exit(f"python_numpy.py: {problem}")
    print(f"\n{name}: {view}")
    print(as_floats(view).reshape(-1)[:8])


if __name__ == "__main__":
    main()
