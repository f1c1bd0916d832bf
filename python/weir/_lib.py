"""The C library: found, loaded, its public functions declared.  Nothing here knows what arrays or models are.

Every function is one of ``include/weir/*.h``; those headers say what it does, and in which threads.  Calls release the
interpreter's lock, so they may wait for the drive.
"""
from __future__ import annotations

import ctypes
import os
import sys
from ctypes import POINTER, byref, c_bool, c_char_p, c_int, c_int32, c_uint32, c_uint64, c_void_p
from typing import Any, NoReturn, Optional

from ._errors import Error, InvalidArgumentError, class_of

ABI = "0.1"  # of the library that the declarations below are for: the first two numbers of its version
RANK_MAX = 8
NO_OFFSET = 2**64 - 1
NO_INDEX = 2**32 - 1
FOLDER = os.path.dirname(os.path.abspath(__file__))


class CError(ctypes.Structure):
    """``weir_error``."""

    _fields_ = [("code", c_int), ("sys_errno", c_int), ("offset", c_uint64), ("file", ctypes.c_char * 512),
                ("message", ctypes.c_char * 512)]


class CDtypeInfo(ctypes.Structure):
    """``weir_dtype_info``."""

    _fields_ = [("dtype", c_int), ("ggml_type", c_int32), ("block_elements", c_uint32), ("block_bytes", c_uint32),
                ("alignment_bytes", c_uint32), ("name", c_char_p)]


class CTensor(ctypes.Structure):
    """``weir_tensor``."""

    _fields_ = [("name", c_char_p), ("dtype_name", c_char_p), ("dtype", c_int), ("block_elements", c_uint32),
                ("block_bytes", c_uint32), ("rank", c_uint32), ("shape", c_uint64 * RANK_MAX), ("elements", c_uint64),
                ("shard", c_uint32), ("offset", c_uint64), ("bytes", c_uint64)]


class CValue(ctypes.Structure):
    """``weir_value``; ``bits`` stands for the union."""

    _fields_ = [("bits", c_uint64), ("text", c_void_p)]


class CMetadata(ctypes.Structure):
    """``weir_metadata``."""

    _fields_ = [("key", c_char_p), ("type", c_int), ("is_array", c_bool), ("count", c_uint64), ("kept", c_uint64),
                ("values", POINTER(CValue))]


class CArray(ctypes.Structure):
    """``weir_array``."""

    _fields_ = [("dtype", c_int), ("kind", c_int), ("bits", c_uint32), ("plain", c_bool), ("alignment_bytes", c_uint32),
                ("rank", c_uint32), ("shape", c_uint64 * RANK_MAX), ("bytes", c_uint64)]


class CCapsuleCalls(ctypes.Structure):
    """``weir_capsule_calls``."""

    _fields_ = [("capsule_new", c_void_p), ("capsule_is_valid", c_void_p), ("capsule_get_pointer", c_void_p)]


def candidates(name: str) -> list[str]:
    """Where a library of weir may be: beside the one that WEIR_LIBRARY names, in this package, or where the system looks."""
    named = os.environ.get("WEIR_LIBRARY")
    if named:
        return [named if name.startswith("libweir.") else os.path.join(os.path.dirname(os.path.abspath(named)), name)]
    return [path for path in (os.path.join(FOLDER, "lib", name),) if os.path.exists(path)] + [name]


def _load() -> ctypes.CDLL:
    if not sys.platform.startswith("linux"):
        raise ImportError("weir runs on Linux only so far")
    tried = []
    for path in candidates("libweir.so.0"):
        try:
            return ctypes.CDLL(path)
        except OSError as problem:
            tried.append(str(problem))
    raise ImportError("libweir.so.0 cannot be loaded: " + "; ".join(tried)
                      + ".  Install the package with pip, or name the library in WEIR_LIBRARY")


lib = _load()


def declare(name: str, result: Any, *arguments: Any) -> Any:
    """Gives a function of the library its types, and returns it."""
    function = getattr(lib, name)
    function.restype = result
    function.argtypes = list(arguments)
    return function


_error = POINTER(CError)
_out = POINTER(c_void_p)
declare("weir_version", c_char_p)
declare("weir_error_name", c_char_p, c_int)
declare("weir_dtype_describe", POINTER(CDtypeInfo), c_int)
declare("weir_format_name", c_char_p, c_int)

