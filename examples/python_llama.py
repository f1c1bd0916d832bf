#!/usr/bin/env python3
"""llama-cpp-python within a memory budget: python_llama.py MODEL MEMORY PROMPT

The budget is this process's: about 45 MB of it are Python and NumPy.  A small n_batch keeps llama.cpp's buffers small.
"""
import sys

import weir
import weir.llama


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__.splitlines()[0])
    _, model, memory, prompt = sys.argv
    try:
        weir.llama.enable(memory)
        from llama_cpp import Llama

        llama = Llama(model, n_ctx=512, n_batch=64, verbose=False)
        for piece in llama.create_completion(prompt, max_tokens=32, temperature=0, stream=True):
            print(piece["choices"][0]["text"], end="", flush=True)
    except weir.BudgetError as problem:
        sys.exit(f"{problem}\ntry {problem.least_budget_bytes} bytes or more")
    except weir.Error as problem:
        sys.exit(f"python_llama.py: {problem}")
    report = weir.llama.report()
    print(f"\n\nat most {report['peak_memory_bytes'] / 2**20:.0f} of {report['budget_bytes'] / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
