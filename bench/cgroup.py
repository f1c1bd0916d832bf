"""A memory cgroup around a program: version 1 or 2, whichever this system mounts, as root (or where a v2 tree is delegated).

A group is made for one run, limits its memory, keeps it from swapping, and is removed afterwards.  When no memory
controller can be used, `why_not()` says so in one sentence and nothing is measured in its stead.
"""
import contextlib
import os

UNLIMITED = None


def _mounts():
    """(filesystem type, mount point, super options) of this process's mounts."""
    with open("/proc/self/mountinfo") as file:
        for line in file:
            left, _, right = line.partition(" - ")
            kind, _, options = right.split()[:3]
            yield kind, left.split()[4], options.split(",")


def _find():
    """(version, folder in which groups can be made), or (0, reason)."""
    for kind, where, options in _mounts():
        if kind == "cgroup" and "memory" in options:
            writable = os.access(where, os.W_OK)
            return (1, where) if writable else (0, f"{where} is not writable: the v1 memory controller needs root")
    for kind, where, _ in _mounts():
        if kind != "cgroup2":
            continue
        with open(os.path.join(where, "cgroup.controllers")) as file:
            if "memory" not in file.read().split():
                continue
        control = os.path.join(where, "cgroup.subtree_control")
        if not os.access(control, os.W_OK):
            return 0, f"{control} is not writable: cgroups need root here"
        with open(control, "w") as file:
            file.write("+memory")
        return 2, where
    return 0, "no cgroup memory controller is mounted"


def why_not():
    """None, or why memory cannot be limited here."""
    version, reason = _find()
    return None if version else reason


class Group:
    """A cgroup with a memory limit.  `enter` is called in the child before it becomes the program."""

    def __init__(self, version, path):
        self.version, self.path = version, path

    def _write(self, name, value):
        with open(os.path.join(self.path, name), "w") as file:
            file.write(str(value))

    def _read(self, name):
        with open(os.path.join(self.path, name)) as file:
            return file.read()

    def limit(self, count):
        """Memory may take `count` bytes, and nothing may be swapped.

        In version 1 by swappiness: a limit on memory and swap together would be met before memory's own, and then
        memory.failcnt stays at 0 whatever happens.
        """
        if self.version == 1:
            self._write("memory.limit_in_bytes", count)
            self._write("memory.swappiness", 0)
            return
        self._write("memory.max", count)
        with contextlib.suppress(OSError):
            self._write("memory.swap.max", 0)

    def enter(self):
        self._write("cgroup.procs", os.getpid())

    def counts(self):
        """{limit_hits, peak_bytes}: how often the limit was hit, and the most that was charged (None where not counted)."""
        if self.version == 1:
            return {"limit_hits": int(self._read("memory.failcnt")), "peak_bytes": int(self._read("memory.max_usage_in_bytes"))}
        events = dict(line.split() for line in self._read("memory.events").splitlines())
        peak = None
        with contextlib.suppress(OSError):  # since Linux 5.19
            peak = int(self._read("memory.peak"))
        return {"limit_hits": int(events["max"]), "peak_bytes": peak}


@contextlib.contextmanager
def limited(count):
    """A group with a limit of `count` bytes, or None in place of one when count is UNLIMITED."""
    if count is UNLIMITED:
        yield None
        return
    version, where = _find()
    if not version:
        raise OSError(where)
    group = Group(version, os.path.join(where, f"weir-bench-{os.getpid()}"))
    os.mkdir(group.path)
    try:
        group.limit(count)
        yield group
    finally:
        os.rmdir(group.path)


class Unusable(Exception):
    """A drive cannot be throttled here; the text says why."""


def _drive_number(path):
    """MAJOR:MINOR of the whole drive below a path."""
    number = os.stat(path).st_dev
    block = os.path.realpath(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not os.path.isdir(os.path.join(block, "queue")):
        block = os.path.dirname(block)
    try:
        with open(os.path.join(block, "dev")) as file:
            return file.read().strip()
    except OSError as why:
        raise Unusable(f"{path} lies on no drive of its own") from why


def _throttle_group():
    """(folder in which groups can be made, the file that takes a rate, how a rate is written there)."""
    for kind, where, options in _mounts():
        if kind == "cgroup" and "blkio" in options and os.access(where, os.W_OK):
            return where, "blkio.throttle.read_bps_device", "{drive} {rate}"
    for kind, where, _ in _mounts():
        control = os.path.join(where, "cgroup.subtree_control")
        if kind == "cgroup2" and os.access(control, os.W_OK):
            with open(os.path.join(where, "cgroup.controllers")) as file:
                if "io" not in file.read().split():
                    continue
            with open(control, "w") as file:
                file.write("+io")
            return where, "io.max", "{drive} rbps={rate}"
    raise Unusable("no cgroup that throttles drives can be made: that needs root")


@contextlib.contextmanager
def throttled(path, rate):
    """The words that start a command whose reads of the drive below `path` are held to `rate` bytes per second."""
    drive = _drive_number(path)
    where, name, form = _throttle_group()
    group = os.path.join(where, f"weir-throttle-{os.getpid()}")
    os.mkdir(group)
    try:
        try:
            with open(os.path.join(group, name), "w") as file:
                file.write(form.format(drive=drive, rate=rate))
        except OSError as why:
            raise Unusable(f"{drive} cannot be throttled: {why}") from why
        yield ["sh", "-c", f'echo 0 >"{group}/cgroup.procs" && exec "$@"', "sh"]
    finally:
        os.rmdir(group)
