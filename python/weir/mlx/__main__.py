"""``python -m weir.mlx generate PATH --memory 4G --prompt TEXT``: a model of mlx_lm within a budget of bytes.

Options and exit codes are those of ``weir run``.  With ``--json``, standard output holds one JSON object and nothing else.
"""
from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any, Dict, List, Optional, Tuple

from .._errors import BudgetError, Error, FormatError, InvalidArgumentError, InterruptedRunError, NotFoundError, UnsupportedError
from ._store import POLICIES

FAILED, USAGE, TOO_LITTLE, INVALID, INTERRUPTED = 1, 2, 3, 4, 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m weir.mlx", description="Models of mlx_lm within a budget of bytes.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add = commands.add_parser("generate", help="generates text and reports what it cost",
                              epilog="example: python -m weir.mlx generate ~/models/Qwen3-30B-A3B-4bit -M 8G -p 'Why is it so?'")
    add.add_argument("model", metavar="PATH", help="folder with config.json and model*.safetensors")
    add.add_argument("-M", "--memory", metavar="SIZE", default="auto", help="budget: 4G, 3500M, 1.5GiB, 60%%, auto (the default)")
    source = add.add_mutually_exclusive_group()
    source.add_argument("-p", "--prompt", metavar="TEXT", help="the prompt; standard input when none is given")
    source.add_argument("-f", "--file", metavar="FILE", help="the prompt, from a file")
    source.add_argument("--prompt-tokens", metavar="IDS", help="the prompt as token ids, \"1,2,3\": no tokenizer, no template")
    add.add_argument("-n", "--tokens", metavar="N", type=int, default=256, help="tokens to generate (256)")
    add.add_argument("-c", "--ctx", metavar="N", type=int, help="tokens of context (prompt and tokens to generate)")
    add.add_argument("--batch", metavar="N", type=int, default=128, help="prompt tokens computed together (128)")
    add.add_argument("--temp", metavar="T", type=float, default=0.0, help="temperature; 0, the default, takes the likeliest token")
    add.add_argument("--top-k", metavar="N", type=int, default=0, help="only the N likeliest tokens")
    add.add_argument("--top-p", metavar="P", type=float, default=0.0, help="only the likeliest tokens that make up P")
    add.add_argument("--seed", metavar="N", type=int, help="of the random choices")
    add.add_argument("--raw", action="store_true", help="no chat template")
    add.add_argument("--ignore-eos", action="store_true", help="go on after the end of the text")
    add.add_argument("--no-streaming", action="store_true", help="map all weights, without a budget")
    add.add_argument("--io", metavar="METHOD", default="auto", help="auto (the default), uring, threads or mmap")
    add.add_argument("--policy", metavar="NAME", default="auto", help=f"which expert goes first: auto (the default), {', '.join(POLICIES[1:])}")
    add.add_argument("--no-lookahead", action="store_true", help="read nothing before it is asked for")
    add.add_argument("--no-counts", action="store_true", help="keep no counts between runs, and use none")
    add.add_argument("--logits-hash", action="store_true", help="a hash over the logits of every step")
    add.add_argument("--report", metavar="FILE", help="writes the JSON report to FILE")
    add.add_argument("--json", action="store_true", help="one JSON object on standard output, nothing else")
    add.add_argument("-q", "--quiet", action="store_true", help="no summary on standard error")
    return parser


