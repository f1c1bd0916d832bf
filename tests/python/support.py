"""What the tests of the Python package share: safetensors files written by hand, counts of mappings, descriptors and memory."""
import gc
import json
import os
import struct
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("WEIR_BUILD_DIR") or os.path.join(ROOT, "build")


def write_safetensors(path, tensors, pad=0, metadata=None):
    """Writes {name: (dtype, shape, bytes)} in that order; `pad` spaces after the header move the data."""
    header, at = {}, 0
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8 + pad)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def mappings_of(path):
    """How often this process has the file mapped."""
    real = os.path.realpath(path)
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        return sum(line.rstrip("\n").endswith(real) for line in maps)


def mappings_count():
    with open("/proc/self/maps", "rb") as maps:
        return sum(1 for _ in maps)


def descriptors_count():
    return len(os.listdir("/proc/self/fd"))


def resident_bytes():
    """Anonymous memory of this process: what leaks, without the pages of files."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))


class Folder(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="weir-python-")
        self.addCleanup(folder.cleanup)
        self.addCleanup(gc.collect)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)
