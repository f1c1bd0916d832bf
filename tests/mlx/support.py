"""What the tests of weir.mlx share: a folder for each test, counts of what could leak, hashes of files."""
import gc
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "python"))
LONG = bool(os.environ.get("WEIR_TEST_FULL"))
os.environ.setdefault("WEIR_COUNTS", "off")  # the user's cache folder is none of the tests' business; test_counts.py has one of its own


def sha256_of(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def status(field):
    """A line of /proc/self/status, in bytes: VmRSS, RssAnon, VmHWM."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))


def mappings_count():
    with open("/proc/self/maps", "rb") as maps:
        return sum(1 for _ in maps)


def descriptors_count():
    return len(os.listdir("/proc/self/fd"))


def python(code, *arguments, timeout=240, **environment):
    """Runs a script in a process of its own; returns what subprocess.run does."""
    variables = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "python") + os.pathsep + HERE, **environment}
    return subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, timeout=timeout,
                          env=variables, check=False)


class Folder(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="weir-mlx-")
        self.addCleanup(folder.cleanup)
        self.addCleanup(gc.collect)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def own_cache(self):
        """Variables for a process with a cache folder of its own, in which the shim is there already, and counts are kept."""
        from weir.mlx import _shim

        os.makedirs(self.path("cache/weir/mlx"), mode=0o700, exist_ok=True)
        shutil.copy(_shim.shim().path, self.path("cache/weir/mlx"))
        return {"XDG_CACHE_HOME": self.path("cache"), "WEIR_COUNTS": ""}
