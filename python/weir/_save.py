"""weir.save_safetensors: a safetensors file whose tensors can all be mapped in place.

    | 8 bytes | header, padded with spaces | tensors whose sizes are multiples of 4096 | of 2048 | ... | odd sizes |
    0                                      4096 × n: the first tensor

The format allows no gaps between tensors.  In order of the largest power of two that divides their sizes, each begins at a multiple
of its own: so none is misaligned for its type, and those whose sizes are whole pages begin at pages.
"""
from __future__ import annotations

import errno
import json
import os
import secrets
import struct
from collections import abc
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from ._arrays import View
from ._dtypes import DTYPES, Dtype, dtype_of
from ._errors import (AccessError, DtypeError, Error, InputOutputError, InvalidArgumentError, LimitError, NoSpaceError, NotFoundError,
                      NotRegularFileError)
from ._lib import path_bytes

_PAGE_BYTES = 4096
_HEADER_BYTES_MAX = 100_000_000  # what readers accept
_WRITE_BYTES = 64 << 20
_SAFETENSORS_LAST = DTYPES["F4"].number  # types beyond are ggml's


class _Tensor(NamedTuple):
    name: str
    dtype: Dtype
    shape: Tuple[int, ...]
    data: memoryview  # of bytes


def _bytes_of(array: Any) -> memoryview:
    """The bytes of a NumPy array in C order and little-endian, copied only where they are not so already."""
    import numpy

    array = numpy.ascontiguousarray(array)
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    return memoryview(array.reshape(-1).view(numpy.uint8)) if array.size else memoryview(b"")


def _from_torch(torch: Any, tensor: Any) -> memoryview:
    plain = tensor.detach().cpu().contiguous()
    return _bytes_of(plain.reshape(-1).view(torch.uint8).numpy()) if plain.numel() else memoryview(b"")


def _from_mlx(mx: Any, array: Any) -> memoryview:
    flat = mx.contiguous(array).reshape(-1)
    if not flat.size:
        return memoryview(b"")
    flat = flat.astype(mx.uint8) if array.dtype == mx.bool_ else flat.view(mx.uint8)
    mx.eval(flat)
    return memoryview(flat).cast("B")


def _data_of(name: str, value: Any) -> memoryview:
    module = type(value).__module__.split(".")[0]
    if isinstance(value, View):
        return _bytes_of(value.numpy())
    if module == "torch":
        import torch

        return _from_torch(torch, value)
    if module == "mlx":
        import mlx.core as mx

        return _from_mlx(mx, value)
    if not hasattr(value, "__array_interface__"):
        raise InvalidArgumentError(f"tensor {name!r} is a {type(value).__name__}: save arrays of NumPy, PyTorch or MLX")
    import numpy

    return _bytes_of(numpy.asarray(value))


def _take(name: Any, value: Any) -> _Tensor:
    if not isinstance(name, str) or name == "__metadata__" or "\0" in name:
        raise InvalidArgumentError(f"{name!r} is no name for a tensor")
    if not isinstance(value, View) and not hasattr(value, "dtype"):
        raise InvalidArgumentError(f"tensor {name!r} is a {type(value).__name__}: save arrays of NumPy, PyTorch or MLX")
    dtype = dtype_of(value.dtype)
    if dtype.number > _SAFETENSORS_LAST:
        raise DtypeError(f"tensor {name!r}: safetensors has no type {dtype.name}; write its bytes as U8")
    shape = tuple(int(n) for n in value.shape)
    if dtype.block_elements > 1:
        raise DtypeError(f"tensor {name!r}: {dtype.name} is stored in groups and cannot be saved from an array; save its bytes as U8")
    return _Tensor(name, dtype, shape, _data_of(name, value))


def _power_of_two(tensor: _Tensor) -> int:
    nbytes = len(tensor.data)
    return min(nbytes & -nbytes, _PAGE_BYTES) if nbytes else _PAGE_BYTES


