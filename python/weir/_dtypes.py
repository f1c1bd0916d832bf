"""Element types: the C library's table, and what other libraries call the same things."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict

from ._errors import DtypeError
from ._lib import lib

_DTYPE_LAST = 127  # numbers beyond are not used


@dataclass(frozen=True)
class Dtype:
    """One element type.

    Attributes:
        name: as in safetensors and GGUF files: ``"F32"``, ``"BF16"``, ``"F8_E4M3"``, ``"Q4_K"``.
        number: in the C library.
        ggml_type: number in ggml, or -1.
        block_elements: elements stored together; more than 1 for quantised types.
        block_bytes: bytes they take.
        alignment_bytes: of an address through which elements are read in place.
    """

    name: str
    number: int
    ggml_type: int
    block_elements: int
    block_bytes: int
    alignment_bytes: int


def _read_table() -> Dict[str, Dtype]:
    table = {}
    for number in range(1, _DTYPE_LAST + 1):
        info = lib.weir_dtype_describe(number)
        if info:
            c = info.contents
            name = c.name.decode()
            table[name] = Dtype(name, number, c.ggml_type, c.block_elements, c.block_bytes, c.alignment_bytes)
    return table


DTYPES: Dict[str, Dtype] = _read_table()
BY_NUMBER: Dict[int, Dtype] = {dtype.number: dtype for dtype in DTYPES.values()}

# NumPy, PyTorch and MLX names, as str() gives them without the module.
_ALIASES = {
    "float32": "F32", "float": "F32", "float16": "F16", "half": "F16", "bfloat16": "BF16", "float64": "F64", "double": "F64",
    "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64", "uint8": "U8", "uint16": "U16", "uint32": "U32",
    "uint64": "U64", "bool": "BOOL", "bool_": "BOOL", "complex64": "C64", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0", "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ",
}


def dtype_of(wanted: Any) -> Dtype:
    """The type that ``wanted`` names: one of ours, its name, or a dtype of NumPy, PyTorch or MLX.

    Raises:
        DtypeError: there is none such.
    """
    if isinstance(wanted, Dtype):
        return wanted
    name = wanted if isinstance(wanted, str) else getattr(wanted, "name", None) or getattr(wanted, "__name__", None) or str(wanted)
    name = str(name).split(".")[-1]
    found = DTYPES.get(name.upper()) or DTYPES.get(_ALIASES.get(name.lower(), ""))
    if found is None:
        raise DtypeError(f"{name!r} is no element type that weir knows: use one of {', '.join(DTYPES)}")
    return found
