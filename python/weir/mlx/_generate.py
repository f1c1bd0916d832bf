"""Generating with a model that weir.mlx loaded, and the report of what it cost."""
from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

from .._lib import version
from ._load import loaded


@dataclass
class Run:
    """One generation: what was asked for, and what it cost so far."""

    prompt: Sequence[int]
    tokens: int = 256
    batch: int = 128
    temp: float = 0.0
    top_k: int = 0
    top_p: float = 0.0
    seed: Optional[int] = None
    stop: Sequence[int] = ()
    hashed: bool = False
    exit: str = "length"
    made: List[int] = field(default_factory=list)
    prompt_seconds: float = 0.0
    first_token_seconds: Optional[float] = None
    seconds: float = 0.0
    outside_seconds: float = 0.0
    prompt_counters: Dict[str, Any] = field(default_factory=dict)
    counters: Dict[str, Any] = field(default_factory=dict)
    digest: Any = None


def _rate(count: float, seconds: float) -> Optional[float]:
    return count / seconds if seconds > 0 and count > 0 else None


def _hash(run: Run, logits: Any) -> None:
    import mlx.core as mx

    if run.hashed:
        if run.digest is None:
            run.digest = hashlib.sha256()
        bits = logits.view({1: mx.uint8, 2: mx.uint16, 4: mx.uint32}[logits.itemsize])
        run.digest.update(memoryview(bits).tobytes())


def _sampler(run: Run) -> Callable[[Any], Any]:
    import mlx.core as mx
    from mlx_lm.sample_utils import make_sampler

    if run.seed is not None:
        mx.random.seed(run.seed)
    return make_sampler(temp=run.temp, top_p=run.top_p, top_k=run.top_k)


def generate(model: Any, run: Run) -> Iterator[int]:
    """Yields the tokens that follow ``run.prompt``, as they come; ``run`` then says what they cost.

    The prompt is computed in batches of ``run.batch`` tokens, and the logits of one position are all that is kept.
    """
    import mlx.core as mx
    from mlx_lm.models.cache import make_prompt_cache

    engine = loaded(model).engine
    sample, cache, start = _sampler(run), make_prompt_cache(model), time.perf_counter()
    rest = list(run.prompt)
    while len(rest) > 1:
        part, rest = rest[:min(run.batch, len(rest) - 1)], rest[min(run.batch, len(rest) - 1):]
        model(mx.array([part]), cache=cache)
        mx.eval([entry.state for entry in cache])
    token, began = mx.array(rest), start
    while len(run.made) < run.tokens:
        logits = model(token[None], cache=cache)[:, -1, :]
        token = sample(logits - mx.logsumexp(logits, axis=-1, keepdims=True))
        mx.eval(token, logits)
        _hash(run, logits)
        now = time.perf_counter()
        if not run.made:
            run.prompt_seconds, run.first_token_seconds, began = now - start, now - start, now
            if engine is not None:
                run.prompt_counters = engine.describe()
                engine.reset()
        run.seconds = now - began
        run.made.append(token.item())
        if engine is not None:
            run.counters = engine.describe()
            run.outside_seconds = run.counters["outside_ns"] / 1e9
        yield run.made[-1]
        if run.made[-1] in run.stop:
            run.exit = "stop"
            return


def _peak_bytes() -> Optional[int]:
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    except FileNotFoundError:
        return None


def report(name: str, model: Any, config: Dict[str, Any], run: Run, load_seconds: float, text: Optional[str]) -> Dict[str, Any]:
    """The report of ``weir run --json``, and ``outside_seconds``: time in weir's own code between MLX's operations."""
    known = loaded(model)
    budget, found = known.budget, run.counters
    steps = len(run.made) - 1
    read = found.get("bytes_read")
    demanded = found.get("demanded")
    memory = {part: getattr(budget, part) for part in ("dense", "experts", "kv", "compute", "other")} if budget else None
    stall = found["stall_ns"] / 1e9 if found else None
    return {
        "weir_version": version(), "model": name, "architecture": config.get("model_type"),
        "budget_bytes": budget.budget if budget else None, "peak_memory_bytes": _peak_bytes(), "memory": memory,
        "slots": {"count": found["slots"], "bytes": found["slots_bytes"]} if found else None,
        "prompt_tokens": len(run.prompt), "prompt_seconds": run.prompt_seconds,
        "prompt_tokens_per_second": _rate(len(run.prompt), run.prompt_seconds), "tokens": len(run.made), "seconds": run.seconds,
        "tokens_per_second": _rate(steps, run.seconds), "first_token_seconds": run.first_token_seconds,
        "load_seconds": load_seconds,
        "bytes_read": (read or 0) + run.prompt_counters.get("bytes_read", 0) if found else None,
        "bytes_per_token": read / steps if found and steps > 0 else None, "demanded": demanded,
        **{key: found.get(key) for key in ("hits", "joined", "misses")},
        "hit_rate": found["hits"] / demanded if demanded else None,
        **{key: found.get(key) for key in ("prefetched", "prefetch_used", "evictions", "counts_loaded")},
        "stall_seconds": stall,
        "io": {"method": found["io"], "queue_depth": None, "read_bytes_typical": None,
               "device_bytes_per_second": None} if found else None,
        "bound": None, "forecast": None, "policy": found.get("policy"),
        "logits_hash": run.digest.hexdigest() if run.digest else None, "text": text, "exit": run.exit,
        "outside_seconds": run.outside_seconds if found else None,
    }


__all__ = ["Run", "generate", "report"]
