#!/usr/bin/env python3
"""Writes a safetensors file anew so that every tensor can be mapped in place: python_save.py OLD NEW"""
import sys

import weir


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        old = weir.open(sys.argv[1])
        # copy=True reads what is misaligned; what is mapped is not copied in memory.
        views = {name: old.view(name, copy=None if info.aligned else True) for name, info in old.items()}
        weir.save_safetensors(sys.argv[2], views, old.metadata)
        new = weir.open(sys.argv[2])
    except weir.Error as problem:
        sys.exit(f"python_save.py: {problem}")
    print(f"{len(new)} tensors; misaligned: {sum(not i.aligned for i in old.values())} before, "
          f"{sum(not i.aligned for i in new.values())} now")


if __name__ == "__main__":
    main()
