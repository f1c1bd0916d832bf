"""What the figures were taken on: processor, memory, kernel, drive; and how the page cache is put into a known state."""
import glob
import mmap
import os
import platform
import subprocess
import time


def _line(path, key):
    try:
        with open(path) as file:
            return next((line.partition(":")[2].strip() for line in file if line.startswith(key)), None)
    except OSError:
        return None


def _text(path):
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return None


def _mount_of(path):
    """(mount point, device, filesystem) that holds a path: the longest mount point that is its prefix."""
    best = ("", "", "")
    with open("/proc/self/mounts") as file:
        for line in file:
            device, where, kind = line.split()[:3]
            inside = path == where or path.startswith(where.rstrip("/") + "/")
            if inside and len(where) >= len(best[0]):
                best = (where, device, kind)
    return best


def drive_of(path):
    """{filesystem, drive, drive_model, ...} of the drive below a path, as far as the system tells."""
    _, device, kind = _mount_of(os.path.realpath(path))
    number = os.stat(path).st_dev
    block = os.path.realpath(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    disk = block if os.path.isdir(os.path.join(block, "queue")) else os.path.dirname(block)
    return {"filesystem": kind, "drive": device, "drive_model": _text(os.path.join(disk, "device", "model")),
            "drive_rotational": _text(os.path.join(disk, "queue", "rotational")),
            "drive_scheduler": _text(os.path.join(disk, "queue", "scheduler"))}


def describe(path):
    """One flat object about this machine and the drive that holds `path`."""
    memory = _line("/proc/meminfo", "MemTotal")
    return {"system": platform.system(), "kernel": platform.release(), "architecture": platform.machine(),
            "processor": _line("/proc/cpuinfo", "model name"), "processors": len(os.sched_getaffinity(0)),
            "memory_bytes": int(memory.split()[0]) * 1024 if memory else None, **drive_of(path)}


def shards_of(path):
    """All files of a model."""
    stem, mark, rest = path.partition("-00001-of-")
    return sorted(glob.glob(glob.escape(stem) + "-*-of-" + rest)) if mark else [path]


def make_cold(path):
    """Drops a model's pages from the page cache.  No privilege is needed: they are clean after a sync."""
    for name in shards_of(path):
        handle = os.open(name, os.O_RDONLY)
        try:
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)


def make_warm(path):
    """Reads a model through the page cache once."""
    for name in shards_of(path):
        with open(name, "rb", buffering=0) as file:
            while file.read(8 << 20):
                pass


def fresh_memory_seconds(size):
    """What this machine takes to give a process `size` bytes of memory that nobody has used yet."""
    with mmap.mmap(-1, size) as memory:
        began = time.monotonic()
        for page in range(0, size, mmap.PAGESIZE):
            memory[page] = 1
        took = time.monotonic() - began
        for page in range(0, size, mmap.PAGESIZE):
            memory[page] = 2
        return max(0.0, 2 * took - (time.monotonic() - began))  # less what the loop itself takes


def commit_of(folder):
    """The checkout's commit, with a mark when files were changed, or None."""
    done = subprocess.run(["git", "-C", folder, "describe", "--always", "--dirty"], capture_output=True, check=False)
    return done.stdout.decode().strip() or None if done.returncode == 0 else None


def available_bytes():
    """Memory that programs may still take."""
    return int(_line("/proc/meminfo", "MemAvailable").split()[0]) * 1024