def _header_of(tensors: List[_Tensor], metadata: Optional[Mapping[str, str]]) -> bytes:
    entries: Dict[str, Any] = {}
    if metadata:
        if not all(isinstance(key, str) and isinstance(value, str) for key, value in metadata.items()):
            raise InvalidArgumentError("metadata maps texts to texts: convert numbers with str()")
        entries["__metadata__"] = dict(metadata)
    at = 0
    for tensor in tensors:
        entries[tensor.name] = {"dtype": tensor.dtype.name, "shape": tensor.shape, "data_offsets": [at, at + len(tensor.data)]}
        at += len(tensor.data)
    try:
        text = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as problem:
        raise InvalidArgumentError(f"names and metadata must be UTF-8: {problem}") from problem
    text += b" " * (-(len(text) + 8) % _PAGE_BYTES)
    if len(text) > _HEADER_BYTES_MAX:
        raise InvalidArgumentError(f"the header would have {len(text)} bytes, and readers accept {_HEADER_BYTES_MAX}")
    return struct.pack("<Q", len(text)) + text


_KINDS = {errno.ENOENT: NotFoundError, errno.ENOTDIR: NotFoundError, errno.EACCES: AccessError, errno.EPERM: AccessError,
          errno.EROFS: AccessError, errno.ENOSPC: NoSpaceError, errno.EDQUOT: NoSpaceError, errno.EMFILE: LimitError,
          errno.ENFILE: LimitError}


def _system_error(problem: OSError, path: str) -> Error:
    return _KINDS.get(problem.errno or 0, InputOutputError)("cannot write", file=path, errno=problem.errno)


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data[:_WRITE_BYTES]):]


def _write_beside(path: bytes, parts: List[memoryview]) -> None:
    """Writes a file with another name, flushes it, gives it its name; or leaves nothing."""
    folder = os.path.dirname(path) or b"."
    beside = path + b"." + secrets.token_hex(6).encode() + b".part"
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        try:
            for part in parts:
                _write_all(descriptor, part)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(beside, path)
    except BaseException:
        os.unlink(beside)
        raise
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def save_safetensors(path: Any, tensors: Mapping[str, Any], metadata: Optional[Mapping[str, str]] = None) -> None:
    """Saves arrays as a safetensors file that can be mapped in place: its data begin at a page, none of its tensors is misaligned.

    Args:
        path: of the file.  It is written beside and renamed, so that it is whole or not there, and a file of that name stays as
            it was for those who have it mapped: saving views of a file over that file is safe.  The file is a new one then:
            a checkpoint that was opened before raises ``ChangedError``.
        tensors: names and arrays of NumPy, PyTorch or MLX, or :class:`weir.View`.  Arrays in C order are not copied.
        metadata: texts by name.

    Raises:
        DtypeError: a type that safetensors lacks.
        InvalidArgumentError: a name, value or metadata that cannot be saved.
        NotFoundError, AccessError, NoSpaceError, NotRegularFileError, InputOutputError: the file cannot be written.
    """
    encoded = path_bytes(path)
    name = os.fsdecode(encoded)
    if os.path.exists(encoded) and not os.path.isfile(encoded):
        raise NotRegularFileError("only regular files are written", file=name)
    if not isinstance(tensors, abc.Mapping):
        raise InvalidArgumentError(f"tensors are a mapping of names to arrays, not {type(tensors).__name__}")
    if metadata is not None and not isinstance(metadata, abc.Mapping):
        raise InvalidArgumentError(f"metadata maps texts to texts, and is not {type(metadata).__name__}")
    taken = sorted((_take(key, value) for key, value in tensors.items()), key=_power_of_two, reverse=True)
    header = _header_of(taken, metadata)
    try:
        _write_beside(encoded, [memoryview(header), *(tensor.data for tensor in taken)])
    except OSError as problem:
        raise _system_error(problem, name) from problem
