#!/usr/bin/env python3
"""How close `weir pack` comes to what the drive can read and write at once.

    python3 bench/pack.py MODEL.gguf [--folder DIR] [--turns N]

In turns: the drive alone, as much of MODEL read as is written beside it, past the page cache, once by threads that read and
threads that write without waiting for each other, once by threads that do both in turn, whichever is faster; then `weir pack`.
Prints JSON: bytes a second of each turn and the ratio of the medians.  What is written is removed.
"""
import argparse
import ctypes
import json
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

BLOCK = 4 << 20
HUGE = 2 << 20
THREADS = 6


def each_block(count, threads_count, work):
    """work(block) for each of `count` blocks, dealt out to threads; the exception of one that failed."""
    blocks, lock, failed = iter(range(count)), threading.Lock(), []

    def run():
        try:
            while True:
                with lock:
                    block = next(blocks, None)
                if block is None:
                    return
                work(block)
        except OSError as error:
            failed.append(error)
    threads = [threading.Thread(target=run) for _ in range(threads_count)]
    for thread in threads:
        thread.start()
    return threads, failed


def huge_buffer():
    """BLOCK bytes in huge pages, as weir has them: a drive is given fewer, longer ranges then."""
    memory = mmap.mmap(-1, BLOCK + HUGE)
    memory.madvise(mmap.MADV_HUGEPAGE)
    skip = -ctypes.addressof(ctypes.c_char.from_buffer(memory)) % HUGE
    view = memoryview(memory)[skip:skip + BLOCK]
    view[:] = os.urandom(1 << 16) * (BLOCK >> 16)
    return view


def copy_rate(model, folder, limit, apart):
    """Bytes a second when as much is written as is read, at the same time: by threads of two kinds, or of one that does both."""
    count = min(os.path.getsize(model), limit) // BLOCK
    source = os.open(model, os.O_RDONLY | os.O_DIRECT)
    target, path = tempfile.mkstemp(dir=folder)
    os.unlink(path)
    os.posix_fallocate(target, 0, count * BLOCK)
    direct = os.open(f"/proc/self/fd/{target}", os.O_WRONLY | os.O_DIRECT)
    local = threading.local()

    def buffer():
        if not hasattr(local, "memory"):
            local.memory = huge_buffer()
        return local.memory
    began = time.monotonic()

    def read(block):
        os.preadv(source, [buffer()], block * BLOCK)

    def write(block):
        os.pwritev(direct, [buffer()], block * BLOCK)

    def both(block):
        read(block)
        write(block)
    crews = [each_block(count, THREADS // 2, work) for work in (read, write)] if apart else [each_block(count, THREADS, both)]
    for threads, failed in crews:
        for thread in threads:
            thread.join()
        for error in failed:
            raise error
    os.fsync(target)
    seconds = time.monotonic() - began
    for descriptor in (source, target, direct):
        os.close(descriptor)
    return count * BLOCK / seconds


def drive_alone(model, folder, limit):
    return max(copy_rate(model, folder, limit, apart) for apart in (True, False))


def pack(weir, model, folder):
    output = os.path.join(folder, f"bench-{os.getpid()}.weir")
    try:
        result = subprocess.run([weir, "pack", model, "-o", output, "--json", "-q"], stdout=subprocess.PIPE, check=True)
        return json.loads(result.stdout)["bytes_per_second"]
    finally:
        for path in (output, output + ".part"):
            if os.path.exists(path):
                os.unlink(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--folder", help="where to write (default: beside the model)")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--limit", type=int, default=4 << 30, help="bytes that the drive alone is measured over")
    parser.add_argument("--weir", default=os.path.join(os.path.dirname(__file__), "..", "build", "weir"))
    a = parser.parse_args()
    folder = a.folder or os.path.dirname(os.path.abspath(a.model))
    turns = [(drive_alone(a.model, folder, a.limit), pack(a.weir, a.model, folder)) for _ in range(a.turns)]
    drive, packed = (statistics.median(turn[i] for turn in turns) for i in (0, 1))
    print(json.dumps({"model": a.model, "bytes": os.path.getsize(a.model), "turns": a.turns,
                      "drive_bytes_per_second": [turn[0] for turn in turns], "pack_bytes_per_second": [t[1] for t in turns],
                      "ratio": packed / drive, "target": 0.9}, indent=2))
    return 0 if packed >= 0.9 * drive else 1


if __name__ == "__main__":
    sys.exit(main())
