"""Expert layers over slots: which experts are wanted, which are there, and the products over those.

    x, ids ──► experts wanted ──► acquire (reads start) ──► products of the experts that are there ──► wait ──► the others ──► y
                                   └ more than there are slots: in groups, each evaluated before its slots are given up

Each product is the one that mlx_lm's layer would have computed (``gather_qmm`` or ``gather_mm`` with one row), over an array that
shows the slot, so that results are the same bit for bit.

The guard: MLX computes late.  A layer's leases are held until its result is evaluated, or nobody wants it any more; only then may
its slots be read over.  Threads: one lock for all layers of a model, given up while a thread waits for another one's slots.  MLX
evaluates a result only in the thread that made it.
"""
from __future__ import annotations

import atexit
import sys
import threading
import time
import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Deque, Dict, List, Optional, Tuple

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from .._errors import BusyError, UnsupportedError
from ._experts import Part
from ._lookahead import Lookahead
from ._shim import DONE, RUNNING, UNWANTED, shim
from ._store import RELEASE_NOTHING, Counted, Leases, Store

_PAUSE_SECONDS, _PATIENCE = 0.002, 5000
_CLOSED = "this model's slots are closed: load it again"


@dataclass
class Projection:
    """One linear layer of all experts: its tensors, how it is quantised, and the bias, which stays in memory."""

    parts: List[Part]
    quantization: Optional[Dict[str, Any]]
    bias: Any

    def __call__(self, x: Any, arrays: List[Any], rows: Any, zeros: Any) -> Any:
        """Rows ``rows`` of ``x`` [N, 1, in] times one expert's matrix: [len(rows), 1, out]."""
        if self.quantization is None:
            return mx.gather_mm(x, arrays[0].swapaxes(-1, -2), lhs_indices=rows, rhs_indices=zeros)
        return mx.gather_qmm(x, *arrays, lhs_indices=rows, rhs_indices=zeros, transpose=True, **self.quantization)


class StreamedSwitch(nn.Module):
    """Takes the place of a ``SwitchGLU`` (three projections: up, gate, down) or ``SwitchMLP`` (two)."""

    def __init__(self, engine: "Engine", name: str, projections: List[Projection], activation: Any) -> None:
        super().__init__()
        self._engine = engine
        self._name = name
        object.__setattr__(self, "_projections", projections)  # so that MLX takes nothing in it for a parameter
        self.activation = activation
        for index, projection in enumerate(projections):
            if projection.bias is not None:
                self[f"bias_{index}"] = projection.bias
        chunks = zip(*(part.chunks for projection in projections for part in projection.parts))
        object.__setattr__(self, "_chunks", [list(dict.fromkeys(expert)) for expert in chunks])
        object.__setattr__(self, "_layer", engine.add(self))

    def __call__(self, x: Any, indices: Any) -> Any:
        return self._engine.run(self, x, indices)


@dataclass
class Work:
    """One expert, and the tokens that want it: an array of their numbers."""

    expert: int
    tokens: Any


@dataclass
class Group:
    """Experts of a layer whose chunks are held together."""

    layer: StreamedSwitch
    works: List[Work]
    leases: Leases


@dataclass(eq=False)
class Pending:
    """A result that is not evaluated yet, as far as is known, and what it will be computed from."""

    result: Any
    leases: Leases
    thread: threading.Thread = field(default_factory=threading.current_thread)
    stream: Any = field(default_factory=lambda: mx.default_stream(mx.default_device()))

    def progress(self) -> int:
        """As :meth:`Shim.progress`, of results of any thread."""
        found = shim().progress(self.result)
        if found == DONE and self.thread is not threading.current_thread() and self.thread.is_alive():
            try:
                mx.synchronize(self.stream)
            except RuntimeError:  # the thread has just ended, and its stream with it
                return RUNNING
        return found


