"""Checkpoints: models as files, their tensors by name."""
from __future__ import annotations

import ctypes
import os
import struct
import threading
import warnings
from ctypes import byref, c_uint64
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Mapping as MappingType, Optional, Tuple

from ._arrays import Mapping, View, describe
from ._dtypes import BY_NUMBER, DTYPES, Dtype
from ._errors import InvalidArgumentError, MisalignedError
from ._lib import RANK_MAX, CMetadata, call, lib, open_handle, path_bytes

_STRING, _FLOATS, _SIGNED, _BOOL = 8, (6, 12), (1, 3, 5, 11), 7  # weir_value_type


class CopyWarning(UserWarning):
    """A tensor is misaligned in its file, so that it was read into memory instead of mapped."""


@dataclass(frozen=True)
class TensorInfo:
    """A tensor, as its file describes it.

    Attributes:
        name: in the checkpoint.
        dtype: element type: ``"F32"``, ``"BF16"``, ``"Q4_K"``.
        shape: outermost dimension first, in elements (GGUF's own order is the reverse).
        file: path of the shard that holds it.
        offset: of its first byte in that file, bytes.
        bytes: it takes.
        aligned: its elements can be read in place; otherwise views of it are copies.
    """

    name: str
    dtype: str
    shape: Tuple[int, ...]
    file: str
    offset: int
    bytes: int
    aligned: bool


class Checkpoint(MappingType[str, TensorInfo]):
    """A model as files: a mapping of tensor names to :class:`TensorInfo`, made by :func:`weir.open`.

    Opening reads headers only; no descriptor stays open.  Views stay valid when the checkpoint is closed or collected.  Any
    thread may use it.

    A file that was changed or replaced since it was opened is refused with ``ChangedError`` when a tensor is mapped.  Replacing
    it by a rename, or removing it, leaves views that exist whole; truncating it, or writing over it in place, does not: take
    copies (``copy=True``) of files that are not yours to keep still.
    """

    def __init__(self, path: Any) -> None:
        self._lock = threading.Lock()
        self._handle: Optional[int] = None
        self._close = lib.weir_checkpoint_close
        encoded = path_bytes(path)
        self.path: str = os.fsdecode(encoded)
        self._handle = open_handle("weir_checkpoint_open", encoded, None, file=self.path)
        self.format: str = lib.weir_format_name(lib.weir_checkpoint_format(self._handle)).decode()
        architecture = lib.weir_checkpoint_architecture(self._handle)
        self.architecture: Optional[str] = None if architecture is None else _text(architecture)
        self.files: List[str] = [os.fsdecode(lib.weir_checkpoint_shard_path(self._handle, i))
                                 for i in range(lib.weir_checkpoint_shards_count(self._handle))]
        self._infos, self._indexes = self._read_tensors(self._handle)
        self.metadata: Dict[str, Any] = _read_metadata(self._handle)

    def _read_tensors(self, handle: int) -> Tuple[Dict[str, TensorInfo], Dict[str, int]]:
        infos, indexes = {}, {}
        shape = (c_uint64 * RANK_MAX)()
        for index in range(lib.weir_checkpoint_tensors_count(handle)):
            tensor = lib.weir_checkpoint_tensor(handle, index).contents
            lib.weir_tensor_shape_row_major(handle, byref(tensor), shape)
            dtype = BY_NUMBER[tensor.dtype]
            name = _text(tensor.name)
            infos[name] = TensorInfo(name, dtype.name, tuple(shape[:tensor.rank]), self.files[tensor.shard], tensor.offset,
                                     tensor.bytes, _is_aligned(dtype, tensor.offset, tensor.bytes))
            indexes[name] = index
        return infos, indexes

    def __getitem__(self, name: str) -> TensorInfo:
        return self._infos[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._infos)

    def __len__(self) -> int:
        return len(self._infos)

    def __repr__(self) -> str:
        return f"<weir.Checkpoint {self.path!r}: {self.format}, {len(self)} tensors, {self.nbytes} bytes>"

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors together."""
        return sum(info.bytes for info in self._infos.values())

    @property
    def aligned(self) -> bool:
        """True when every tensor can be mapped in place."""
        return all(info.aligned for info in self._infos.values())

    def view(self, name: str, *, copy: Optional[bool] = None) -> View:
        """The tensor as a :class:`weir.View`, which other libraries turn into arrays.

        Args:
            name: of the tensor.
            copy: ``None`` maps, and copies what is misaligned, with a ``CopyWarning``; ``False`` raises ``MisalignedError``
                instead; ``True`` reads a copy.

        Raises:
            KeyError: no such tensor.
            ChangedError: the file is not the one that was opened any more.
            InvalidArgumentError: the checkpoint is closed.
        """
        info = self._infos[name]
        dtype = DTYPES[info.dtype]
        if not info.aligned and copy is False:
            raise MisalignedError(f"tensor {name!r} cannot be read in place: its offset is no multiple of {dtype.alignment_bytes}; "
                                  "use copy=None, or write the file anew with weir.save_safetensors", file=info.file,
                                  offset=info.offset)
        why = "asked for" if copy else None if info.aligned else "misaligned"
        if why == "misaligned":
            warnings.warn(f"{name}: copied, {info.bytes} bytes: its offset {info.offset} is no multiple of "
                          f"{dtype.alignment_bytes}", CopyWarning, stacklevel=3)
        array = describe(dtype, info.shape, file=info.file)
        return View(self._open("weir_mapping_read" if why else "weir_mapping_open", self._indexes[name]), array, why_copied=why)

    def view_unaligned(self, name: str) -> View:
        """The tensor as a view of the file wherever it lies: for code that wants its place, not its values."""
        info = self._infos[name]
        return View(self._open("weir_mapping_open", self._indexes[name]), describe(DTYPES[info.dtype], info.shape, file=info.file))

    def _open(self, function: str, index: int) -> Mapping:
        with self._lock:
            if self._handle is None:
                raise InvalidArgumentError("the checkpoint is closed", file=self.path)
            return Mapping(open_handle(function, self._handle, index, file=self.path))

    def numpy(self, name: str, *, copy: Optional[bool] = None) -> Any:
        """The tensor as a read-only ``numpy.ndarray`` over the file's pages.

        BF16 comes as ``uint16`` and 8-bit floating point as ``uint8``, bit for bit; quantised types as the bytes of their blocks,
        the last dimension in bytes.  ``copy`` and errors: see :meth:`view`.
        """
        return self.view(name, copy=copy).numpy()

    def torch(self, name: str, *, copy: Optional[bool] = None) -> Any:
        """The tensor as a ``torch.Tensor`` over the file's pages, of the type in the file; see :meth:`weir.View.torch`."""
        return self.view(name, copy=copy).torch()

    def mlx(self, name: str, *, copy: Optional[bool] = None) -> Any:
        """The tensor as an ``mlx.core.array`` over the file's pages; see :mod:`weir.mlx`."""
        from .mlx import from_view

        return from_view(self.view(name, copy=copy))

    def check(self) -> None:
        """Raises ``ChangedError`` (or what opening raises) unless every file is still the one that was opened."""
        with self._lock:
            if self._handle is None:
                raise InvalidArgumentError("the checkpoint is closed", file=self.path)
            call("weir_checkpoint_check_unchanged", self._handle, file=self.path)

    def close(self) -> None:
        """Frees the headers.  Names and infos stay readable, views stay valid, new views are refused."""
        with self._lock:
            handle, self._handle = self._handle, None
        if handle:
            self._close(handle)

    def __enter__(self) -> "Checkpoint":
        return self

    def __exit__(self, *details: Any) -> None:
        self.close()

    def __del__(self) -> None:
        handle, self._handle = getattr(self, "_handle", None), None
        if handle:
            self._close(handle)


