"""The program `weir` as a child: found, started, its failures turned into exceptions.

Models run in a child because the budget is a whole process's: an interpreter, NumPy and whatever else lives here would be counted
otherwise, and would grow while the model runs.  A child's end also gives everything back.
"""
from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from ctypes import POINTER, byref, c_char_p, c_int, c_uint64
from typing import Any, Dict, List, Union

from ._checkpoint import Checkpoint
from ._errors import BudgetError, EngineError, Error, FormatError, InterruptedRunError, InvalidArgumentError
from ._lib import FOLDER, CError, call, declare, path_bytes

Memory = Union[str, int]
declare("weir_budget_resolve", c_int, c_char_p, POINTER(c_uint64), POINTER(CError))
_EXITS = {1: EngineError, 2: InvalidArgumentError, 3: BudgetError, 4: FormatError, 130: InterruptedRunError}

_NO_ENGINE = "models run where an engine is found: run tools/setup/engine.sh, then install the package again"


def find_program() -> str:
    """Path of the program: named in ``WEIR_PROGRAM``, in this package, or on the search path.

    Raises:
        EngineError: it is nowhere.
    """
    named = os.environ.get("WEIR_PROGRAM")
    own = os.path.join(FOLDER, "bin", "weir")
    found = named or (own if os.access(own, os.X_OK) else shutil.which("weir"))
    if not found or not os.access(found, os.X_OK) or _is_script(found):
        raise EngineError(f"the program weir is not there: {_NO_ENGINE}, or name the program in WEIR_PROGRAM", file=named)
    return found


def _is_script(path: str) -> bool:
    """True for the command that this package installs, which would start itself."""
    with open(path, "rb") as file:
        return file.read(2) == b"#!"


def resolve_budget(text: str) -> int:
    """Bytes that a budget comes to here and now: ``"4G"``, ``"60%"``, ``"auto"``.

    Raises:
        InvalidArgumentError: it is none of these.
    """
    found = c_uint64()
    try:
        call("weir_budget_resolve", text.encode(errors="surrogateescape"), byref(found))
    except InvalidArgumentError as problem:
        raise InvalidArgumentError(f"memory: {problem.message}") from problem
    return found.value


def memory_text(memory: Memory) -> str:
    """A budget as the program takes it: ``4 << 30``, ``"4G"``, ``"60%"``, ``"auto"``.

    Raises:
        InvalidArgumentError: it is none of these.
    """
    if isinstance(memory, bool) or not isinstance(memory, (int, str)):
        raise InvalidArgumentError(f"memory is bytes or a text such as '4G', '60%' or 'auto', not {memory!r}")
    resolve_budget(str(memory))
    return str(memory)


def options(**values: Any) -> List[str]:
    """Command-line options from names and values; None and False are left out."""
    words = []
    for name, value in values.items():
        if value is None or value is False:
            continue
        words.append("--" + name.replace("_", "-"))
        if value is not True:
            words.append(str(value))
    return words


def environment() -> Dict[str, str]:
    """Threads that wait must not spin: a spinning thread keeps the processor from the one that is waited for."""
    return {"OMP_WAIT_POLICY": "passive", **os.environ}


def command(name: str, model: Any, words: List[str]) -> List[Union[str, bytes]]:
    """The command line; the model's name comes last, after ``--``, so that it may begin with a dash."""
    return [find_program(), name, *words, "--", path_bytes(model)]


def failure(exit_code: int, line: str, model: Any) -> Error:
    """The exception for a child that ended so.  Where the model itself is at fault, opening it here says more."""
    if exit_code in (1, 4):
        try:
            Checkpoint(model).close()
        except Error as found:
            return found
    message = re.sub(r"^weir \w+: ", "", line.strip().splitlines()[-1]) if line.strip() else f"weir ended with status {exit_code}"
    if message.startswith("weir: this build has no "):
        return EngineError(f"{_NO_ENGINE}; this package was built without one")
    return _EXITS.get(exit_code, EngineError)(message)


def run_json(name: str, model: Any, words: List[str]) -> Dict[str, Any]:
    """Runs a command to its end and gives its JSON object."""
    done = subprocess.run(command(name, model, ["--json", *words]), env=environment(), stdin=subprocess.DEVNULL, capture_output=True,
                          check=False)
    if done.returncode:
        raise failure(done.returncode, done.stderr.decode(errors="replace"), model)
    report: Dict[str, Any] = json.loads(done.stdout)
    return report


def main() -> None:
    """The command ``weir`` of the package: becomes the program."""
    try:
        os.execv(find_program(), ["weir", *sys.argv[1:]])
    except Error as problem:
        sys.exit(f"weir: {problem}")


__all__ = ["Memory", "command", "environment", "failure", "find_program", "main", "memory_text", "options",
           "resolve_budget", "run_json"]
