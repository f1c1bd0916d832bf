"""Loading a model of mlx_lm with its weights mapped, and saying what became of them."""
from __future__ import annotations

import ctypes
import json
import mmap as mmap_module
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from .._errors import FormatError, InvalidArgumentError, NotFoundError, UnsupportedError
from .._lib import path_bytes
from ._shim import ShimError, shim
from ._weights import Source, Weights

STREAMING_OPTIONS = ("ctx", "batch", "experts_memory", "policy", "io", "lookahead", "counts", "fault")
_PAGE = mmap_module.PAGESIZE


@dataclass(frozen=True)
class Copied:
    """A parameter that takes memory of its own: its name, bytes, and why it is no view of the file."""

    name: str
    bytes: int
    why: str


@dataclass(frozen=True)
class Stats:
    """What a model's parameters take.

    Attributes:
        mapped_bytes: of parameters that are views of their files.  Neither MLX's own count nor the
            system's takes them for memory of this process.
        resident_bytes: of those, what is in the page cache now, and so costs no read.
        copied_bytes: of the other parameters; they are in memory of the process.
        copied: each of them.
        mapped_count: how many parameters are views.
        released: True after :func:`release`.
        streaming: of a streamed model: ``slots`` and ``slots_bytes``; chunks ``demanded``, ``hits``, ``joined``, ``misses``,
            ``prefetched``, ``prefetch_used``, ``evictions``; ``bytes_read``, ``stall_ns``; ``policy``, ``io``; ``outside_ns``,
            spent in weir's own code between MLX's operations; ``counts_loaded``, demands that earlier runs have counted.
    """

    mapped_bytes: int
    resident_bytes: int
    copied_bytes: int
    mapped_count: int
    copied: List[Copied] = field(default_factory=list)
    released: bool = False
    streaming: Optional[Dict[str, Any]] = None


class Loaded:
    """What is known of a model that this module loaded; kept on the model as ``_weir``."""

    def __init__(self, weights: Weights, sources: Dict[str, Source], reasons: Dict[str, str]) -> None:
        self.weights = weights
        self.sources = sources
        self.reasons = reasons
        self.released = False
        self.engine: Any = None  # of a streamed model
        self.budget: Any = None


def _parameters(model: Any) -> List[Tuple[str, Any]]:
    from mlx.utils import tree_flatten

    return tree_flatten(model.parameters())


def _reason(name: str, weights: Weights) -> str:
    if name in weights.left:
        return weights.left[name]
    return "changed by the model's sanitize while loading" if name in weights.where else "computed by the model while loading"


def settle(model: Any, weights: Weights) -> Loaded:
    """Notes which parameters of a model, all evaluated, are views of its files; lets go of the views that are not used."""
    sources, reasons = {}, {}
    for name, array in _parameters(model):
        source = weights.find(array)
        if source is None:
            reasons[name] = _reason(name, weights)
        else:
            sources[name] = source
    weights.settle()
    return Loaded(weights, sources, reasons)


def hooked_classes(weights: Weights, seen: Dict[str, Any]) -> Any:
    """A ``get_model_classes`` for mlx_lm's ``load_model`` that makes the model over mapped weights.

    The model's class is a subclass whose ``sanitize`` sees views of the files; ``seen["class"]`` is the class itself, to be given
    back to the model afterwards.
    """
    from mlx_lm.utils import _get_classes

    def classes(config: Any) -> Tuple[Any, Any]:
        try:
            model_class, arguments_class = _get_classes(config)
        except (ValueError, KeyError) as problem:
            raise UnsupportedError(f"mlx_lm has no such model ({problem}): a newer mlx_lm may", file=weights.folder) from problem
        seen["class"] = model_class

        def sanitize(self: Any, tensors: Dict[str, Any]) -> Dict[str, Any]:
            views = weights.substitute(tensors)
            original = getattr(super(mapped, self), "sanitize", None)
            return original(views) if original else views

        mapped = type(model_class.__name__, (model_class,), {"sanitize": sanitize, "__module__": model_class.__module__})
        return mapped, arguments_class

    return classes


