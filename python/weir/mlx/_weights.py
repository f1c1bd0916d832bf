"""The weights of a model's files as mapped arrays, and what became of them once the model was made.

``Weights`` stands between ``mlx_lm`` and the files: it puts mapped arrays in the place of those that would be read, and, when the
model is there, tells which parameters are still views of the files and why the others are not.
"""
from __future__ import annotations

import bisect
import glob
import os
from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, Optional, Tuple

from .._arrays import View
from .._checkpoint import Checkpoint
from .._dtypes import DTYPES
from ._arrays import MLX_NAMES, from_view
from ._shim import shim


@dataclass(frozen=True)
class Source:
    """Where a parameter lies in the files.

    Attributes:
        checkpoint: index of the file.
        tensor: name in the file.
        byte_offset: of the parameter's first element within the tensor.
        shape, dtype: of the parameter; ``strides`` in elements.
        nbytes: that it spans in the file.
    """

    checkpoint: int
    tensor: str
    byte_offset: int
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]
    dtype: Any
    nbytes: int

    @property
    def row_major(self) -> bool:
        """The elements lie one after the other."""
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides)):
            if size != 1 and stride != expected:
                return False
            expected *= size
        return True


@dataclass(frozen=True)
class Placed:
    """A range of memory that shows a tensor."""

    start: int
    end: int
    checkpoint: int
    tensor: str


class Weights:
    """The safetensors files of one model.  Not for several threads at once.

    Views made by :meth:`substitute` are kept until :meth:`settle`, so that no address among them is used twice meanwhile.
    """

    def __init__(self, folder: Any, forced: Iterable[str] = (), only_forced: bool = False) -> None:
        self._only_forced = only_forced
        self.forced = frozenset(forced)  # mapped even if misaligned: only where they lie is wanted, nobody reads them
        self.ids: Dict[int, str] = {}  # of the arrays that were left to MLX
        self.folder = os.fspath(folder)
        self.paths = glob.glob(glob.escape(self.folder) + "/model*.safetensors")  # in the order in which mlx_lm reads them
        self.checkpoints = [Checkpoint(path) for path in self.paths]
        self.where: Dict[str, int] = {name: index for index, found in enumerate(self.checkpoints) for name in found}
        self.left: Dict[str, str] = {}  # tensors that were not mapped, and why
        self._views: List[View] = []
        self._kept: List[Any] = []
        self._placed: List[Placed] = []
        self._starts: List[int] = []

    def substitute(self, weights: Dict[str, Any]) -> Dict[str, Any]:
        """The same weights, each as a view of its file where that can be."""
        made = {name: self._mapped(name, array) for name, array in weights.items()}
        self._kept = list(made.values())  # so that their ids stay theirs
        self.ids = {shim().inspect(array).id: name for name, array in made.items() if name in self.left}
        self._placed.sort(key=lambda placed: placed.start)
        self._starts = [placed.start for placed in self._placed]
        return made

    def _mapped(self, name: str, array: Any) -> Any:
        if name not in self.where:
            return array
        index = self.where[name]
        info = self.checkpoints[index][name]
        dtype = DTYPES[info.dtype]
        if name in self.forced:
            return self._view(index, name)
        if self._only_forced:
            self.left[name] = "asked for"
        elif not info.aligned or info.offset % array.itemsize:
            self.left[name] = "misaligned in its file"
        elif MLX_NAMES.get(dtype.name) != str(array.dtype).split(".")[-1] and array.itemsize != dtype.block_bytes:
            self.left[name] = f"{dtype.name} is converted by MLX"
        elif array.nbytes != info.bytes:
            self.left[name] = f"{dtype.name} is unpacked by MLX"
        elif array.nbytes > 0:
            return self._view(index, name)
        return array

    def _view(self, index: int, name: str) -> Any:
        checkpoint = self.checkpoints[index]
        view = checkpoint.view_unaligned(name) if name in self.forced else checkpoint.view(name, copy=False)
        self._views.append(view)
        self._placed.append(Placed(view.address, view.address + view.nbytes, index, name))
        return from_view(view)

    def find(self, array: Any) -> Optional[Source]:
        """Where an evaluated array lies in the files, or ``None``.  Before :meth:`settle` only."""
        view = shim().inspect(array)
        if not view.data:
            return None
        position = bisect.bisect_right(self._starts, view.data) - 1
        if position < 0 or view.data >= self._placed[position].end:
            return None
        placed = self._placed[position]
        shape, strides = tuple(view.shape[:view.rank]), tuple(view.strides[:view.rank])
        span = view.item_bytes * (1 + sum((size - 1) * stride for size, stride in zip(shape, strides)))
        if view.data + span > placed.end:
            return None
        return Source(placed.checkpoint, placed.tensor, view.data - placed.start, shape, strides, array.dtype, span)

    def map(self, source: Source) -> Any:
        """A new array over what ``source`` names.

        Raises:
            ChangedError: the file is not the one that was opened.
        """
        import ctypes

        from .._lib import lib
        from ._arrays import _CLOSE

        view = self.checkpoints[source.checkpoint].view(source.tensor, copy=False)
        owner = view.mapping.retain()
        strides = None if source.row_major else source.strides
        assert ctypes.sizeof(ctypes.c_void_p) == 8 and _CLOSE is not None
        try:
            return shim().alias(view.address + source.byte_offset, source.shape, source.dtype, _CLOSE, owner, strides)
        except BaseException:
            lib.weir_mapping_close(owner)
            raise

    def settle(self) -> None:
        """The model is made: views that it does not use are unmapped."""
        self._views, self._placed, self._starts, self._kept = [], [], [], []


__all__ = ["Source", "Weights"]