declare("weir_checkpoint_open", c_int, c_char_p, c_void_p, _out, _error)
declare("weir_checkpoint_close", None, c_void_p)
declare("weir_checkpoint_format", c_int, c_void_p)
declare("weir_checkpoint_architecture", c_char_p, c_void_p)
declare("weir_checkpoint_aligned", c_bool, c_void_p)
declare("weir_checkpoint_shards_count", c_uint32, c_void_p)
declare("weir_checkpoint_shard_path", c_char_p, c_void_p, c_uint32)
declare("weir_checkpoint_shard_bytes", c_uint64, c_void_p, c_uint32)
declare("weir_checkpoint_tensors_count", c_uint32, c_void_p)
declare("weir_checkpoint_tensors_bytes", c_uint64, c_void_p)
declare("weir_checkpoint_tensor", POINTER(CTensor), c_void_p, c_uint32)
declare("weir_tensor_shape_row_major", None, c_void_p, POINTER(CTensor), POINTER(c_uint64))
declare("weir_checkpoint_metadata_count", c_uint32, c_void_p)
declare("weir_checkpoint_metadata", POINTER(CMetadata), c_void_p, c_uint32)
declare("weir_checkpoint_check_unchanged", c_int, c_void_p, _error)

declare("weir_mapping_open", c_int, c_void_p, c_uint32, _out, _error)
declare("weir_mapping_read", c_int, c_void_p, c_uint32, _out, _error)
declare("weir_mapping_open_extent", c_int, c_char_p, c_uint64, c_uint64, _out, _error)
declare("weir_mapping_read_extent", c_int, c_char_p, c_uint64, c_uint64, _out, _error)
declare("weir_mapping_data", c_void_p, c_void_p)
declare("weir_mapping_bytes", c_uint64, c_void_p)
declare("weir_mapping_copied", c_bool, c_void_p)
declare("weir_mapping_allow_writes", c_int, c_void_p, _error)
declare("weir_mapping_retain", c_void_p, c_void_p)
declare("weir_mapping_close", None, c_void_p)

declare("weir_array_describe", c_int, c_int, c_uint32, POINTER(c_uint64), POINTER(CArray), _error)
declare("weir_array_export", c_int, POINTER(CArray), c_void_p, c_bool, _out, _error)
declare("weir_array_export_unversioned", c_int, POINTER(CArray), c_void_p, _out, _error)


def version() -> str:
    """Version of the library that is loaded, ``"0.1.0"``."""
    text: bytes = lib.weir_version()
    return text.decode()


if version().split(".")[:2] != ABI.split("."):
    raise ImportError(f"libweir.so.0 is version {version()} and this package is for {ABI}: install both from the same source")


def raise_error(code: int, error: Optional[CError] = None, file: Optional[str] = None) -> NoReturn:
    """Raises the exception for a code of the library and its error record; ``file`` stands in when the record names none."""
    if error is None:
        error = CError(code=code, offset=NO_OFFSET)
    name = os.fsdecode(error.file) or file
    kind = class_of(code)
    message = os.fsdecode(error.message) or lib.weir_error_name(code).decode()
    problem = kind(message, file=name, offset=None if error.offset == NO_OFFSET else error.offset,
                   errno=error.sys_errno or None)
    if kind is Error:
        problem.code = code
    raise problem


def call(name: str, *arguments: Any, file: Optional[str] = None) -> int:
    """Calls a function whose last argument is a ``weir_error *``; returns its result, or raises."""
    error = CError(offset=NO_OFFSET)
    code: int = getattr(lib, name)(*arguments, byref(error))
    if code < 0:
        raise_error(code, error, file)
    return code


def open_handle(name: str, *arguments: Any, file: Optional[str] = None) -> int:
    """The same for a function that makes something: the pointer it gives, as an integer."""
    handle = c_void_p()
    call(name, *arguments, byref(handle), file=file)
    assert handle.value is not None
    return handle.value


def path_bytes(path: Any) -> bytes:
    """A path as the library takes it."""
    try:
        encoded = os.fsencode(path)
    except TypeError as problem:
        raise InvalidArgumentError(f"a path is a str, bytes or os.PathLike, not {type(path).__name__}") from problem
    if b"\0" in encoded:
        raise InvalidArgumentError("a path holds no NUL character")
    return encoded


__all__ = ["CArray", "CCapsuleCalls", "CDtypeInfo", "CError", "CMetadata", "CTensor", "call", "declare", "lib", "open_handle",
           "path_bytes", "raise_error", "version"]
