#!/usr/bin/env python3
"""Generates with the PyPI package neurostream, in an environment of its own (tools/setup/peers.sh), and prints one JSON object.

    peer_neurostream.py MODEL --tokens 1,2,3 -n 8 --stream BYTES --resident BYTES [-t THREADS]

--stream is its ceiling on streaming buffers (its mem_budget), --resident the weights that it keeps in memory, quantized as they
are (its ram_budget).  Everything else is as the package has it by default.  Speed counts the tokens after the first, as weir's does.
"""
import argparse
import json
import resource
import time

import torch
from neurostream import NeuroStream


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--tokens", required=True, type=lambda text: [int(t) for t in text.split(",")])
    parser.add_argument("-n", "--count", type=int, required=True)
    parser.add_argument("--stream", type=int, required=True)
    parser.add_argument("--resident", type=int, required=True)
    parser.add_argument("-t", "--threads", type=int)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    start = time.perf_counter()
    model = NeuroStream.load(options.model, mem_budget=options.stream, ram_budget=options.resident, device="cpu")
    load = time.perf_counter() - start
    for _ in model.generate(options.tokens, max_tokens=options.count, temperature=0.0, stop_on_eos=False):
        pass
    stats = model.stats
    later = stats.generated_tokens - 1
    print(json.dumps({
        "load_seconds": load, "prompt_seconds": stats.prefill_seconds, "tokens": stats.generated_tokens,
        "tokens_per_second": later / stats.decode_seconds if later > 0 else None,
        "bytes_read": model.source.stats.bytes_read,
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))
    model.close()


if __name__ == "__main__":
    main()
