"""llama-cpp-python within a memory budget: after ``weir.llama.enable(memory="4G")``, ``llama_cpp.Llama(...)`` streams.

The package stays as it is on disk.  ``enable`` loads weir's backend into its ggml, makes libllama map models without reading
them, and gives every model loaded afterwards to the device WEIR0 (all layers, mapped, no weight repacking), whatever
``n_gpu_layers``, ``use_mmap`` and ``use_mlock`` say.

The budget is this whole process's: the interpreter, its modules and everything else that lives here count.  It is divided when
the first tokens are computed; what the program takes afterwards comes on top.
"""
from __future__ import annotations

import ctypes
import functools
import gc
import json
import os
import sys
import tempfile
from ctypes import POINTER, byref, c_bool, c_char_p, c_int, c_void_p
from typing import Any, Callable, Dict, Optional

from ._errors import EngineError, InvalidArgumentError
from ._lib import NO_OFFSET, CError, candidates, path_bytes, raise_error
from ._program import Memory, memory_text

_DEVICE = b"WEIR0"
_ALL_LAYERS = 0x7FFFFFFF


class _Options(ctypes.Structure):
    """``weir_plugin_options``."""

    _fields_ = [("memory", c_char_p), ("io_method", c_char_p), ("policy", c_char_p), ("trace_path", c_char_p),
                ("no_lookahead", c_bool), ("no_counts", c_bool)]


def _load(name: str) -> ctypes.CDLL:
    tried = []
    for path in candidates(name):
        try:
            return ctypes.CDLL(path)
        except OSError as problem:
            tried.append(str(problem))
    raise EngineError(f"{name} cannot be loaded: {'; '.join(tried)}.  It is built with the package where an engine is found "
                      "(tools/setup/engine.sh), for one version of llama-cpp-python")


def _import_llama_cpp() -> Any:
    if "llama_cpp" not in sys.modules:
        # Threads that wait must not spin: they would take the processor from the one that is waited for.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        import llama_cpp
    except ImportError as problem:
        raise EngineError(f"llama-cpp-python cannot be imported: {problem}") from problem
    return llama_cpp


class _Backend:
    """weir's backend in the ggml of llama-cpp-python: loaded once, for the life of the process."""

    def __init__(self, llama_cpp: Any) -> None:
        folder = os.path.join(os.path.dirname(os.path.abspath(llama_cpp.__file__)), "lib")
        self._ggml = self._engine_library(folder, "libggml.so")
        self._base = self._engine_library(folder, "libggml-base.so")
        self._base.ggml_version.restype = c_char_p
        self._base.ggml_backend_reg_get_proc_address.restype = c_void_p
        self._base.ggml_backend_reg_get_proc_address.argtypes = [c_void_p, c_char_p]
        self._plugin = _load("libggml-weir.so")
        self._plugin.ggml_backend_init.restype = c_void_p
        reg = self._plugin.ggml_backend_init()
        self._check_version(reg)
        self._configure = self._function(reg, b"weir_plugin_configure", c_int, POINTER(_Options), POINTER(CError))
        self._take_error = self._function(reg, b"weir_plugin_take_error", c_int, POINTER(CError))
        self._write_report = self._function(reg, b"weir_plugin_write_report", c_int, c_char_p, POINTER(CError))
        self._bind_mappings()
        self.devices = self._register(reg)

    @staticmethod
    def _engine_library(folder: str, name: str) -> ctypes.CDLL:
        try:
            return ctypes.CDLL(os.path.join(folder, name))
        except OSError as problem:
            raise EngineError(f"this llama-cpp-python has no {name} of its own: {problem}; weir needs one that was built with shared "
                              "libraries, as its source distribution is") from problem

    def _function(self, reg: int, name: bytes, result: Any, *arguments: Any) -> Callable[..., Any]:
        address = self._base.ggml_backend_reg_get_proc_address(reg, name)
        if not address:
            raise EngineError(f"libggml-weir.so has no {name.decode()}: it is not of this package's version")
        return ctypes.CFUNCTYPE(result, *arguments)(address)

    def _check_version(self, reg: int) -> None:
        built_for = self._function(reg, b"weir_plugin_engine_version", c_char_p)().decode()
        found = self._base.ggml_version().decode()
        if found != built_for:
            raise EngineError(f"llama-cpp-python's ggml is version {found}, and weir was built for {built_for}: install "
                              "llama-cpp-python==0.3.36, or build weir for this one (WEIR_ENGINE_DIR)")

    def _bind_mappings(self) -> None:
        self._preload = _load("libweir-mmap-preload.so")
        self._preload.weir_preload_bind.argtypes = [c_char_p]
        if self._preload.weir_preload_bind(b"libllama.so") < 1:
            raise EngineError("libllama's calls of mmap cannot be found, so loading would read the whole model: weir knows "
                              "glibc on x86-64 and AArch64")

    def _register(self, reg: int) -> Any:
        """The device list for libllama: WEIR0 and NULL."""
        by_name = self._base.ggml_backend_dev_by_name if hasattr(self._base, "ggml_backend_dev_by_name") \
            else self._ggml.ggml_backend_dev_by_name
        by_name.restype, by_name.argtypes = c_void_p, [c_char_p]
        device = by_name(_DEVICE)
        if not device:
            self._ggml.ggml_backend_register.restype = None
            self._ggml.ggml_backend_register.argtypes = [c_void_p]
            self._ggml.ggml_backend_register(reg)
            device = by_name(_DEVICE)
        if not device:
            raise EngineError("ggml did not take weir's backend")
        return (c_void_p * 2)(device, None)

    def configure(self, options: _Options) -> None:
        self._call(self._configure, byref(options))

    def write_report(self, path: str) -> None:
        self._call(self._write_report, os.fsencode(path))

    def raise_last_error(self) -> None:
        """Raises what the backend could not do, if anything."""
        error = CError(offset=NO_OFFSET)
        code = self._take_error(byref(error))
        if code:
            raise_error(code, error)

    @staticmethod
    def _call(function: Callable[..., int], *arguments: Any) -> None:
        error = CError(offset=NO_OFFSET)
        code = function(*arguments, byref(error))
        if code < 0:
            raise_error(code, error)


