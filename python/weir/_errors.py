"""Exceptions: one class for each code of the C library (include/weir/error.h), all of them ``weir.Error``."""
from __future__ import annotations

import os
import re
from typing import Any, Optional, Type


class Error(Exception):
    """Something that weir refused or could not do.

    Attributes:
        code: the C library's result code, negative (``include/weir/error.h``).
        code_name: its name, ``"WEIR_ENOTFOUND"``.
        file: path of the file concerned, or ``None``.
        offset: byte offset in it, or ``None``.
        errno: the system's error number behind it, or ``None``.
        message: the rule that was broken, in words.
    """

    code: int = 0
    code_name: str = "WEIR_UNKNOWN"

    def __init__(self, message: str, *, file: Optional[str] = None, offset: Optional[int] = None,
                 errno: Optional[int] = None) -> None:
        super().__init__(message)
        self.message = message
        self.file = file
        self.offset = offset
        self.errno = errno

    def __str__(self) -> str:
        where = "" if self.file is None else f"{_printable(self.file)}: "
        at = "" if self.offset is None else f"offset {self.offset}: "
        why = "" if not self.errno else f" ({os.strerror(self.errno)})"
        return f"{where}{at}{_printable(self.message)}{why}"


def _printable(text: str) -> str:
    """Names come from files: control characters and broken encodings do not reach a terminal."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


class InvalidArgumentError(Error, ValueError):
    """An argument makes no sense: negative, past the end of the file, too large to count."""

    code, code_name = -1, "WEIR_EINVAL"


class MisalignedError(InvalidArgumentError):
    """The bytes do not begin where elements of this type can be read in place."""


class OutOfMemoryError(Error, MemoryError):
    """The system gave no memory."""

    code, code_name = -2, "WEIR_ENOMEM"


class InputOutputError(Error, OSError):
    """Reading or writing failed."""

    code, code_name = -3, "WEIR_EIO"


class FormatError(Error, ValueError):
    """The file breaks a rule of its format."""

    code, code_name = -4, "WEIR_EFORMAT"


class UnsupportedError(Error, ValueError):
    """The file is valid, and weir does not know what to do with it."""

    code, code_name = -5, "WEIR_EUNSUPPORTED"


class DtypeError(UnsupportedError, TypeError):
    """An element type that is unknown, or that the other library does not have."""


class BudgetError(Error):
    """The memory budget cannot hold what was asked for.

    Attributes:
        least_budget_bytes: the least budget that can, or ``None`` when that is not known.
    """

    code, code_name = -6, "WEIR_EBUDGET"

    def __init__(self, message: str, **where: Any) -> None:
        super().__init__(message, **where)
        least = re.search(r"the least is (\d+)", message)  # the library and the program say it in words only
        self.least_budget_bytes: Optional[int] = int(least[1]) if least else None


class BusyError(Error):
    """Nothing can be freed at the moment."""

    code, code_name = -7, "WEIR_EBUSY"


class NotFoundError(Error, FileNotFoundError):
    """There is no such file."""

    code, code_name = -8, "WEIR_ENOTFOUND"


class AccessError(Error, PermissionError):
    """The file may not be read."""

    code, code_name = -9, "WEIR_EACCESS"


class NotRegularFileError(Error, OSError):
    """A directory, FIFO, socket or device where a file is wanted."""

    code, code_name = -10, "WEIR_ENOTREGULAR"


class ChangedError(Error, OSError):
    """The file is not the one that was opened any more: open it again."""

    code, code_name = -11, "WEIR_ECHANGED"


class NoSpaceError(Error, OSError):
    """No space is left on the device."""

    code, code_name = -12, "WEIR_ENOSPACE"


class EngineError(Error, RuntimeError):
    """llama.cpp failed, is missing, or is another version than weir was built for."""

    code, code_name = -13, "WEIR_EENGINE"


class InterruptedRunError(Error):
    """The run was interrupted."""

    code, code_name = -14, "WEIR_EINTERRUPTED"


class ChecksumError(Error, ValueError):
    """The bytes do not match their checksum."""

    code, code_name = -15, "WEIR_ECHECKSUM"


class LimitError(Error, OSError):
    """A limit of the process or the system was reached: open files, mappings."""

    code, code_name = -16, "WEIR_ELIMIT"


_BY_CODE = {
    kind.code: kind
    for kind in (InvalidArgumentError, OutOfMemoryError, InputOutputError, FormatError, UnsupportedError, BudgetError, BusyError,
                 NotFoundError, AccessError, NotRegularFileError, ChangedError, NoSpaceError, EngineError, InterruptedRunError,
                 ChecksumError, LimitError)
}


def class_of(code: int) -> Type[Error]:
    """The exception class for a code of the C library."""
    return _BY_CODE.get(code, Error)