def _text(raw: bytes) -> str:
    """Names are any bytes: what is not UTF-8 is kept, as in file names."""
    return raw.decode(errors="surrogateescape")


def _is_aligned(dtype: Dtype, offset: int, nbytes: int) -> bool:
    return nbytes == 0 or dtype.block_elements > 1 or offset % dtype.alignment_bytes == 0


def _value(kind: int, value: Any) -> Any:
    if kind == _STRING:
        return ctypes.string_at(value.text, value.bits).decode(errors="surrogateescape")
    raw = struct.pack("=Q", value.bits)
    if kind in _FLOATS:
        return struct.unpack("=d", raw)[0]
    if kind in _SIGNED:
        return struct.unpack("=q", raw)[0]
    return bool(value.bits) if kind == _BOOL else value.bits


def _read_entry(entry: CMetadata) -> Any:
    values = [_value(entry.type, entry.values[i]) for i in range(entry.kept)]
    return values if entry.is_array else values[0] if values else None


def _read_metadata(handle: int) -> Dict[str, Any]:
    entries = (lib.weir_checkpoint_metadata(handle, i).contents for i in range(lib.weir_checkpoint_metadata_count(handle)))
    return {_text(entry.key): _read_entry(entry) for entry in entries}


def open_checkpoint(path: Any) -> Checkpoint:
    """Opens a checkpoint.

    Args:
        path: a ``.gguf`` file (any shard opens the whole set), a ``.safetensors`` file, a ``*.safetensors.index.json``, or a
            directory that holds exactly one of those.

    Returns:
        A :class:`Checkpoint`.  Long arrays in its ``metadata`` are shortened: 1,024 numbers, 8 strings.

    Raises:
        FormatError, UnsupportedError: the message gives the rule that the file breaks.
        NotFoundError, AccessError, NotRegularFileError, InputOutputError, LimitError, OutOfMemoryError.
    """
    return Checkpoint(path)


__all__ = ["Checkpoint", "CopyWarning", "TensorInfo", "open_checkpoint"]
