#!/usr/bin/env python3
"""Measures what weir promises, one line per promise, side by side with the engine alone on the same machine.

    run.py budget        a 17 GB model in 4 GiB and in 2500 MiB: completes, peak within the budget, no limit hit, no page faults
    run.py experts       speed of a mixture of experts against the drive's rate, and against plain mmap in the same cgroup
    run.py dense         speed of a dense model of twice the budget, and bytes read per token
    run.py prompt        512 tokens of prompt: bytes and time
    run.py fits          a model that fits: prompt and generation against llama.cpp's own
    run.py neighbour     what a busy process beside it costs, streamed and resident
    run.py start         bytes read, and time, before the first token
    run.py stock         llama-bench and llama-server with the plugin: they run, and write what `weir run` writes
    run.py forecast      `weir plan` against `weir run`
    run.py all           all of those

    run.py bound         a mixture of experts against its bound, packed and not, and against plain mmap
    run.py neurostream   the same against the PyPI package neurostream, installed into BUILD/peers (5 GB)
    run.py policies      hit rates on recorded routing (--traces) against LRU, LFU and Belady
    run.py lookahead     with and without, on the drive as it is, throttled, and with reads held back
    run.py whole         a model that fits against llama.cpp in the same program
    run.py busy          -t auto beside a busy process
    run.py exact         logits with every combination of pack, policy and look-ahead
    run.py pack          pack and verify against the drive reading and writing at once
    run.py table         the table of goals: those eight and forecast, each figure with its goal

Models of random weights are written into --work when they are not there (17 GB the largest); --shape and --memory run the
same line with a smaller one.  Exit code: 0 every target met, 1 one missed or a run failed, 2 wrong usage.  A line that cannot
be measured here (no cgroup memory controller, no such program) says why and counts as missed only with --strict.
"""
import argparse
import os
import sys
import traceback

import context
import figures
import lines_memory
import lines_programs
import lines_speed
import lines_table
import machine
import measure

LINES = {
    "budget": lines_memory.budget, "experts": lines_speed.experts, "dense": lines_speed.dense, "prompt": lines_speed.prompt,
    "fits": lines_speed.fits, "neighbour": lines_speed.neighbour, "start": lines_memory.start, "stock": lines_programs.stock,
    "forecast": lines_programs.forecast,
}
TABLE = {
    "bound": lines_table.bound, "neurostream": lines_table.neurostream, "policies": lines_table.policies,
    "lookahead": lines_table.lookahead, "whole": lines_table.whole, "busy": lines_table.busy, "exact": lines_table.exact,
    "pack": lines_table.pack, "forecast": lines_programs.forecast,
}


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("line", choices=[*{**LINES, **TABLE}, "all", "table"])
    build = os.environ.get("WEIR_BUILD_DIR") or os.path.join(context.ROOT, "build")
    parser.add_argument("--build", default=build, help="the build folder (WEIR_BUILD_DIR, else build/)")
    parser.add_argument("--engine", default=os.environ.get("WEIR_ENGINE_DIR"), help="the engine's folder with bin/ and lib/")
    parser.add_argument("--work", help="where models are written (default: BUILD/bench); its drive is what is measured")
    parser.add_argument("--shape", help="another model shape than the line's own (tests/models/shapes.py)")
    parser.add_argument("--model", help="a GGUF file instead of a shape")
    parser.add_argument("--tokenizer", help="a GGUF whose tokenizer the written models get")
    parser.add_argument("--memory", type=context.bytes_of, action="append", metavar="SIZE",
                        help="another budget than the line's own, such as 500M; may be given several times")
    parser.add_argument("-n", "--tokens", type=int, default=64, help="tokens to generate (64)")
    parser.add_argument("-t", "--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("-r", "--runs", type=int, default=3, help="runs of each kind; medians are judged (3)")
    parser.add_argument("--long-prompt", type=int, default=2000, help="tokens of the long prompt (2000)")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of the prompt line's prompt (512)")
    parser.add_argument("--mmap-tokens", type=int, default=4, help="tokens that plain mmap, which is slow, generates (4)")
    parser.add_argument("--traces", metavar="FOLDER", help="recorded routing (*.route.csv); default: shared/traces beside the checkout")
    parser.add_argument("--timeout", type=float, default=1800, metavar="SECONDS", help="of one run (1800)")
    parser.add_argument("--json", metavar="FILE", help="append figures as JSON lines")
    parser.add_argument("--csv", metavar="FILE", help="append figures as CSV")
    parser.add_argument("--strict", action="store_true", help="what cannot be measured counts as missed")
    return parser.parse_args()


def run_line(name, bench):
    """Runs one line: prints and stores its sheets.  True when all is well."""
    good = True
    try:
        for sheet in {**LINES, **TABLE}[name](bench):
            sheet.print(sys.stdout)
            figures.store(sheet, bench.describe(), bench.options.json, bench.options.csv)
            good = good and sheet.good
    except context.Unavailable as why:
        print(f"\n{name}: not measured: {why}", flush=True)
        return not bench.options.strict
    except (measure.Failed, OSError) as problem:
        print(f"\n{name}: FAILED: {problem}", flush=True)
        if not isinstance(problem, measure.Failed):
            traceback.print_exc()
        return False
    return good


def main():
    bench = context.Bench(options())
    print(", ".join(f"{key}: {value}" for key, value in machine.describe(bench.work).items() if value is not None), flush=True)
    names = {"all": LINES, "table": TABLE}.get(bench.options.line, [bench.options.line])
    return 0 if all([run_line(name, bench) for name in names]) else 1


if __name__ == "__main__":
    sys.exit(main())
