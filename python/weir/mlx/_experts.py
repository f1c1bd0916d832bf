"""Where each expert's weights lie in the files, learned from what the model's own sanitize did to them.

A stacked tensor is a view of one tensor of the file, or a stack of one for each expert; either may have been sliced, split,
reshaped or seen as another type on the way.  MLX's graph says which: such steps are followed down to the mapped tensors without
reading an element.  Weights that are computed (dequantised, added to) lie nowhere, and cannot be streamed.

    switch_mlp.up_proj.weight ◄─ Concatenate ◄─ ExpandDims ◄─ model.layers.0.mlp.experts.0.up_proj.weight   (mapped)
                                             ◄─ ExpandDims ◄─ model.layers.0.mlp.experts.1.up_proj.weight   (mapped) ...
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple

from .._errors import UnsupportedError
from ._shim import shim
from ._weights import Source, Weights

_VIEWS = {"Slice", "Split", "ExpandDims", "Squeeze", "Reshape", "Flatten", "Unflatten", "View", "Transpose", "AsStrided", "Copy"}


@dataclass
class Part:
    """One tensor of one projection of one layer (``weight``, ``scales``, ``biases``), for all experts.

    Attributes:
        shape, dtype, strides: of one expert's matrix, with a leading dimension of 1; strides in elements, ``None`` for C order.
        chunks: chunk of each expert in the store.
        inner: byte offset of the matrix in that chunk, for each expert.
    """

    name: str
    shape: Tuple[int, ...]
    dtype: Any
    strides: Optional[Tuple[int, ...]]
    chunks: List[int] = field(default_factory=list)
    inner: List[int] = field(default_factory=list)


def _stacked(source: Source) -> List[Source]:
    """A view of a stacked tensor, as one view for each expert."""
    item = source.dtype.size
    shape, strides = (1, *source.shape[1:]), source.strides
    span = item * (1 + sum((size - 1) * stride for size, stride in zip(shape[1:], strides[1:])))
    return [Source(source.checkpoint, source.tensor, source.byte_offset + e * strides[0] * item, shape, strides, source.dtype, span)
            for e in range(source.shape[0])]


def find_experts(array: Any, weights: Weights) -> Optional[List[Source]]:
    """Where each expert of a stacked parameter lies, or ``None`` when it is computed.  Reads nothing."""
    import mlx.core as mx

    view = shim().inspect(array)
    if not view.data and _only_views(array, weights):
        mx.eval(array)
        view = shim().inspect(array)
    if view.data:
        source = weights.find(array)
        return None if source is None else _stacked(source)
    primitive = view.primitive.decode()
    if primitive == "Contiguous":
        return find_experts(shim().inputs(array)[0], weights)
    if primitive != "Concatenate":
        return None
    found: List[Source] = []
    for part in shim().inputs(array):
        experts = find_experts(part, weights)
        if experts is None or len(experts) != 1:
            return None
        found += experts
    return found if len(found) == view.shape[0] else None


def _only_views(array: Any, weights: Weights) -> bool:
    view = shim().inspect(array)
    if view.data:
        return weights.find(array) is not None
    return view.primitive.decode().split(" ")[0] in _VIEWS and all(_only_views(part, weights) for part in shim().inputs(array)[:1])


def left_tensors(array: Any, weights: Weights, found: Optional[Set[str]] = None) -> Set[str]:
    """Tensors left to MLX (misaligned) that a parameter is made of."""
    found = set() if found is None else found
    view = shim().inspect(array)
    if view.id in weights.ids:
        found.add(weights.ids[view.id])
    elif not view.data:
        for part in shim().inputs(array):
            left_tensors(part, weights, found)
    return found


class ChunkList:
    """Extents of experts, as they are found; then the chunks that a store holds: extents that overlap share one."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._parts: List[Tuple[Part, List[Tuple[int, int, int]]]] = []
        self.paths: List[str] = list(weights.paths)
        self.chunks: List[Tuple[int, int, int, int]] = []

    def add(self, name: str, array: Any) -> Part:
        """One stacked parameter.

        Raises:
            UnsupportedError: it does not lie in the files as it is used.
        """
        experts = find_experts(array, self._weights)
        if experts is None:
            raise UnsupportedError(f"{name} is computed while the model is loaded, so that its experts lie nowhere in the files: "
                                   "convert the model with mlx_lm.convert, or load it with streaming=False",
                                   file=self._weights.folder)
        first = experts[0]
        part = Part(name, first.shape, first.dtype, None if first.row_major else first.strides)
        extents = []
        for source in experts:
            offset = self._weights.checkpoints[source.checkpoint][source.tensor].offset + source.byte_offset
            extents.append((source.checkpoint, offset, source.nbytes))
        self._parts.append((part, extents))
        return part

    def _extents(self) -> Iterator[Tuple[int, int, int, int, Part, int]]:
        for group, (part, extents) in enumerate(self._parts):
            part.chunks, part.inner = [0] * len(extents), [0] * len(extents)
            for expert, (file, offset, nbytes) in enumerate(extents):
                yield file, offset, nbytes, group, part, expert

    def close(self) -> None:
        """All parameters are added: fills ``chunks``, and each part's place in them."""
        groups: Dict[int, int] = {}
        end = -1
        for file, offset, nbytes, group, part, expert in sorted(self._extents(), key=lambda extent: extent[:3]):
            if self.chunks and self.chunks[-1][0] == file and offset < end:
                number, first_group, start, length = self.chunks[-1]
                end = max(end, offset + nbytes)
                self.chunks[-1] = (number, first_group, start, end - start)
            else:
                end = offset + nbytes
                self.chunks.append((file, groups.setdefault(group, len(groups)), offset, nbytes))
            part.chunks[expert] = len(self.chunks) - 1
            part.inner[expert] = offset - self.chunks[-1][2]

    @property
    def nbytes(self) -> int:
        """Of all chunks together."""
        return sum(chunk[3] for chunk in self.chunks)


def experts_bytes(parts: Sequence[Part], chunks: ChunkList) -> int:
    """Bytes that one expert of a layer takes."""
    return sum(chunks.chunks[number][3] for number in {part.chunks[0] for part in parts})


__all__ = ["ChunkList", "Part", "experts_bytes", "find_experts", "left_tensors"]
