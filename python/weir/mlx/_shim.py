"""The shim: a small C++ file, compiled once for the MLX that is installed, that gives MLX arrays over memory of others.

Kept in ``$XDG_CACHE_HOME/weir/mlx`` (``~/.cache/weir/mlx``), one for each MLX, machine and version of the source; written beside
and renamed, under a lock, so that any number of processes may come at once.  ``CXX`` names another compiler.
"""
from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import platform
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_uint64, c_void_p
from typing import Any, List, Optional, Sequence, Tuple

from .._errors import AccessError, Error, UnsupportedError

OLDEST = (0, 32, 4)  # before, operations write into arrays that are not theirs (MLX issue "donation of foreign buffers")
_SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "shim.cpp")
_MESSAGE_BYTES = 256
_RANK_MAX = 16

UNWANTED, WANTED, RUNNING, DONE = range(4)  # Shim.progress


class ShimError(UnsupportedError):
    """MLX is missing, too old, or laid out in a way that is not known; or no compiler is there to build for it."""


class CView(ctypes.Structure):
    """``weir_mlx_view``."""

    _fields_ = [("data", c_void_p), ("primitive", c_char_p), ("id", c_uint64), ("strides", c_int64 * _RANK_MAX),
                ("shape", c_int32 * _RANK_MAX), ("rank", c_int32), ("item_bytes", c_int32), ("inputs_count", c_int32),
                ("tracer", c_int32)]


def check_version(version: str) -> None:
    """Raises ``ShimError`` for an MLX that is too old."""
    numbers = tuple(int(n) for n in re.findall(r"\d+", version)[:3])
    if numbers < OLDEST:
        raise ShimError(f"MLX {version} may write into mapped weights: weir.mlx needs {'.'.join(map(str, OLDEST))} or later "
                        "(pip install --upgrade mlx)")


def _mlx_folder() -> str:
    import mlx.core

    return os.path.dirname(os.path.abspath(mlx.core.__file__))


def _compilers() -> List[List[str]]:
    named = os.environ.get("CXX")
    return [shlex.split(named)] if named else [["c++"], ["g++"], ["clang++"]]


def _find_compiler() -> List[str]:
    for command in _compilers():
        if command and shutil.which(command[0]):
            return command
    raise ShimError("weir.mlx compiles a small C++ file once for each version of MLX, and found no compiler "
                    f"({', '.join(c[0] for c in _compilers() if c)}): install g++ (Debian: apt-get install g++), or name one "
                    "in CXX")


def cache_folder() -> str:
    """Where shims are kept; made if need be.  What others may write to is refused: code is loaded from it."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = os.path.join(base, "weir", "mlx")
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as problem:
        raise AccessError("no folder for the compiled shim can be made: name a writable one in XDG_CACHE_HOME", file=folder,
                          errno=problem.errno) from problem
    status = os.stat(folder)
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise AccessError("the folder for the compiled shim belongs to, or can be written by, others: remove it, or name another "
                          "one in XDG_CACHE_HOME", file=folder)
    return folder


def _key(version: str, library: str) -> str:
    status = os.stat(library)
    with open(_SOURCE, "rb") as source:
        digest = hashlib.sha256(source.read())
    digest.update(f"{status.st_size} {status.st_mtime_ns}".encode())
    return f"{re.sub('[^0-9A-Za-z.+-]', '_', version)}-{platform.system()}-{platform.machine()}-{digest.hexdigest()[:16]}"


def _compile(folder: str, target: str, mlx_folder: str) -> None:
    compiler = _find_compiler()
    handle, beside = tempfile.mkstemp(suffix=".so", dir=folder)
    os.close(handle)
    command = compiler + ["-std=c++20", "-O2", "-fPIC", "-shared", _SOURCE, "-o", beside,
                                  "-I", os.path.join(mlx_folder, "include"), "-L", os.path.join(mlx_folder, "lib"), "-lmlx"]
    if sys.platform == "darwin":
        command += ["-I", os.path.join(mlx_folder, "include", "metal_cpp")]
    try:
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
        if ended.returncode != 0:
            lines = [line for line in ended.stderr.splitlines() if "error" in line] or ended.stderr.splitlines() or ["no message"]
            raise ShimError(f"the shim does not compile for this MLX: {lines[0].strip()} (command: {shlex.join(command)})")
        os.replace(beside, target)
    finally:
        if os.path.exists(beside):
            os.unlink(beside)


def build() -> str:
    """Path of the shim for the MLX that is installed; compiles it if it is not there.

    Raises:
        ShimError: no compiler, an MLX that is too old, or one that it does not compile for.
        AccessError: the cache folder cannot be used.
    """
    import mlx.core as mx

    check_version(mx.__version__)
    mlx_folder = _mlx_folder()
    library = os.path.join(mlx_folder, "lib", "libmlx.dylib" if sys.platform == "darwin" else "libmlx.so")
    folder = cache_folder()
    target = os.path.join(folder, f"shim-{_key(mx.__version__, library)}.so")
    if os.path.exists(target):
        return target
    with open(os.path.join(folder, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(target):
            _compile(folder, target, mlx_folder)
    return target


def _object_address(array: Any) -> int:
    """Of the C++ array inside a Python one: nanobind keeps its distance right after the object's header."""
    header = object.__basicsize__
    return id(array) + c_int32.from_address(id(array) + header).value


def _readable(address: int, count: int) -> Optional[bytes]:
    """Bytes at an address, or None where there are none; without a way to ask, trusts the address."""
    try:
        with open("/proc/self/mem", "rb", buffering=0) as memory:
            return os.pread(memory.fileno(), count, address)
    except FileNotFoundError:
        return ctypes.string_at(address, count)
    except (OSError, OverflowError):
        return None


