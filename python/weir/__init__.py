"""weir: language models larger than memory, within a stated byte budget; and their weights as arrays, without a copy.

``weir.open(path)`` gives a checkpoint's tensors to NumPy, PyTorch and MLX; ``weir.mmap_weights`` any extent of a file;
``weir.plan`` and ``weir.generate`` run models within a budget; ``weir.llama.enable`` does so inside llama-cpp-python;
``weir.mlx`` loads and streams models in MLX.  Every exception is a ``weir.Error`` that carries the C library's code.
"""
from ._arrays import Mapping, View, mmap_weights
from ._checkpoint import Checkpoint, CopyWarning, TensorInfo
from ._checkpoint import open_checkpoint as open  # noqa: A004
from ._dtypes import DTYPES, Dtype
from ._errors import (AccessError, BudgetError, BusyError, ChangedError, ChecksumError, DtypeError, EngineError, Error, FormatError,
                      InputOutputError, InterruptedRunError, InvalidArgumentError, LimitError, MisalignedError, NoSpaceError,
                      NotFoundError, NotRegularFileError, OutOfMemoryError, UnsupportedError)
from ._generate import Generation, generate
from ._lib import version as _version
from ._plan import plan
from ._save import save_safetensors

__version__: str = _version()

__all__ = [
    "AccessError", "BudgetError", "BusyError", "ChangedError", "Checkpoint", "ChecksumError", "CopyWarning", "DTYPES", "Dtype",
    "DtypeError", "EngineError", "Error", "FormatError", "Generation", "InputOutputError", "InterruptedRunError", "InvalidArgumentError",
    "LimitError", "Mapping", "MisalignedError", "NoSpaceError", "NotFoundError", "NotRegularFileError", "OutOfMemoryError",
    "TensorInfo", "UnsupportedError", "View", "generate", "mmap_weights", "open", "plan", "save_safetensors",
]
