"""weir.generate: text from a model within a memory budget, as it comes."""
from __future__ import annotations

import codecs
import json
import operator
import os
import signal
import subprocess
import tempfile
import threading
from typing import Any, Dict, Iterator, List, Optional, Sequence, Union

from ._errors import Error, InvalidArgumentError
from ._program import Memory, command, environment, failure, memory_text, options

_READ_BYTES = 1 << 16
_STOP_SECONDS = 10  # what a child has to end by itself, each time it is asked
_INTERRUPTED = 130


class Generation(Iterator[str]):
    """Text that a model writes, piece by piece; made by :func:`weir.generate`.

    Iterate to get it, or ``str()`` of :meth:`read` for all of it.  ``close()``, leaving a ``with`` block or dropping the last
    reference stops the model.  One thread iterates; any thread may close.

    Attributes:
        text: what has come so far.
        report: what the run cost, the object of ``weir run --json``; ``None`` until the run has ended.
    """

    def __init__(self, model: Any, stdin: Any, words: List[str]) -> None:
        self.text: str = ""
        self.report: Optional[Dict[str, Any]] = None
        self._model = model
        self._problem: Optional[Error] = None
        self._closing = False
        self._lock = threading.RLock()  # held while reading, so that nobody closes the descriptor meanwhile
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""  # a newline at the end, which may be the program's own
        self._folder = tempfile.TemporaryDirectory(prefix="weir-")
        self._report_path = os.path.join(self._folder.name, "report.json")
        self._errors = tempfile.TemporaryFile()
        self._process = self._start(model, stdin, words)

    def _start(self, model: Any, stdin: Any, words: List[str]) -> "subprocess.Popen[bytes]":
        words = ["--quiet", "--report", self._report_path, *words]
        return subprocess.Popen(command("run", model, words), env=environment(), stdin=stdin, stdout=subprocess.PIPE,
                                stderr=self._errors)

    def __iter__(self) -> "Generation":
        return self

    def __next__(self) -> str:
        with self._lock:
            while not self._ended:
                piece = self._read_piece()
                if piece:
                    self.text += piece
                    return piece
        if self._problem is not None and not self._closing:
            problem, self._problem = self._problem, None
            raise problem
        raise StopIteration

    def _read_piece(self) -> str:
        assert self._process.stdout is not None
        raw = os.read(self._process.stdout.fileno(), _READ_BYTES)
        return self._take(self._decoder.decode(raw)) if raw else self._finish()

    @property
    def _ended(self) -> bool:
        return self._process.stdout is None or self._process.stdout.closed

    def _take(self, piece: str) -> str:
        """Keeps a last newline back: the program ends text with one when the model does not."""
        piece = self._held + piece
        self._held = "\n" if piece.endswith("\n") else ""
        return piece[:-1] if self._held else piece

    def _finish(self) -> str:
        """The child has closed its output: waits for its end, reads its report; returns what was kept back."""
        code = self._process.wait()
        self._read_report()
        if code and not (self._closing and code in (_INTERRUPTED, -signal.SIGINT, -signal.SIGKILL)):
            self._problem = failure(code, self._read_errors(), self._model)
        self._release()
        text = (self.report or {}).get("text") or ""
        return self._held if self._held and text.endswith("\n") else ""

    def _read_report(self) -> None:
        try:
            with open(self._report_path, encoding="utf-8") as file:
                self.report = json.load(file)
        except (OSError, ValueError):
            self.report = None  # the run ended before it had one

    def _read_errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def _release(self) -> None:
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()
        self._folder.cleanup()

    def _stop(self) -> None:
        """Asks the child to end: first in order, then at once, then without asking."""
        for stop in (signal.SIGINT, signal.SIGINT, signal.SIGKILL):
            if self._process.poll() is not None:
                return
            self._process.send_signal(stop)
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                pass

    def read(self) -> str:
        """All of the text: waits for the end."""
        for _ in self:
            pass
        return self.text

    def close(self) -> None:
        """Stops the model, if it is still running; the report is there afterwards.  May be called again, and from any thread."""
        self._closing = True
        if self._ended:
            return
        self._stop()  # a thread that is reading comes to the end of it then
        with self._lock:
            if not self._ended:
                self._finish()

    def __enter__(self) -> "Generation":
        return self

    def __exit__(self, *details: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_process", None) is not None:
            self.close()


def _prompt_file(prompt: str) -> Any:
    """The prompt as the child's standard input: not on its command line, where others could read it, and as long as it may be."""
    if not prompt or "\0" in prompt:
        raise InvalidArgumentError("the prompt is empty" if not prompt else "the prompt holds a NUL character")
    try:
        encoded = prompt.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as problem:
        raise InvalidArgumentError(f"the prompt is no text that UTF-8 can hold: {problem}") from problem
    file = tempfile.TemporaryFile()
    file.write(encoded)
    file.seek(0)
    return file


def _token_text(tokens: Sequence[int]) -> str:
    if isinstance(tokens, (bytes, bytearray)):
        raise InvalidArgumentError("a prompt is text or a sequence of token ids, not bytes: decode it")
    try:
        return ",".join(str(operator.index(token)) for token in tokens)
    except (TypeError, ValueError) as problem:
        raise InvalidArgumentError(f"a prompt is text or a sequence of token ids, not {tokens!r}") from problem


def generate(model: Any, prompt: Union[str, Sequence[int]], memory: Memory = "auto", *, tokens: Optional[int] = None,
             ctx: Optional[int] = None, threads: Optional[int] = None, temp: Optional[float] = None, top_k: Optional[int] = None,
             top_p: Optional[float] = None, seed: Optional[int] = None, raw: bool = False, ignore_eos: bool = False,
             io: Optional[str] = None, policy: Optional[str] = None, lookahead: bool = True, counts: bool = True,
             logits_hash: bool = False) -> Generation:
    """Generates text with a model that may be larger than memory, within a budget of bytes.

    The model runs in a child process (the program ``weir run``), which the budget is for: what this process takes is not part of
    it.  The child starts at once and ends with the text, with :meth:`Generation.close`, or when the result is dropped.

    Args:
        model: path of a GGUF model (any shard of a set).
        prompt: text, which the model's chat template goes around unless ``raw``; or token ids, taken as they are.
        memory: budget: bytes, or ``"4G"``, ``"3500M"``, ``"60%"``, ``"auto"``.
        tokens: generate at most so many; by default until the model ends or the context is full.
        ctx: tokens of context; by default 4096, or the model's own if that is less.
        threads: compute threads; by default one for each processor.
        temp, top_k, top_p, seed: sampling; ``temp=0`` always takes the likeliest token.
        ignore_eos: go on when the model ends its text.
        io: ``"auto"``, ``"uring"``, ``"threads"`` or ``"mmap"``.
        policy: which expert gives way: ``"auto"``, ``"lfu"``, ``"lru"``...
        lookahead: read what the next layer will probably want.
        counts: begin with the counts of earlier runs of the model, and keep this one's.
        logits_hash: put a hash over all logits into the report.

    Returns:
        A :class:`Generation`: iterate over it for pieces of text; then its ``report`` says what the run cost.

    Raises (while iterating, or here for the arguments):
        BudgetError: the budget cannot hold; ``least_budget_bytes`` says what can.
        NotFoundError, FormatError, UnsupportedError...: the model cannot be opened.
        InvalidArgumentError: a number or size that makes no sense, a prompt longer than the context.
        EngineError: the run failed, or the package was built without an engine.

    Example:
        >>> with weir.generate("model.gguf", "Why do rivers meander?", memory="4G") as text:
        ...     for piece in text:
        ...         print(piece, end="", flush=True)
        >>> text.report["peak_memory_bytes"]
    """
    words = options(memory=memory_text(memory), tokens=tokens, ctx=ctx, threads=threads, temp=temp, top_k=top_k, top_p=top_p,
                    seed=seed, raw=raw, ignore_eos=ignore_eos, io=io, policy=policy, no_lookahead=not lookahead, no_counts=not counts,
                    logits_hash=logits_hash)
    if not isinstance(prompt, str):
        return Generation(model, subprocess.DEVNULL, [*words, "--prompt-tokens", _token_text(prompt)])
    with _prompt_file(prompt) as file:
        return Generation(model, file, words)