def find_model(path: Any) -> Path:
    """Folder of a model: a local one, or a repository on Hugging Face, fetched as mlx_lm does.

    Raises:
        NotFoundError: a local path without ``config.json`` or weights.
        FormatError: ``config.json`` is none.
        ShimError: MLX or mlx_lm is missing.
    """
    try:
        import mlx_lm  # noqa: F401
    except ImportError as problem:
        raise ShimError(f"mlx_lm is not installed ({problem}): pip install mlx-lm 'mlx[cpu]' on Linux, mlx-lm on macOS") from problem
    local = Path(os.fsdecode(path_bytes(path)))
    if not local.exists() and not local.is_absolute() and str(path).count("/") == 1:
        from mlx_lm.utils import _download

        return _download(str(path))
    if not (local / "config.json").is_file() or not any(local.glob("model*.safetensors")):
        raise NotFoundError("a model of mlx_lm is a folder with config.json and model*.safetensors", file=str(local))
    try:
        with open(local / "config.json", encoding="utf-8") as file:
            if isinstance(json.load(file), dict):
                return local
    except ValueError as problem:
        raise FormatError(f"no JSON: {problem}", file=str(local / "config.json")) from problem
    raise FormatError("holds no JSON object", file=str(local / "config.json"))


def build(folder: Path, weights: Weights, *, lazy: bool, model_config: Optional[Dict[str, Any]] = None) -> Tuple[Any, Dict]:
    """The model over mapped weights.  ``lazy``: parameters are left as the model's sanitize computed them."""
    import mlx.core as mx
    from mlx_lm.utils import load_model as mlx_load_model

    seen: Dict[str, Any] = {}
    model, config = mlx_load_model(folder, lazy=lazy, model_config=model_config, get_model_classes=hooked_classes(weights, seen))
    model.__class__ = seen["class"]
    # mlx_lm's models begin with random weights.  Nobody looks at those, but MLX remembers how its random state came about, some
    # 80 KB for each model, until something evaluates it.
    mx.eval(mx.random.state)
    return model, config


def load_model(path: Any, *, mmap: bool = True, streaming: bool = False, memory: Any = None,
               model_config: Optional[Dict[str, Any]] = None, **options: Any) -> Tuple[Any, Dict[str, Any]]:
    """As :func:`load`, without a tokenizer: returns the model and its configuration."""
    if memory is not None and not streaming:
        raise InvalidArgumentError("memory is a budget for streaming: pass streaming=True")
    folder = find_model(path)
    if streaming:
        from ._streaming import load_streaming

        unknown = set(options) - set(STREAMING_OPTIONS)
        if unknown:
            raise InvalidArgumentError(f"no such option: {', '.join(sorted(unknown))}; there are {', '.join(STREAMING_OPTIONS)}")
        return load_streaming(folder, mmap=mmap, memory=memory, model_config=model_config, **options)
    if options:
        raise InvalidArgumentError(f"{', '.join(sorted(options))}: only with streaming=True")
    if not mmap:
        from mlx_lm.utils import load_model as mlx_load_model

        return mlx_load_model(folder, model_config=model_config)
    shim()
    weights = Weights(folder)
    model, config = build(folder, weights, lazy=False, model_config=model_config)
    model._weir = settle(model, weights)
    return model, config


