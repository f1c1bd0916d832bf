"""Mappings and the views over them that other libraries turn into arrays.

A ``Mapping`` owns one reference to the C library's mapping.  A ``View`` is a mapping with a type and a shape; NumPy, PyTorch and
others take it through DLPack, each array with a reference of its own that native code drops, in whatever thread.  Nothing is
read until it is used, and nothing here holds a descriptor.
"""
from __future__ import annotations

import ctypes
import operator
from ctypes import byref, c_uint64, c_void_p
from typing import Any, Dict, Optional, Sequence, Tuple

from ._dtypes import BY_NUMBER, Dtype, dtype_of
from ._errors import DtypeError, InvalidArgumentError, MisalignedError
from ._lib import RANK_MAX, CArray, CCapsuleCalls, call, lib, open_handle, path_bytes

_CPU = 1  # DLPack's number
_KIND_LETTERS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
_KIND_NAMES = {0: "int", 1: "uint", 2: "float", 5: "complex", 6: "bool"}


class Mapping:
    """Bytes of a file in memory: its pages, or a copy.  Unmapped with the last reference, here or in an array."""

    __slots__ = ("_handle", "_close")

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._close = lib.weir_mapping_close  # still there while the interpreter shuts down

    def __del__(self) -> None:
        handle, self._handle = getattr(self, "_handle", 0), 0
        if handle:
            self._close(handle)

    @property
    def handle(self) -> int:
        """``weir_mapping *``; valid while this object is."""
        return self._handle

    @property
    def address(self) -> int:
        """Of the first byte."""
        return int(lib.weir_mapping_data(self._handle))

    @property
    def nbytes(self) -> int:
        """Bytes."""
        return int(lib.weir_mapping_bytes(self._handle))

    @property
    def copied(self) -> bool:
        """True: read into memory; False: the file's own pages."""
        return bool(lib.weir_mapping_copied(self._handle))

    def retain(self) -> int:
        """One more reference, as a ``weir_mapping *`` that wants one ``weir_mapping_close``: for deleters in native code."""
        return int(lib.weir_mapping_retain(self._handle))


def _capsule_calls() -> CCapsuleCalls:
    api = ctypes.pythonapi
    return CCapsuleCalls(*(ctypes.cast(f, c_void_p).value
                           for f in (api.PyCapsule_New, api.PyCapsule_IsValid, api.PyCapsule_GetPointer)))


# Through PyDLL: called with the interpreter's lock held, since it makes an object.
_make_capsule = ctypes.PyDLL(None, handle=lib._handle).weir_array_capsule
_make_capsule.restype = ctypes.py_object
_make_capsule.argtypes = [ctypes.POINTER(CCapsuleCalls), c_void_p, ctypes.c_bool]
_calls = _capsule_calls()


class View:
    """A tensor in a file, ready to become an array without a copy.

    Takes part in DLPack (``numpy.from_dlpack(view)``, ``torch.from_dlpack(view)``...) and in NumPy's array interface.  Arrays
    made from it keep the bytes in memory; the view itself may go.

    Attributes:
        dtype: the type in the file.
        shape: outermost first, in elements of ``array_dtype``.
        array_dtype: the type of the array's elements, in NumPy's words: ``"float32"``; for types that NumPy lacks, the unsigned
            integers that hold their bits (``"uint16"`` for BF16, ``"uint8"`` for 8-bit floating point and quantised blocks).
        copied: True when the bytes were read into memory; False when they are the file's pages.
        why_copied: the reason, or ``None``.
        nbytes: bytes.
    """

    def __init__(self, mapping: Mapping, array: CArray, *, why_copied: Optional[str] = None) -> None:
        self._mapping = mapping
        self._array = array
        self._writable = False
        self.dtype: Dtype = BY_NUMBER[array.dtype]
        self.shape: Tuple[int, ...] = tuple(array.shape[:array.rank])
        self.array_dtype: str = _KIND_NAMES[array.kind] + ("" if array.kind == 6 else str(array.bits))
        self.copied: bool = mapping.copied
        self.why_copied: Optional[str] = why_copied
        self.nbytes: int = array.bytes

    @property
    def plain(self) -> bool:
        """True when the array's elements are the file's; False when they are integers that hold their bits."""
        return bool(self._array.plain)

    @property
    def mapping(self) -> Mapping:
        """The bytes."""
        return self._mapping

    @property
    def address(self) -> int:
        """Of the first byte."""
        return self._mapping.address

    def __repr__(self) -> str:
        return f"<weir.View {self.dtype.name} as {self.array_dtype} {list(self.shape)}{' copied' if self.copied else ''}>"

    def allow_writes(self) -> "View":
        """Lets arrays over this view be written to, each page copied when it first is; the file never changes.  Returns self."""
        call("weir_mapping_allow_writes", self._mapping.handle)
        self._writable = True
        return self

    def __dlpack_device__(self) -> Tuple[int, int]:
        return (_CPU, 0)

    def __dlpack__(self, *, stream: Any = None, max_version: Optional[Tuple[int, int]] = None,
                   dl_device: Optional[Tuple[int, int]] = None, copy: Optional[bool] = None) -> Any:
        """A capsule (DLPack 1.0).  BufferError: a library from before 1.0, which could not be told that this is read-only."""
        if stream is not None or dl_device not in (None, (_CPU, 0)):
            raise BufferError("a mapped file is in main memory")
        if copy:
            raise BufferError("views are not copied: copy the array")
        versioned = max_version is not None and max_version[0] >= 1
        if not versioned and not self._writable:
            raise BufferError("this library speaks a DLPack before 1.0, which has no read-only arrays: use a newer one, or "
                              "view.allow_writes()")
        managed = c_void_p()
        if versioned:
            call("weir_array_export", byref(self._array), self._mapping.handle, self._writable, byref(managed))
        else:
            call("weir_array_export_unversioned", byref(self._array), self._mapping.handle, byref(managed))
        return _make_capsule(byref(_calls), managed, versioned)

    @property
    def __array_interface__(self) -> Dict[str, Any]:
        letter = _KIND_LETTERS[self._array.kind]
        size = self._array.bits // 8
        return {"version": 3, "shape": self.shape, "typestr": ("|" if size == 1 else "<") + letter + str(size),
                "data": (self.address, not self._writable)}

    def numpy(self) -> Any:
        """A read-only ``numpy.ndarray`` over the bytes, of type ``array_dtype``."""
        import numpy

        if _numpy_has_dlpack_1(numpy):
            return numpy.from_dlpack(self)
        return numpy.asarray(self)

    def torch(self) -> Any:
        """A ``torch.Tensor`` over the bytes, of the type in the file (quantised blocks: ``torch.uint8``).

        PyTorch knows no read-only tensors.  Writing to this one changes the process's own copy of the pages written, never
        the file.

        Raises:
            DtypeError: this PyTorch lacks the type.
        """
        import torch

        return _as_torch(torch, self)


