"""Writes GGUF files, whole or split, with nothing but the standard library; copies a tokenizer from another file.

A file is written beside its final name and renamed when it is complete.  Tensor data comes from a callback in pieces, so
files far larger than memory can be written.
"""
import os
import struct

U16, U32, I32, F32, BOOL, STRING, ARRAY = 2, 4, 5, 6, 7, 8, 9
_SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_PACK = {U16: "<H", U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}
MAGIC = b"GGUF"
VERSION = 3


def _string(text):
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def entry(key, kind, value):
    """One metadata entry as bytes.  An array is given as kind (ARRAY, element kind)."""
    if isinstance(kind, tuple):
        element = kind[1]
        body = b"".join(_string(v) if element == STRING else struct.pack(_PACK[element], v) for v in value)
        return _string(key) + struct.pack("<IIQ", ARRAY, element, len(value)) + body
    if kind == STRING:
        return _string(key) + struct.pack("<I", STRING) + _string(value)
    return _string(key) + struct.pack("<I", kind) + struct.pack(_PACK[kind], value)


class Tensor:
    """Name, dimensions (the contiguous one first, as in the file), type number, bytes, and what the writer's callback needs."""

    def __init__(self, name, dims, kind, number, size, scale):
        self.name, self.dims, self.kind, self.number, self.size, self.scale = name, dims, kind, number, size, scale


def _header(entries, tensors, alignment):
    head = MAGIC + struct.pack("<IQQ", VERSION, len(tensors), len(entries)) + b"".join(entries)
    offset = 0
    for t in tensors:
        head += _string(t.name) + struct.pack("<I", len(t.dims)) + struct.pack(f"<{len(t.dims)}Q", *t.dims)
        head += struct.pack("<IQ", t.number, offset)
        offset += -(-t.size // alignment) * alignment
    return head + bytes(-len(head) % alignment)


def write(path, entries, tensors, pieces, alignment=32):
    """Writes one file.  pieces(tensor) yields the tensor's bytes in any number of parts."""
    if alignment != 32:
        entries = entries + [entry("general.alignment", U32, alignment)]
    partial = path + ".part"
    with open(partial, "wb") as out:
        out.write(_header(entries, tensors, alignment))
        for t in tensors:
            written = 0
            for part in pieces(t):
                out.write(part)
                written += len(part)
            if written != t.size:
                raise ValueError(f"{t.name}: {written} bytes made, {t.size} expected")
            out.write(bytes(-t.size % alignment))
    os.replace(partial, path)


def write_split(stem, shards, entries, tensors, pieces, alignment=32):
    """Writes STEM-00001-of-0000N.gguf and so on, the tensors dealt out in order; metadata goes into the first one, as
    llama-gguf-split does it.  Returns the first path."""
    share = -(-len(tensors) // shards)
    paths = [f"{stem}-{i + 1:05d}-of-{shards:05d}.gguf" for i in range(shards)]
    for i, path in enumerate(paths):
        split = [entry("split.no", U16, i), entry("split.count", U16, shards), entry("split.tensors.count", I32, len(tensors))]
        write(path, (entries if i == 0 else []) + split, tensors[i * share:(i + 1) * share], pieces, alignment)
    return paths[0]


class _Cursor:
    """Reads the header of a GGUF file that the caller trusts; a file that ends too early raises ValueError."""

    def __init__(self, file):
        self.file = file

    def take(self, count):
        raw = self.file.read(count)
        if len(raw) != count:
            raise ValueError(f"{self.file.name}: ends at byte {self.file.tell()} inside its header")
        return raw

    def number(self, form):
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def value(self, kind):
        """A value's raw bytes, type not included, and its element count when it is an array."""
        if kind == STRING:
            size = self.take(8)
            return size + self.take(struct.unpack("<Q", size)[0]), 0
        if kind != ARRAY:
            return self.take(_SCALAR_BYTES[kind]), 0
        head = self.take(12)
        element, count = struct.unpack("<IQ", head)
        if element in _SCALAR_BYTES:
            return head + self.take(count * _SCALAR_BYTES[element]), count
        return head + b"".join(self.value(element)[0] for _ in range(count)), count


def _entries_of(path):
    """Yields (key, type, raw value, element count) of a file's metadata."""
    with open(path, "rb") as file:
        cursor = _Cursor(file)
        if cursor.take(4) != MAGIC or cursor.number("<I") not in (2, VERSION):
            raise ValueError(f"{path}: not a GGUF file of version 2 or 3")
        _, count = cursor.number("<Q"), cursor.number("<Q")
        for _ in range(count):
            key = cursor.take(cursor.number("<Q"))
            kind = cursor.number("<I")
            yield key, kind, *cursor.value(kind)


def numbers_of(path):
    """The metadata entries that are 32-bit numbers or arrays, as {key: value or element count}; the
    architecture's own entries also without its prefix."""
    found, arch = {}, ""
    for key, kind, raw, elements in _entries_of(path):
        key = key.decode()
        if key == "general.architecture":
            arch = raw[8:].decode()
        if kind in (U32, I32):
            found[key] = struct.unpack(_PACK[kind], raw)[0]
        elif kind == ARRAY:
            found[key] = elements
    return {**found, **{k[len(arch) + 1:]: v for k, v in found.items() if k.startswith(arch + ".")}}


def tokenizer_of(path):
    """The tokenizer.* entries of another GGUF as raw bytes, and the number of its tokens."""
    entries, tokens = [], 0
    for key, kind, raw, elements in _entries_of(path):
        if key.startswith(b"tokenizer."):
            entries.append(_string(key) + struct.pack("<I", kind) + raw)
            tokens = elements if key == b"tokenizer.ggml.tokens" else tokens
    if not tokens:
        raise ValueError(f"{path}: holds no tokenizer")
    return entries, tokens