def load(path: Any, *, mmap: bool = True, streaming: bool = False, memory: Any = None,
         tokenizer_config: Optional[Dict[str, Any]] = None, model_config: Optional[Dict[str, Any]] = None,
         **options: Any) -> Tuple[Any, Any]:
    """A model of mlx_lm and its tokenizer, as ``mlx_lm.load`` gives them, with the weights left in their files.

    Args:
        path: folder with ``config.json`` and ``model*.safetensors``, or a repository on Hugging Face.
        mmap: parameters are views of the files; those that cannot be (misaligned, or changed by the model while loading) are
            copied, and :func:`stats` says which and why.  ``False``: as ``mlx_lm.load``.
        streaming: expert layers keep only some experts in memory and read the others when their router picks them.
        memory: budget of the whole process for ``streaming``: bytes, or ``"4G"``, ``"60%"``; ``None``: what the process may use.
        tokenizer_config, model_config: as ``mlx_lm.load``.
        **options: for ``streaming``: ``ctx``, tokens that the KV cache has room for (4096); ``batch``, prompt tokens computed
            together (128): pass the same as ``prefill_step_size`` to mlx_lm; ``policy``, which expert goes first (``"auto"``,
            ``"lfu"``, ``"lru"``...); ``io`` (``"auto"``, ``"uring"``, ``"threads"``, ``"mmap"``); ``lookahead``, read what the next
            layer may want (True); ``counts``, begin with the counts of earlier runs of the model, and keep this one's (True);
            ``experts_memory``, bytes for experts instead of what the budget leaves.

    Returns:
        ``(model, tokenizer)``.  Logits are those of ``mlx_lm.load``, bit for bit.

    Raises:
        NotFoundError: no such model.
        FormatError: a file breaks a rule of its format.
        BudgetError: ``memory`` cannot hold; the message gives the least that can.
        ShimError: MLX or mlx_lm is missing or too old, or no compiler is there on first use.

    Files must stay as they are while they are mapped: see :func:`weir.mlx.mmap_weights`.
    """
    folder = find_model(path)
    from mlx_lm.utils import load_tokenizer

    model, config = load_model(folder, mmap=mmap, streaming=streaming, memory=memory, model_config=model_config, **options)
    return model, load_tokenizer(folder, tokenizer_config or {}, eos_token_ids=config.get("eos_token_id"))


def loaded(model: Any) -> Loaded:
    """What is known of a model that :func:`load` made.

    Raises:
        InvalidArgumentError: it was loaded by somebody else.
    """
    found = getattr(model, "_weir", None)
    if not isinstance(found, Loaded):
        raise InvalidArgumentError("this model was not loaded by weir.mlx.load(..., mmap=True)")
    return found


def resident_bytes(address: int, nbytes: int) -> int:
    """How many of these mapped bytes are in memory, in whole pages."""
    start = address & ~(_PAGE - 1)
    length = address + nbytes - start
    pages = (length + _PAGE - 1) // _PAGE
    marks = (ctypes.c_ubyte * pages)()
    if _libc.mincore(ctypes.c_void_p(start), ctypes.c_size_t(length), marks) != 0:
        return 0
    return min(nbytes, sum(mark & 1 for mark in marks) * _PAGE)


_libc = ctypes.CDLL(None)


def stats(model: Any) -> Stats:
    """What a model's parameters take; see :class:`Stats`.

    Raises:
        InvalidArgumentError: the model was not loaded by :func:`load`.
    """
    known = loaded(model)
    mapped = resident = count = 0
    copied = []
    for name, array in _parameters(model):
        source = known.sources.get(name)
        if source is None:
            copied.append(Copied(name, array.nbytes, known.reasons.get(name, "set after loading")))
        elif not known.released:
            view = shim().inspect(array)
            count += 1
            mapped += source.nbytes
            resident += resident_bytes(view.data, source.nbytes) if view.data else 0
    return Stats(mapped, resident, sum(entry.bytes for entry in copied), count, copied, known.released,
                 None if known.engine is None or known.released else known.engine.describe())


def release(model: Any) -> None:
    """Unmaps a model's files.  Until :func:`restore` the model has no weights, and using it is an error of MLX about shapes.

    A streamed model also gives up its slots, for good: load it again.

    Raises:
        InvalidArgumentError: the model was not loaded by :func:`load`.
    """
    import mlx.core as mx
    from mlx.utils import tree_unflatten

    known = loaded(model)
    if known.engine is not None:
        known.engine.close()
    model.update(tree_unflatten([(name, mx.zeros((0,))) for name in known.sources]), strict=False)
    known.released = True


def restore(model: Any) -> None:
    """Maps again what :func:`release` unmapped; reads nothing.

    Raises:
        ChangedError: a file is not the one that the model was loaded from.
        UnsupportedError: the model was streamed.
    """
    from mlx.utils import tree_unflatten

    known = loaded(model)
    if known.engine is not None and known.released:
        raise UnsupportedError("a streamed model that was released cannot be restored: load it again")
    if known.released:
        model.update(tree_unflatten([(name, known.weights.map(source)) for name, source in known.sources.items()]), strict=False)
        known.released = False


__all__ = ["Copied", "Stats", "load", "load_model", "release", "restore", "stats"]
