#!/usr/bin/env python3
"""A part of any file as an array of MLX, without reading it: python_mlx_array.py FILE BYTE_OFFSET ROWS COLUMNS DTYPE"""
import sys

import weir
import weir.mlx


def main():
    if len(sys.argv) != 6:
        sys.exit(__doc__)
    try:
        offset, rows, columns = map(int, sys.argv[2:5])
        weights = weir.mlx.mmap_weights(sys.argv[1], offset, (rows, columns), sys.argv[5])
    except (weir.Error, ValueError) as problem:
        sys.exit(f"python_mlx_array.py: {problem}")
    import mlx.core as mx  # it is there: mmap_weights says what to do where it is not

    # Only the pages that are used are read; the file is never written to.  For NumPy: numpy.from_dlpack(weights), read-only.
    print(weights.dtype, weights.shape, "mean", float(mx.mean(weights.astype(mx.float32)).item()))


if __name__ == "__main__":
    main()
