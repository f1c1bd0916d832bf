"""weir.plan: how a budget would be divided, before anything is loaded."""
from __future__ import annotations

from typing import Any, Dict, Optional

from ._program import Memory, memory_text, options, run_json


def plan(model: Any, memory: Memory = "auto", *, ctx: Optional[int] = None, threads: Optional[int] = None,
         batch: Optional[int] = None, prompt_length: Optional[int] = None, measure: bool = True) -> Dict[str, Any]:
    """Says how a memory budget would be divided, the least that works, and the speed to expect.  Reads no weight.

    Args:
        model: path of a GGUF model (any shard of a set).
        memory: budget of the whole process that would run it: bytes, or ``"4G"``, ``"3500M"``, ``"60%"``, ``"auto"``.
        ctx: tokens of context; by default 4096, or the model's own if that is less.
        threads: compute threads; by default one for each processor.
        batch: prompt tokens worked on together; by default 512.
        prompt_length: tokens of the prompt that ``first_token_seconds`` is for.
        measure: measure the drive for a moment when its rate is not known.

    Returns:
        What ``weir plan --json`` prints: ``budget_bytes``, ``least_budget_bytes``, ``memory`` (``dense``, ``experts``, ``kv``,
        ``compute``, ``other``, bytes), ``slots`` (``count``, ``bytes``), ``token_cycle_bytes``, ``expected_hit_rate`` (0 to 1),
        ``bytes_per_token``, ``device_bytes_per_second``, ``compute_tokens_per_second``, ``tokens_per_second``,
        ``first_token_seconds``, ``limits`` (``"disk"``, ``"compute"`` or ``"memory"``).  ``None`` where nothing is known.

    Raises:
        BudgetError: the budget cannot hold; ``least_budget_bytes`` says what can.
        NotFoundError, FormatError, UnsupportedError...: the model cannot be opened.
        InvalidArgumentError: a number or size that makes no sense.
        EngineError: the package was built without an engine.
    """
    return run_json("plan", model, options(memory=memory_text(memory), ctx=ctx, threads=threads, batch=batch,
                                           prompt_length=prompt_length, no_measure=not measure))