def _numpy_has_dlpack_1(numpy: Any) -> bool:
    return tuple(int(n) for n in numpy.__version__.split(".")[:2]) >= (2, 1)


_TORCH_VIEWS = {"BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
                "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz"}


def _as_torch(torch: Any, view: View) -> Any:
    wanted = _TORCH_VIEWS.get(view.dtype.name)
    if wanted and not hasattr(torch, wanted):
        raise DtypeError(f"PyTorch {torch.__version__} has no {wanted}: view.numpy() gives the bits as {view.array_dtype}")
    tensor = torch.from_dlpack(view.allow_writes())
    return tensor.view(getattr(torch, wanted)) if wanted else tensor


def describe(dtype: Dtype, shape: Sequence[int], file: Optional[str] = None) -> CArray:
    """What an array of this type and shape is; raises what ``weir_array_describe`` refuses."""
    array = CArray()
    dimensions = [_natural(n, "a dimension of the shape") for n in shape]
    c_shape = (c_uint64 * max(RANK_MAX, len(dimensions)))(*dimensions)
    call("weir_array_describe", dtype.number, len(dimensions), c_shape, byref(array), file=file)
    return array


def _dimensions(shape: Any) -> Sequence[Any]:
    if hasattr(shape, "__index__"):
        return [shape]
    try:
        return list(shape)
    except TypeError as problem:
        raise InvalidArgumentError(f"a shape is a whole number or a sequence of them, not {shape!r}") from problem


def _natural(value: Any, what: str) -> int:
    try:
        number = operator.index(value)
    except TypeError as problem:
        raise InvalidArgumentError(f"{what} is a whole number, not {value!r}") from problem
    if not 0 <= number < 2**63:
        raise InvalidArgumentError(f"{what} is {number}: it must be 0 or more, and less than 2**63")
    return number


def map_extent(file: Any, byte_offset: int, shape: Any, dtype: Any, copy: Optional[bool] = False) -> View:
    """The view behind ``mmap_weights``, for any library; see there."""
    path = path_bytes(file)
    name = path.decode(errors="surrogateescape")
    kind = dtype_of(dtype)
    offset = _natural(byte_offset, "byte_offset")
    array = describe(kind, _dimensions(shape), file=name)
    misaligned = array.bytes > 0 and offset % array.alignment_bytes != 0
    if misaligned and copy is False:
        raise MisalignedError(f"{kind.name} cannot be read in place here: byte_offset must be a multiple of "
                              f"{array.alignment_bytes}; pass copy=None to read a copy where that is needed", file=name, offset=offset)
    function = "weir_mapping_read_extent" if copy or misaligned else "weir_mapping_open_extent"
    mapping = Mapping(open_handle(function, path, offset, array.bytes))
    return View(mapping, array, why_copied="misaligned" if misaligned else "asked for" if copy else None)


def mmap_weights(file: Any, byte_offset: int, shape: Any, dtype: Any, *, copy: Optional[bool] = False) -> Any:
    """Weights in a file as a NumPy array whose data are the file's pages: nothing is read until it is used.

    Args:
        file: path of a regular file, in any format.
        byte_offset: of the first element, in bytes.
        shape: outermost dimension first, in elements; one number for one dimension, ``()`` for a scalar.
        dtype: a name (``"F32"``, ``"BF16"``, ``"Q4_K"``, ``"float32"``), or a dtype of NumPy, PyTorch or MLX.
        copy: ``False`` never copies; ``None`` copies what is misaligned; ``True`` reads a copy, which the file's later fate
            does not reach.

    Returns:
        A read-only ``numpy.ndarray``; the mapping lives as long as any array over it.  NumPy lacks BF16 and 8-bit floating point:
        they come as ``uint16`` and ``uint8``, bit for bit, quantised blocks as ``uint8``.

    Raises:
        NotFoundError, AccessError, NotRegularFileError: the file cannot be opened, or is a directory, FIFO or device.
        InvalidArgumentError: a negative number, a size that cannot be, or bytes past the end of the file.
        MisalignedError: the offset does not suit the type (``copy=False``).
        DtypeError: no such type.

    A file that is truncated while it is mapped ends the process with SIGBUS when a page past its end is touched, as with any mmap.
    """
    return map_extent(file, byte_offset, shape, dtype, copy).numpy()
