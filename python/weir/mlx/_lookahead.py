"""Guesses of what the next expert layer will want, so that it is read while this one computes.

One token: the next layer's router, applied to what this layer's router saw, names many of the experts that will be picked.  Whether
that pays is measured, not assumed: stretches of tokens with and without take turns, and the faster way is kept for a while.
Many tokens: the next layer will want most of its experts, so its reads begin where slots allow.
"""
from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, List, Optional

import mlx.core as mx
import mlx.nn as nn
import numpy as np

if TYPE_CHECKING:
    from ._switch import Engine

_STRETCH = 8  # tokens in one trial
_KEEP = 128  # tokens until the next one


class Lookahead:
    """Of one model.  Called by the engine under its lock."""

    def __init__(self, engine: "Engine", allowed: bool) -> None:
        self._engine = engine
        self._allowed = allowed
        self.routers: List[Optional[Any]] = []  # of each layer: x → scores of all experts, or None
        self.guesses: List[Any] = []
        self._guessed_at = -1  # the layer that began last, of whatever thread
        self.active = False
        self.tokens = 0
        self._spent = {False: 0.0, True: 0.0}
        self._counted = {False: 0, True: 0}
        self._since = 0.0

    def begin(self, layer: int, x: Any) -> None:
        """A layer is about to run; fills ``guesses`` with what is to be evaluated along with its router."""
        self.guesses, self._guessed_at = [], layer
        single = x.size == x.shape[-1]
        if layer == 0:
            self._token(single)
        router = self.routers[layer + 1] if layer + 1 < len(self.routers) else None
        if self.active and single and router is not None:
            self.guesses = [router(x)]

    def announce(self, layer: int, tokens: int) -> None:
        """A layer's own experts are all held: its guesses may be read now."""
        if layer + 1 >= len(self._engine.layers) or not self._allowed:
            return
        chunks = self._engine.layers[layer + 1]._chunks
        if tokens > 1:
            if tokens * 2 >= len(chunks):
                self._engine.store.prefetch([chunk for expert in chunks for chunk in expert])
        elif self.guesses and self._guessed_at == layer:
            experts = np.array(self.guesses[0]).reshape(-1).tolist()
            self._engine.store.prefetch([chunk for expert in experts for chunk in chunks[expert]], surely=True)

    def _token(self, single: bool) -> None:
        self._engine.store.tick()
        if not self._allowed or not single:
            self._since = 0.0
            return
        now = time.perf_counter()
        if self._since:
            self._spent[self.active] += now - self._since
            self._counted[self.active] += 1
        self._since = now
        self.tokens += 1
        at = self.tokens % (4 * _STRETCH + _KEEP)
        if at == 1:
            self._spent, self._counted = {False: 0.0, True: 0.0}, {False: 0, True: 0}
        if at < 4 * _STRETCH:
            self.active = at // _STRETCH % 2 == 1
        elif at == 4 * _STRETCH:
            self.active = self._pays()

    def _pays(self) -> bool:
        with_, without = (self._spent[way] / max(1, self._counted[way]) for way in (True, False))
        return with_ < without


def find_router(block: Any, experts_count: int, k: int) -> Optional[Any]:
    """x → guesses of the experts that a layer's router would pick, [k]; None where the router is not known."""
    for name in ("gate", "router"):
        router = getattr(block, name, None)
        if isinstance(router, (nn.Linear, nn.QuantizedLinear)) and router.weight.shape[0] == experts_count:
            return lambda x, router=router: mx.argpartition(router(x), kth=-k, axis=-1)[..., -k:]
        if isinstance(router, nn.Module) and type(router).__name__ == "MoEGate":
            return lambda x, router=router: router(x)[0]
    return None


__all__ = ["Lookahead", "find_router"]