def _prompt_text(options: argparse.Namespace) -> str:
    if options.prompt is not None:
        return options.prompt
    if options.file is None:
        return sys.stdin.read()
    try:
        with open(options.file, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as problem:
        raise InvalidArgumentError(f"the prompt cannot be read: {problem}", file=options.file) from problem


def _ids(text: str) -> List[int]:
    try:
        found = [int(word) for word in text.split(",")]
    except ValueError as problem:
        raise InvalidArgumentError(f"--prompt-tokens takes token ids with commas between them, not {text!r}") from problem
    if min(found) < 0:
        raise InvalidArgumentError("--prompt-tokens: a token id is negative")
    return found


def _tokens(options: argparse.Namespace, folder: Any, eos: Any) -> Tuple[List[int], Optional[Any]]:
    """The prompt's ids, and the tokenizer that they came from."""
    if options.prompt_tokens is not None:
        return _ids(options.prompt_tokens), None
    from mlx_lm.utils import load_tokenizer

    tokenizer = load_tokenizer(folder, eos_token_ids=eos)
    text = _prompt_text(options)
    if tokenizer.chat_template is not None and not options.raw:
        return list(tokenizer.apply_chat_template([{"role": "user", "content": text}], add_generation_prompt=True)), tokenizer
    return list(tokenizer.encode(text)), tokenizer


def _check(options: argparse.Namespace) -> None:
    for name, least in (("tokens", 1), ("batch", 1), ("ctx", 1), ("top_k", 0), ("temp", 0)):
        value = getattr(options, name)
        if value is not None and value < least:
            raise InvalidArgumentError(f"--{name.replace('_', '-')} is {value}: it must be at least {least}")


def _run(options: argparse.Namespace) -> Dict[str, Any]:
    from ._generate import Run, generate, report
    from ._load import find_model, load_model

    start = time.perf_counter()
    folder = find_model(options.model)
    with open(folder / "config.json", encoding="utf-8") as file:
        eos = json.load(file).get("eos_token_id")
    prompt, tokenizer = _tokens(options, folder, eos)
    ctx = options.ctx or len(prompt) + options.tokens
    if not prompt or len(prompt) + options.tokens > ctx:
        raise InvalidArgumentError(f"a prompt of {len(prompt)} tokens and {options.tokens} more do not fit a context of {ctx}"
                                   if prompt else "the prompt is empty")
    batch = min(options.batch, len(prompt))
    streaming: Dict[str, Any] = {} if options.no_streaming else {
        "streaming": True, "memory": options.memory, "ctx": ctx, "batch": batch, "io": options.io, "policy": options.policy,
        "lookahead": not options.no_lookahead, "counts": not options.no_counts}
    model, config = load_model(folder, **streaming)
    stop = () if options.ignore_eos else tokenizer.eos_token_ids if tokenizer else [eos] if isinstance(eos, int) else eos or ()
    run = Run(prompt, options.tokens, batch, options.temp, options.top_k, options.top_p, options.seed, tuple(stop),
              options.logits_hash)
    load_seconds = time.perf_counter() - start
    text = _show(generate(model, run), tokenizer, run, not options.json)
    return report(str(options.model), model, config, run, load_seconds, text)


def _show(tokens: Any, tokenizer: Optional[Any], run: Any, shown: bool) -> Optional[str]:
    detokenizer, pieces = tokenizer.detokenizer if tokenizer else None, []
    try:
        for number, token in enumerate(tokens):
            if detokenizer is None:
                piece = str(token) if number == 0 else f",{token}"
            elif token in run.stop:
                break
            else:
                detokenizer.add_token(token)
                piece = detokenizer.last_segment
            pieces.append(piece)
            if shown:
                print(piece, end="", flush=True)
        run.exit = "stop" if run.made and run.made[-1] in run.stop else run.exit
    except KeyboardInterrupt:
        run.exit = "interrupted"
    if detokenizer is not None:
        detokenizer.finalize()
        pieces.append(detokenizer.last_segment)
        if shown:
            print(detokenizer.last_segment, end="")
    if shown:
        print(flush=True)
    return "".join(pieces)


def _write_report(path: str, found: Dict[str, Any]) -> None:
    beside = f"{path}.{os.getpid()}.part"
    try:
        with open(beside, "w", encoding="utf-8") as file:
            json.dump(found, file, ensure_ascii=False)
            file.write("\n")
        os.replace(beside, path)
    finally:
        if os.path.exists(beside):
            os.unlink(beside)


def _summary(found: Dict[str, Any]) -> str:
    mebibytes = (found["peak_memory_bytes"] or 0) / (1 << 20)
    line = f"{found['tokens']} tokens, {found['tokens_per_second'] or 0:.2f} tokens/s; peak memory {mebibytes:.0f} MiB"
    if found["budget_bytes"]:
        read = (found["bytes_per_token"] or 0) / (1 << 20)
        line += f" of {found['budget_bytes'] / (1 << 20):.0f} MiB; {read:.1f} MiB read a token"
        line += f", {100 * (found['hit_rate'] or 0):.0f} % hits"
    return line


def _exit_code(problem: BaseException) -> int:
    if isinstance(problem, BudgetError):
        return TOO_LITTLE
    if isinstance(problem, (FormatError, UnsupportedError)):
        return INVALID
    if isinstance(problem, (InvalidArgumentError, NotFoundError)):
        return USAGE if isinstance(problem, InvalidArgumentError) else FAILED
    return INTERRUPTED if isinstance(problem, (InterruptedRunError, KeyboardInterrupt)) else FAILED


def main(words: Optional[List[str]] = None) -> int:
    """The command; returns its exit code."""
    options = _parser().parse_args(words)
    try:
        _check(options)
        found = _run(options)
        if options.report:
            _write_report(options.report, found)
    except KeyboardInterrupt:
        return INTERRUPTED
    except (Error, OSError, ValueError, RuntimeError) as problem:
        print(f"weir.mlx: {' '.join(str(problem).split())}", file=sys.stderr)
        return _exit_code(problem) if isinstance(problem, Error) else INVALID if isinstance(problem, ValueError) else FAILED
    if options.json:
        print(json.dumps(found, ensure_ascii=False))
    if not options.quiet and not options.json:
        print(_summary(found), file=sys.stderr)
    return INTERRUPTED if found["exit"] == "interrupted" else 0


if __name__ == "__main__":
    sys.exit(main())
