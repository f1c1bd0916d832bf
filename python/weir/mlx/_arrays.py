"""Mapped weights as MLX arrays."""
from __future__ import annotations

import ctypes
import warnings
from typing import Any

from .._arrays import View, map_extent
from .._checkpoint import CopyWarning
from .._lib import lib
from ._shim import shim

_CLOSE = ctypes.cast(lib.weir_mapping_close, ctypes.c_void_p).value

# Types that safetensors and MLX share; everything else comes as unsigned integers that hold its bits, as mx.load gives it.
MLX_NAMES = {
    "BOOL": "bool_", "U8": "uint8", "U16": "uint16", "U32": "uint32", "U64": "uint64", "I8": "int8", "I16": "int16",
    "I32": "int32", "I64": "int64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64", "C64": "complex64",
}


def mlx_dtype(view: View) -> Any:
    """The type of MLX for a view's elements."""
    import mlx.core as mx

    return getattr(mx, MLX_NAMES.get(view.dtype.name, view.array_dtype))


def from_view(view: View) -> Any:
    """The view as an ``mlx.core.array`` over the same bytes, which live as long as the array.

    Raises:
        ShimError: this MLX cannot have arrays over mapped memory; the message says why.
    """
    made = shim()  # it says what to do where there is no MLX
    import mlx.core as mx

    if view.nbytes == 0:
        return mx.zeros(view.shape, dtype=mlx_dtype(view))
    assert _CLOSE is not None
    owner = view.mapping.retain()
    try:
        return made.alias(view.address, view.shape, mlx_dtype(view), _CLOSE, owner)
    except BaseException:
        lib.weir_mapping_close(owner)
        raise


def mmap_weights(file: Any, byte_offset: int, shape: Any, dtype: Any) -> Any:
    """Weights in a file as an ``mlx.core.array`` whose data are the file's pages: nothing is read until it is used.

    Args:
        file: path of a regular file, in any format.
        byte_offset: of the first element, in bytes.
        shape: outermost dimension first, in elements; one number for one dimension, ``()`` for a scalar.
        dtype: one of MLX's (``mx.bfloat16``), or a name (``"BF16"``, ``"bfloat16"``).

    Returns:
        An array that no operation of MLX writes to.  An offset that is no multiple of the element's size cannot be used in
        place: the weights are read into memory then, and a ``weir.CopyWarning`` says so.

    Raises:
        NotFoundError, AccessError, NotRegularFileError: the file cannot be opened, or is a directory, FIFO or device.
        InvalidArgumentError: a negative number, a size that cannot be, or bytes past the end of the file.
        DtypeError: no such type.
        ShimError: MLX is missing or too old, or no compiler is there on first use.

    A file that is truncated while it is mapped ends the process with SIGBUS when a page past its end is touched, as with any
    mmap; ``mx.save_safetensors`` to the mapped file does that.  ``numpy.asarray(array)`` gives a writable array over read-only
    memory: take ``numpy.from_dlpack(array)``, or read the file with ``weir.mmap_weights``.
    """
    view = map_extent(file, byte_offset, shape, dtype, copy=None)
    array = from_view(view)
    if view.copied:
        warnings.warn(f"{file}: offset {byte_offset} is no multiple of the element's size: {view.nbytes} bytes were copied",
                      CopyWarning, stacklevel=2)
    return array


__all__ = ["from_view", "mlx_dtype", "mmap_weights"]
