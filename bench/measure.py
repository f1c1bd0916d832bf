"""Runs one program and says what it cost: its JSON, wall time, what the kernel counted, faults over time.

Counters come from the kernel (wait4, /proc/PID/stat, the cgroup), so that a program's own report can be checked against them.
"""
import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time

import cgroup

SAMPLE_SECONDS = 0.02
PR_SET_PDEATHSIG = 1


class Failed(Exception):
    """A program did not do what the measurement needs; the text says which and what it printed."""


class Cost:
    """What one run took.  faults: [(seconds since start, major faults so far)]."""

    def __init__(self, code, out, err, seconds, usage, faults, group):
        self.code, self.out, self.err, self.seconds, self.faults = code, out, err, seconds, faults
        self.drive_bytes = usage.ru_inblock * 512
        self.peak_bytes = usage.ru_maxrss * 1024
        self.cpu_seconds = usage.ru_utime + usage.ru_stime
        self.major_faults = usage.ru_majflt
        self.group = group  # cgroup.Group.counts(), or None

    def json(self):
        """The last line of standard output that is a JSON value; an object printed over several lines counts as one."""
        with contextlib.suppress(ValueError):
            return json.loads(self.out)
        for line in reversed(self.out.splitlines()):
            with contextlib.suppress(ValueError):
                return json.loads(line)
        raise Failed(f"no JSON in: {self.out[-300:]!r}")

    def faults_per_token(self, decode_seconds, tokens):
        """Major faults per token in the steady state: from two fifths to nine tenths of the decode phase, whose end is taken
        to be the end of the run."""
        if not self.faults or tokens < 2 or decode_seconds <= 0:
            return None
        end = self.faults[-1][0]
        start, stop = end - 0.6 * decode_seconds, end - 0.1 * decode_seconds
        inside = [count for at, count in self.faults if start <= at <= stop]
        return (inside[-1] - inside[0]) / (0.5 * tokens) if len(inside) > 1 else None


def _major_faults(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[9])


def _sample(pid, start, samples, done):
    while not done.wait(SAMPLE_SECONDS):
        with contextlib.suppress(OSError, IndexError):
            samples.append((time.monotonic() - start, _major_faults(pid)))


def _before_exec(group):
    """In the child: die with the parent, and enter the cgroup."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if group:
        group.enter()


def _collect(pipe, into):
    reader = threading.Thread(target=lambda: into.append(pipe.read()), daemon=True)
    reader.start()
    return reader


def _wait(process, timeout):
    """wait4 with a limit: the child is killed when it takes longer."""
    timer = threading.Timer(timeout, process.kill)
    timer.start()
    _, status, usage = os.wait4(process.pid, 0)
    timer.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage


def run(command, limit=cgroup.UNLIMITED, env=None, timeout=1800):
    """Runs a command to its end, in a cgroup of `limit` bytes if one is given, and returns its Cost."""
    samples, out, err, done = [], [], [], threading.Event()
    with cgroup.limited(limit) as group:
        start = time.monotonic()
        process = subprocess.Popen(command, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, preexec_fn=lambda: _before_exec(group))
        threads = [_collect(process.stdout, out), _collect(process.stderr, err)]
        threads.append(threading.Thread(target=_sample, args=(process.pid, start, samples, done), daemon=True))
        threads[-1].start()
        usage = _wait(process, timeout)
        seconds = time.monotonic() - start
        done.set()
        for thread in threads:
            thread.join()
        counts = group.counts() if group else None
    return Cost(process.returncode, out[0].decode(errors="replace"), err[0].decode(errors="replace"), seconds, usage, samples,
                counts)


def run_json(command, **more):
    """run() for a program that must succeed and print JSON: (its JSON, its Cost)."""
    cost = run(command, **more)
    if cost.code != 0:
        raise Failed(f"exit {cost.code}: {' '.join(command)[:300]}\n{cost.err[-1500:]}")
    return cost.json(), cost


@contextlib.contextmanager
def neighbour():
    """Another process that keeps one core busy."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=lambda: _before_exec(None))
    try:
        yield
    finally:
        process.kill()
        process.wait()
