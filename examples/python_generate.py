#!/usr/bin/env python3
"""Writes text with a model that may be larger than memory: python_generate.py MODEL MEMORY PROMPT

MEMORY is a budget for the process that runs the model: 4G, 3500M, 60%.
"""
import sys

import weir


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__.splitlines()[0])
    _, model, memory, prompt = sys.argv
    try:
        with weir.generate(model, prompt, memory, tokens=32, ctx=512, temp=0) as text:
            for piece in text:
                print(piece, end="", flush=True)
    except weir.BudgetError as problem:
        sys.exit(f"{problem}\ntry {problem.least_budget_bytes} bytes or more")
    except weir.Error as problem:
        sys.exit(f"python_generate.py: {problem}")
    report = text.report
    print(f"\n\n{report['tokens']} tokens, {report['tokens_per_second'] or 0:.1f} a second; "
          f"at most {report['peak_memory_bytes'] / 2**20:.0f} of {report['budget_bytes'] / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
