"""load(streaming=True): which parameters are experts, what the budget leaves for their slots, and the model over them.

    budget = process before loading + dense weights + KV cache + compute buffers + margin + slots

Everything but the slots is known, or bounded, before anything is read; the slots take the rest.  Dense weights are mapped where
they can be, and counted in full: their pages stay in memory because everything else leaves room for them.
"""
from __future__ import annotations

import operator
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from .._errors import BudgetError, InvalidArgumentError, UnsupportedError
from .._program import resolve_budget
from ._experts import ChunkList, left_tensors
from ._load import build, settle
from ._lookahead import find_router
from ._shim import shim
from ._store import Chunks, Counted, Store
from ._switch import Engine, Projection, StreamedSwitch
from ._weights import Weights

_MARGIN_BYTES = 24 << 20  # allocator, page tables, threads
_MARGIN_SHARE = 50  # one fiftieth of the budget more


@dataclass
class Budget:
    """How a budget is divided, bytes."""

    budget: int
    other: int  # the process before loading, and the margin
    dense: int
    kv: int
    compute: int
    experts: int = 0  # slots and their tables
    experts_least: int = 0
    experts_all: int = 0
    rest: Dict[str, Any] = field(default_factory=dict)

    @property
    def fixed(self) -> int:
        """All but the slots."""
        return self.other + self.dense + self.kv + self.compute

    @property
    def least(self) -> int:
        """The smallest budget that works."""
        return self.fixed + self.experts_least

    def divide(self) -> None:
        """Gives the slots what is left.

        Raises:
            BudgetError: that is too little; ``least_budget_bytes`` says what works.
        """
        if self.budget < self.least:
            parts = {"dense weights": self.dense, "KV cache": self.kv, "compute buffers": self.compute,
                     "the process itself": self.other, "expert slots": self.experts_least}
            raise BudgetError(f"a budget of {self.budget} bytes cannot hold this model: the least is {_shown(self.least)}, most of it "
                              f"for {max(parts, key=parts.__getitem__)} ({max(parts.values())} bytes)")
        self.experts = min(self.budget - self.fixed, self.experts_all)


def _shown(count: int) -> str:
    """Bytes, and for people: MiB below a GiB, rounded up, so that what is shown holds when it is given as a budget."""
    unit, name = (1 << 30, "GiB") if count >> 30 else (1 << 20, "MiB")
    hundredths = -(-count * 100 // unit)
    return f"{count} bytes ({hundredths // 100}.{hundredths % 100:02} {name})"


def _status(field_name: str) -> int:
    with open("/proc/self/status", encoding="ascii", errors="replace") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field_name + ":"))


def _count(name: str, value: Any) -> int:
    try:
        found = operator.index(value)
    except TypeError as problem:
        raise InvalidArgumentError(f"{name} is a whole number, not {value!r}") from problem
    if not 0 < found < 1 << 40:
        raise InvalidArgumentError(f"{name} is {found}: it must be 1 or more, and sensible")
    return found


def _budget_bytes(memory: Any) -> int:
    if memory is None or isinstance(memory, str):
        return resolve_budget(memory or "auto")
    try:
        found = -1 if isinstance(memory, bool) else operator.index(memory)
    except TypeError as problem:
        raise InvalidArgumentError(f"a memory budget is a number of bytes or a text like \"4G\", not {memory!r}") from problem
    if found <= 0:
        raise InvalidArgumentError(f"a memory budget of {found} bytes holds nothing")
    return found


def _number(config: Dict[str, Any], *names: str, default: int = 0) -> int:
    for source in (config, config.get("text_config") or {}):
        for name in names:
            if isinstance(source.get(name), int):
                return source[name]
    return default