class Engine:
    """The store, and the layers that run from it.

    ``counted``: the weights that counts of the model's runs are kept by; they are taken over here and saved at the end of the
    engine, or of the process.
    """

    def __init__(self, store: Store, lookahead: bool, counted: Optional[Counted] = None) -> None:
        self.store = store
        self.counts_loaded = store.load_counts(counted) if counted else 0
        self._counted = counted
        self._demanded = 0  # before the counters were last set to 0
        self.layers: List[StreamedSwitch] = []
        self.lookahead = Lookahead(self, lookahead)
        self.outside_ns = 0  # spent here and not in MLX or in waiting for the drive
        self.waiting_ns = 0
        self._arrays: Dict[Tuple[int, int], Tuple[int, Any]] = {}
        self._pending: List[Pending] = []
        self._lock = threading.RLock()  # again by __del__, which may run anywhere
        self._small: Dict[int, Tuple[Any, Any]] = {}
        self._closed = False
        _engines.add(self)

    def add(self, layer: StreamedSwitch) -> int:
        self.layers.append(layer)
        return len(self.layers) - 1

    def close(self) -> None:
        """Evaluates what is still wanted and frees the slots; layers cannot be used afterwards."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._settle()
                self._arrays.clear()
                self._save_counts()
                self.store.close()

    def _save_counts(self) -> None:
        if self._counted and self._demanded + self.store.stats()["demanded"]:
            self.store.save_counts(self._counted)

    def end(self) -> None:
        """The process ends: keeps what was counted.  Threads that still compute are not waited for."""
        if self._lock.acquire(timeout=1):
            try:
                if not self._closed:
                    self._save_counts()
            finally:
                self._lock.release()

    def describe(self) -> Dict[str, Any]:
        """Counters: see :class:`weir.mlx.Stats`."""
        found = self.store.stats()
        kept = ("demanded", "hits", "joined", "misses", "prefetched", "prefetch_used", "evictions", "bytes_read", "stall_ns")
        return {"slots": found["slots_count"], "slots_bytes": found["slab_bytes"], **{name: found[name] for name in kept},
                "policy": self.store.policy, "io": self.store.io_method, "outside_ns": self.outside_ns,
                "counts_loaded": self.counts_loaded}

    def reset(self) -> None:
        """Sets the counters to 0."""
        self._demanded += self.store.stats()["demanded"]
        self.store.reset_stats()
        self.outside_ns = 0

    def __del__(self) -> None:
        if not getattr(self, "_closed", True) and not sys.is_finalizing():
            self.close()

    def run(self, layer: StreamedSwitch, x: Any, indices: Any) -> Any:
        """What the layer that ``layer`` replaced would have returned.

        Raises:
            UnsupportedError: inside ``mx.compile``, ``mx.vmap`` or ``mx.grad``, or after :meth:`close`.
            InputOutputError, ChangedError: a read failed.
        """
        view = shim().inspect(x)
        if view.tracer or shim().inspect(indices).tracer:
            raise UnsupportedError(f"{layer._name}: a streamed model cannot run inside mx.compile, mx.vmap or mx.grad: which "
                                   "experts are to be read is known only when the router has been evaluated; call the model itself")
        with self._lock:
            if self._closed:
                raise UnsupportedError(_CLOSED)
            ids = self._ids(layer, x, indices)
            start = time.perf_counter_ns()
            waited = self.waiting_ns
            self._settle()
            rows = x.reshape(-1, 1, x.shape[-1])
            y = self._sorted(layer, rows, ids) if rows.shape[0] > 1 else self._single(layer, rows, ids)
            y = y.reshape(*indices.shape, y.shape[-1])
            self.outside_ns += time.perf_counter_ns() - start - (self.waiting_ns - waited)
            return y

    def _ids(self, layer: StreamedSwitch, x: Any, indices: Any) -> Any:
        """The experts that the router picked, [tokens × k]; evaluates all that came before."""
        self.lookahead.begin(layer._layer, x)
        mx.eval(indices, *self.lookahead.guesses)
        return np.array(indices).reshape(-1)

    def _settle(self) -> None:
        """Gives back the leases of results that are evaluated or unwanted; evaluates those of this thread first.

        What another thread has not evaluated yet, only that thread can: its leases stay.
        """
        thread, kept, wanted, done = threading.current_thread(), [], [], []
        for pending in self._pending:
            if pending.progress() in (DONE, UNWANTED):
                done.append(pending)
            else:
                (wanted if pending.thread is thread else kept).append(pending)
        if wanted:
            self._evaluate([pending.result for pending in wanted])
        self._pending = kept
        for pending in done + wanted:
            self.store.release(pending.leases)

    def _evaluate(self, arrays: List[Any]) -> None:
        start = time.perf_counter_ns()
        mx.eval(arrays)
        self.waiting_ns += time.perf_counter_ns() - start

    def _single(self, layer: StreamedSwitch, rows: Any, ids: Any) -> Any:
        """One token: its experts in the router's order."""
        first = self._indices(1)[0]
        return self._in_groups(layer, rows, [Work(expert, first) for expert in ids.tolist()])

    def _sorted(self, layer: StreamedSwitch, rows: Any, ids: Any) -> Any:
        """Many tokens: all rows of an expert together, then back to the tokens' order."""
        order = np.argsort(ids, kind="stable")
        experts, starts = np.unique(ids[order], return_index=True)
        tokens = (order // (len(ids) // rows.shape[0])).astype(np.uint32)
        works = [Work(int(expert), mx.array(part)) for expert, part in zip(experts, np.split(tokens, starts[1:]))]
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return mx.take(self._in_groups(layer, rows, works), mx.array(back.astype(np.uint32)), axis=0)

    def _in_groups(self, layer: StreamedSwitch, rows: Any, works: List[Work]) -> Any:
        """The experts' results one after the other, [rows, out]."""
        todo, groups, results = deque(works), deque(), []
        limit, idle = len(works), 0
        while todo or groups:
            while todo and len(groups) < 2:
                group = self._acquire(layer, todo, limit)
                if group is None:
                    break
                groups.append(group)
                if todo and not results and len(groups) == 1:
                    limit = self._halve(group, todo)  # so that the next group can be read meanwhile
            if not groups:  # slots are taken by reads that were only guesses, or that were begun for more than there was room for
                idle = 0 if self.store.wait_read() else idle + 1
                if idle > 2:
                    self._wait_for_threads(layer, idle)
                continue
            group = groups.popleft()
            try:
                result = self._compute(layer, rows, group)
                if todo or groups:
                    self._evaluate([result])
            except BaseException:
                for held in (group, *groups):
                    self.store.release(held.leases)
                raise
            results.append(result)
            if todo or groups:
                self.store.release(group.leases)
            else:
                self.lookahead.announce(layer._layer, rows.shape[0])
                self._pending.append(Pending(result, group.leases))
        return results[0] if len(results) == 1 else mx.concatenate(results)

    def _wait_for_threads(self, layer: StreamedSwitch, tries: int) -> None:
        """Lets threads go on that hold slots."""
        if not self._pending or tries > _PATIENCE:
            raise BusyError(f"{layer._name}: " + ("results that other threads have not evaluated take the slots: evaluate or drop "
                                                  "them there, or give the model more memory" if self._pending else
                                                  "the slots do not hold one expert"))
        start = time.perf_counter_ns()
        self._lock.release()
        try:
            time.sleep(_PAUSE_SECONDS)
        finally:
            self._lock.acquire()
        self.waiting_ns += time.perf_counter_ns() - start
        if self._closed:
            raise UnsupportedError(_CLOSED)
        self._settle()

    def _halve(self, group: Group, todo: Deque[Work]) -> int:
        keep = max(1, (len(group.works) + 1) // 2)
        while len(group.works) > keep:
            todo.appendleft(group.works.pop())
        self.store.shorten(group.leases, sum(len(group.layer._chunks[work.expert]) for work in group.works))
        return keep

    def _acquire(self, layer: StreamedSwitch, todo: Deque[Work], limit: int) -> Optional[Group]:
        """As many experts as there are slots for, at most ``limit``; None when there is none for even one."""
        chosen = [todo[i] for i in range(min(limit, len(todo)))]
        leases = self.store.acquire([chunk for work in chosen for chunk in layer._chunks[work.expert]])
        works, count = [], 0
        for work in chosen:
            count += len(layer._chunks[work.expert])
            if count > leases.count:
                break
            works.append(work)
        self.store.shorten(leases, sum(len(layer._chunks[work.expert]) for work in works))
        if not works:  # what is there already, of experts further on, was not to go: try without them
            return self._acquire(layer, todo, 1) if limit > 1 else None
        for _ in works:
            todo.popleft()
        return Group(layer, works, leases)

    def _compute(self, layer: StreamedSwitch, rows: Any, group: Group) -> Any:
        start = time.perf_counter_ns()
        addresses = self.store.wait(group.leases)
        self.waiting_ns += time.perf_counter_ns() - start
        experts, at = [], 0
        for work in group.works:
            chunks = layer._chunks[work.expert]
            where = dict(zip(chunks, addresses[at:at + len(chunks)]))
            at += len(chunks)
            experts.append([[self._array(part, work.expert, where) for part in projection.parts]
                            for projection in layer._projections])
        return self._products(layer, rows, group.works, experts)

    def _array(self, part: Part, expert: int, where: Dict[int, int]) -> Any:
        """One expert's tensor as an array over its slot; kept while the chunk stays where it is."""
        address = where[part.chunks[expert]] + part.inner[expert]
        key = (id(part), expert)
        known = self._arrays.get(key)
        if known is None or known[0] != address:
            known = (address, shim().alias(address, part.shape, part.dtype, RELEASE_NOTHING, None, part.strides))
            self._arrays[key] = known
        return known[1]

    def _products(self, layer: StreamedSwitch, rows: Any, works: List[Work], experts: List[List[List[Any]]]) -> Any:
        *firsts, last = layer._projections
        counts = [work.tokens.size for work in works]
        ids = None
        if any(projection.bias is not None for projection in layer._projections):
            ids = mx.array(np.repeat([work.expert for work in works], counts).astype(np.uint32))

        def project(index: int, projection: Projection, x: Any, lines: List[Any]) -> Any:
            made = [projection(x, experts[i][index], line, self._indices(line.size)[1]) for i, line in enumerate(lines)]
            y = made[0] if len(made) == 1 else mx.concatenate(made)
            return y if projection.bias is None else y + mx.expand_dims(projection.bias[ids], -2)

        tokens = [work.tokens for work in works]
        hidden = layer.activation(*(project(i, projection, rows, tokens) for i, projection in enumerate(firsts)))
        ends = np.cumsum(counts)
        lines = [self._range(end - count, end) for count, end in zip(counts, ends.tolist())]
        return project(len(firsts), last, hidden, lines).squeeze(-2)

    def _indices(self, count: int) -> Tuple[Any, Any]:
        """0, 1, 2... and zeros, of MLX, evaluated."""
        if count not in self._small:
            made = mx.arange(count, dtype=mx.uint32), mx.zeros((count,), dtype=mx.uint32)
            mx.eval(made)
            if count > 64:
                return made
            self._small[count] = made
        return self._small[count]

    def _range(self, start: int, end: int) -> Any:
        if end - start == 1 and start < 64:
            key = -1 - start
            if key not in self._small:
                made = mx.array([start], dtype=mx.uint32)
                mx.eval(made)
                self._small[key] = (made, made)
            return self._small[key][0]
        return mx.arange(start, end, dtype=mx.uint32)


_engines: "weakref.WeakSet[Engine]" = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    for engine in list(_engines):
        engine.end()


__all__ = ["Engine", "Projection", "StreamedSwitch"]