_backend: Optional[_Backend] = None
_originals: Dict[str, Any] = {}  # functions of llama_cpp.llama_cpp that are wrapped at the moment


def _has_model(llama_cpp: Any) -> bool:
    kind = llama_cpp._internals.LlamaModel
    return any(type(thing) is kind and thing.model is not None for thing in gc.get_objects())


def _on_device(original: Callable[..., Any], backend: _Backend, llama: Any) -> Callable[..., Any]:
    @functools.wraps(original)
    def load(path: bytes, params: Any, *rest: Any) -> Any:
        changed = type(params).from_buffer_copy(params)
        if not params.vocab_only:
            changed.devices = ctypes.addressof(backend.devices)
            changed.n_gpu_layers = _ALL_LAYERS
            changed.load_mode = llama.LLAMA_LOAD_MODE_MMAP
            changed.use_extra_bufts = False
        return original(path, changed, *rest)

    return load


def _explained(original: Callable[..., int], backend: _Backend) -> Callable[..., int]:
    @functools.wraps(original)
    def compute(*arguments: Any) -> int:
        code = original(*arguments)
        if code < 0:
            backend.raise_last_error()
        return code

    return compute


def enable(memory: Memory = "auto", *, io: Optional[str] = None, policy: Optional[str] = None, lookahead: bool = True,
           counts: bool = True, trace: Any = None) -> None:
    """Makes every model that llama-cpp-python loads from now on stream within a budget.  May be called again, to change it.

    Args:
        memory: budget of this whole process: bytes, or ``"4G"``, ``"3500M"``, ``"60%"``, ``"auto"``.
        io: ``"auto"``, ``"uring"``, ``"threads"`` or ``"mmap"``.
        policy: which expert gives way: ``"auto"``, ``"lfu"``, ``"lru"``...
        lookahead: read what the next layer will probably want.
        counts: begin with the counts of earlier runs of the model, and keep this one's.
        trace: path that gets the routing trace.

    Raises:
        EngineError: llama-cpp-python cannot be imported, has another version of ggml than weir was built for, or has a model loaded
            already; or this package was built without an engine.
        InvalidArgumentError: ``memory`` is no size.

    When tokens are computed, ``BudgetError`` says that the budget cannot hold the model, and the least that can.  Text is what the same
    call gives without weir, bit for bit where that does not repack weights.
    """
    global _backend
    llama_cpp = _import_llama_cpp()
    if not _originals and _has_model(llama_cpp):
        raise EngineError("a model is already loaded, and is not within any budget: close it, then enable weir, then load it")
    if _backend is None:
        _backend = _Backend(llama_cpp)
    words = [None if word is None else word.encode() for word in (memory_text(memory), io, policy)]
    _backend.configure(_Options(*words, None if trace is None else path_bytes(trace), not lookahead, not counts))
    if _originals:
        return
    llama = llama_cpp.llama_cpp
    _originals.update({name: getattr(llama, name) for name in ("llama_model_load_from_file", "llama_decode", "llama_encode")})
    llama.llama_model_load_from_file = _on_device(llama.llama_model_load_from_file, _backend, llama)
    llama.llama_decode = _explained(llama.llama_decode, _backend)
    llama.llama_encode = _explained(llama.llama_encode, _backend)


def disable() -> None:
    """Models that are loaded from now on are llama.cpp's own again; those that stream go on streaming."""
    llama = sys.modules.get("llama_cpp.llama_cpp")
    while _originals:
        name, function = _originals.popitem()
        setattr(llama, name, function)


def report() -> Dict[str, Any]:
    """What the model loaded last has cost so far: the fields of ``weir run --json``, ``None`` for what only the program knows.

    Raises:
        NotFoundError: no model is loaded on weir's device.
        InvalidArgumentError: weir is not enabled.
    """
    if _backend is None:
        raise InvalidArgumentError("weir.llama is not enabled: call weir.llama.enable first")
    with tempfile.TemporaryDirectory(prefix="weir-") as folder:
        path = os.path.join(folder, "report.json")
        _backend.write_report(path)
        with open(path, encoding="utf-8") as file:
            found: Dict[str, Any] = json.load(file)
    return found


__all__ = ["disable", "enable", "report"]