def estimate_context(config: Dict[str, Any], ctx: int, batch: int) -> Tuple[int, int]:
    """Upper bounds in bytes: of the KV cache at ``ctx`` tokens, and of what computing ``batch`` tokens needs at a time.

    From the configuration alone: every layer is taken for one of full attention, with four bytes an element.
    """
    hidden = _number(config, "hidden_size", "n_embd", "dim", default=4096)
    layers = _number(config, "num_hidden_layers", "n_layer", "n_layers", default=32)
    heads = _number(config, "num_attention_heads", "n_head", default=32)
    heads_kv = _number(config, "num_key_value_heads", default=heads)
    head = max(_number(config, "head_dim", default=hidden // max(1, heads)), _number(config, "v_head_dim"),
               _number(config, "qk_nope_head_dim") + _number(config, "qk_rope_head_dim"))
    inner = max(_number(config, "moe_intermediate_size"), _number(config, "intermediate_size"))
    chosen = _number(config, "num_experts_per_tok", "num_experts_per_token", default=8)
    tokens = (ctx + 255) // 256 * 256
    item = 2 if str(config.get("torch_dtype", config.get("dtype", ""))).endswith("16") or config.get("quantization") else 4
    kv = layers * 2 * heads_kv * head * tokens * item
    step = 2 * heads_kv * head * tokens * item * 2  # a cache that grows is copied, one layer at a time
    scores = 2 * heads * batch * tokens * 4
    rows = batch * 4 * (8 * hidden + 4 * heads * head + chosen * (3 * inner + 2 * hidden))
    logits = 4 * 4 * _number(config, "vocab_size", default=150000)
    return kv, step + scores + rows + logits


def _switches(model: Any) -> List[Tuple[str, Any]]:
    from mlx_lm.models.switch_layers import SwitchGLU, SwitchMLP

    found = []
    for name, module in model.named_modules():
        if isinstance(module, (SwitchGLU, SwitchMLP)):
            if type(module).__call__ not in (SwitchGLU.__call__, SwitchMLP.__call__):
                raise UnsupportedError(f"{name}: expert layers of type {type(module).__name__} compute in a way of their own and "
                                       "cannot be streamed: load the model with streaming=False")
            found.append((name, module))
    if not found:
        raise UnsupportedError("the model has no expert layers: only those are streamed; use load(mmap=True)")
    order = {id(module): place for place, (_, module) in enumerate(model.named_modules())}
    return sorted(found, key=lambda entry: (_layer_number(entry[0]), order[id(entry[1])]))


def _layer_number(name: str) -> Tuple[int, ...]:
    return tuple(int(word) for word in name.split(".") if word.isdigit())


def _projections(module: Any) -> List[Tuple[str, Any]]:
    """In the order in which :class:`StreamedSwitch` takes them: what feeds the activation, then the last one."""
    names = ("up_proj", "gate_proj", "down_proj") if "gate_proj" in module else ("fc1", "fc2")
    return [(name, module[name]) for name in names]


_TENSORS = ("weight", "scales", "biases")


def _expert_arrays(switches: List[Tuple[str, Any]]) -> Dict[str, Any]:
    return {f"{path}.{name}.{tensor}": projection[tensor] for path, module in switches
            for name, projection in _projections(module) for tensor in _TENSORS if projection.get(tensor) is not None}


def _quantization(name: str, projection: Any) -> Optional[Dict[str, Any]]:
    from mlx_lm.models.switch_layers import QuantizedSwitchLinear

    if not isinstance(projection, QuantizedSwitchLinear):
        return None
    if projection.get("global_scale") is not None:
        raise UnsupportedError(f"{name}: a scale for each expert (nvfp4) cannot be streamed: load the model with streaming=False")
    return {"group_size": projection.group_size, "bits": projection.bits, "mode": projection.mode}


def _describe(switches: List[Tuple[str, Any]], chunks: ChunkList) -> List[Tuple[str, Any, List[Projection]]]:
    described = []
    for path, module in switches:
        projections = []
        for name, projection in _projections(module):
            full = f"{path}.{name}"
            parts = [chunks.add(f"{full}.{tensor}", projection[tensor])
                     for tensor in _TENSORS if projection.get(tensor) is not None]
            projections.append(Projection(parts, _quantization(full, projection), projection.get("bias")))
        described.append((path, module, projections))
    chunks.close()
    return described


def _dense_bytes(model: Any, experts: Dict[str, Any]) -> int:
    from mlx.utils import tree_flatten

    return sum(array.nbytes for name, array in tree_flatten(model.parameters()) if name not in experts)


def _slots_least(described: List[Tuple[str, Any, List[Projection]]]) -> int:
    """Slots of any one size that one expert may need at once."""
    return max(sum(len(projection.parts) for projection in projections) for _, _, projections in described)


def _leases_max(described: List[Tuple[str, Any, List[Projection]]]) -> int:
    return 2 * max(sum(len(part.chunks) for projection in projections for part in projection.parts)
                   for _, _, projections in described)


def _counted(described: List[Tuple[str, Any, List[Projection]]], chunks: ChunkList) -> Counted:
    """What counts of the model's runs are kept by."""
    parts = [part for _, _, projections in described for projection in projections for part in projection.parts]
    weights = [(part.name, sum(chunks.chunks[number][3] for number in part.chunks), part.chunks) for part in parts]
    return Counted(chunks.paths[chunks.chunks[parts[0].chunks[0]][0]], weights)


def _block_of(model: Any, path: str) -> Any:
    block = model
    for word in path.split(".")[:-1]:
        block = block[int(word)] if word.isdigit() else getattr(block, word)
    return block


def _install(model: Any, described: List[Tuple[str, Any, List[Projection]]], engine: Engine, config: Dict[str, Any]) -> None:
    from mlx.utils import tree_unflatten

    chosen = _number(config, "num_experts_per_tok", "num_experts_per_token", "moe_topk", default=4)
    for path, module, projections in described:
        layer = StreamedSwitch(engine, path, projections, module.activation)
        engine.lookahead.routers.append(find_router(_block_of(model, path), len(layer._chunks), chosen))
        model.update_modules(tree_unflatten([(path, layer)]))


def _build_lazily(folder: Path, mmap: bool, model_config: Optional[Dict[str, Any]]) -> Tuple[Any, Dict[str, Any], Weights]:
    """The model with nothing evaluated, over weights in which all that experts are made of is mapped, wherever it lies."""
    weights = Weights(folder, only_forced=not mmap)
    model, config = build(folder, weights, lazy=True, model_config=model_config)
    needed = set()
    for array in _expert_arrays(_switches(model)).values():
        needed |= left_tensors(array, weights)
    if needed:
        weights = Weights(folder, forced=needed, only_forced=not mmap)
        model, config = build(folder, weights, lazy=True, model_config=model_config)
    return model, config, weights


def load_streaming(folder: Path, *, mmap: bool = True, memory: Any = None, model_config: Optional[Dict[str, Any]] = None,
                   ctx: int = 4096, batch: int = 128, experts_memory: Optional[int] = None, policy: Optional[str] = None,
                   io: Optional[str] = None, lookahead: bool = True, counts: bool = True,
                   fault: Optional[str] = None) -> Tuple[Any, Dict[str, Any]]:
    """A model of which only some experts are in memory; see :func:`weir.mlx.load`.

    Args:
        folder: of the model.
        mmap: dense weights are views of the files; ``False`` reads them into memory.
        memory: budget of the whole process.
        ctx: tokens that the KV cache is to have room for.
        batch: tokens computed together at the most: pass the same as ``prefill_step_size`` to mlx_lm.
        experts_memory: bytes for slots and their tables, instead of what the budget leaves.
        policy: which expert goes first: ``"lfu"``, ``"lru"``, ``"auto"``...
        io: ``"auto"``, ``"uring"``, ``"threads"``, ``"mmap"``.
        lookahead: may guess what the next layer will want.
        counts: begins with the counts of earlier runs of the model and keeps this one's; never where ``WEIR_COUNTS`` is ``off``.
        fault: for tests.

    Returns:
        The model and its configuration.

    Raises:
        BudgetError: the budget cannot hold; ``least_budget_bytes`` says what can.
        UnsupportedError: no expert layers, or experts that are computed while loading.
    """
    import mlx.core as mx

    shim()
    ctx, batch = _count("ctx", ctx), _count("batch", batch)
    if experts_memory is not None:
        experts_memory = _count("experts_memory", experts_memory)
    total = _budget_bytes(memory)
    before = _status("VmRSS")
    model, config, weights = _build_lazily(folder, mmap, model_config)
    switches = _switches(model)
    chunks = ChunkList(weights)
    described = _describe(switches, chunks)
    listed = Chunks(chunks.paths, chunks.chunks, _slots_least(described), leases_max=_leases_max(described), policy=policy, io=io,
                    fault=fault)
    least, everything = listed.sizes()
    kv, compute = estimate_context(config, ctx, batch)
    budget = Budget(total, max(before, _status("VmRSS")) + _MARGIN_BYTES + total // _MARGIN_SHARE,
                    _dense_bytes(model, _expert_arrays(switches)), kv, compute, experts_least=least, experts_all=everything)
    budget.divide()
    if experts_memory is not None:
        if experts_memory < least:
            raise BudgetError(f"{experts_memory} bytes for experts cannot hold the slots: the least is {_shown(least)}")
        budget.experts = experts_memory
    kept = counts and os.environ.get("WEIR_COUNTS") not in ("off", "0")
    engine = Engine(Store(listed, budget.experts), lookahead, _counted(described, chunks) if kept else None)
    try:
        _install(model, described, engine, config)
        del described, switches
        mx.eval(model.parameters())
        known = settle(model, weights)
    except BaseException:
        engine.close()
        raise
    known.engine, known.budget = engine, budget
    model._weir = known
    return model, config


__all__ = ["Budget", "estimate_context", "load_streaming"]