def _layout_is_known(mx: Any) -> bool:
    """True when a Python array holds its C++ array where it is expected, told by an array of a known shape."""
    known = mx.zeros((3, 5, 7), dtype=mx.int16)
    pointer = _readable(_object_address(known), 8)
    if pointer is None or len(pointer) < 8:
        return False
    described = _readable(int.from_bytes(pointer, sys.byteorder), 192)
    wanted = b"".join(n.to_bytes(4, sys.byteorder) for n in (3, 5, 7))
    return described is not None and wanted in described


class Shim:
    """The loaded shim; one in a process (:func:`shim`)."""

    def __init__(self) -> None:
        import mlx.core as mx

        check_version(mx.__version__)
        if not _layout_is_known(mx):
            raise ShimError(f"MLX {mx.__version__} keeps its arrays in another way than weir knows")
        self._mx = mx
        self.path = build()
        self._lib = ctypes.CDLL(self.path)
        self._declare()
        self._check()

    def _declare(self) -> None:
        lib = self._lib
        lib.weir_mlx_compiled_for.restype = lib.weir_mlx_running.restype = c_char_p
        for name, arguments in (("inspect", [c_void_p, POINTER(CView), c_char_p]),
                                ("progress_of", [c_void_p, c_char_p]),
                                ("input", [c_void_p, c_int32, c_void_p, c_char_p]),
                                ("alias", [c_void_p, c_void_p, POINTER(c_int64), c_void_p, c_void_p, c_char_p])):
            function = getattr(lib, "weir_mlx_" + name)
            function.restype, function.argtypes = c_int, arguments

    def _check(self) -> None:
        compiled, running = self._lib.weir_mlx_compiled_for().decode(), self._lib.weir_mlx_running().decode()
        if not running.startswith(compiled):
            raise ShimError(f"MLX's headers are of version {compiled} and its library of {running}: install it anew")
        view = self.inspect(self._mx.zeros((3, 5, 7), dtype=self._mx.int16))
        if list(view.shape[:view.rank]) != [3, 5, 7] or view.item_bytes != 2:
            raise ShimError(f"MLX {running} keeps its arrays in another way than weir knows")

    def inspect(self, array: Any) -> CView:
        """What is known of an array without evaluating it."""
        view, message = CView(), ctypes.create_string_buffer(_MESSAGE_BYTES)
        if self._lib.weir_mlx_inspect(_object_address(array), byref(view), message) < 0:
            raise ShimError(message.value.decode(errors="replace"))
        return view

    def progress(self, array: Any) -> int:
        """``UNWANTED``: nobody will evaluate it, the caller's array is the only one; ``WANTED``: not evaluated yet; ``RUNNING``:
        in a thread of MLX's; ``DONE``: if another thread is just evaluating it, when its stream has been waited for."""
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        found = self._lib.weir_mlx_progress_of(_object_address(array), message)
        if found < 0:
            raise ShimError(message.value.decode(errors="replace"))
        return found

    def inputs(self, array: Any) -> List[Any]:
        """The arrays that this one will be computed from; none once it is evaluated."""
        message, found = ctypes.create_string_buffer(_MESSAGE_BYTES), []
        for index in range(self.inspect(array).inputs_count):
            target = self._mx.zeros((1,))
            if self._lib.weir_mlx_input(_object_address(array), index, _object_address(target), message) < 0:
                raise ShimError(message.value.decode(errors="replace"))
            found.append(target)
        return found

    def alias(self, address: int, shape: Sequence[int], dtype: Any, release: int, owner: int,
              strides: Optional[Sequence[int]] = None) -> Any:
        """An array over memory that somebody else holds.

        Args:
            address: of the first element; a multiple of the element's size.
            shape, dtype: as MLX has them.
            release, owner: address of a native function and its argument: called once, in any thread, when the last array over
                the memory is gone.
            strides: in elements; C order if left out.

        Raises:
            ShimError: this MLX takes no such memory; ``owner`` then stays the caller's.
        """
        array = self._mx.zeros(shape, dtype=dtype)
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        steps = (c_int64 * len(strides))(*strides) if strides is not None else None
        if self._lib.weir_mlx_alias(_object_address(array), address, steps, release, owner, message) < 0:
            raise ShimError(f"no array over mapped memory: {message.value.decode(errors='replace')}")
        return array


_loaded: List[Tuple[Optional[Shim], Optional[Error]]] = []
_lock = threading.Lock()


def shim() -> Shim:
    """The shim, built and loaded on first use.

    Raises:
        ShimError, AccessError: as :func:`build`; every time, without trying again.
    """
    if not _loaded:
        with _lock:
            if not _loaded:
                _loaded.append(_try())
    made, problem = _loaded[0]
    if made is None:
        assert problem is not None
        raise problem
    return made


def _try() -> Tuple[Optional[Shim], Optional[Error]]:
    try:
        import mlx.core  # noqa: F401
    except ImportError as problem:
        return None, ShimError(f"MLX is not installed ({problem}): pip install 'mlx[cpu]' on Linux, 'mlx' on macOS")
    try:
        return Shim(), None
    except (ShimError, AccessError) as problem:
        return None, problem
    except OSError as problem:
        return None, ShimError(f"the shim cannot be loaded: {problem}; remove {cache_folder()} to have it compiled anew")


__all__ = ["CView", "DONE", "OLDEST", "RUNNING", "Shim", "ShimError", "UNWANTED", "WANTED", "build", "cache_folder",
           "check_version", "shim"]
