"""The C library's store: chunks of files in slots of memory, read when they are acquired (include/weir/store.h)."""
from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_bool, c_char_p, c_int, c_uint32, c_uint64, c_void_p
from typing import Any, Dict, List, Optional, Sequence, Tuple

from .._errors import InvalidArgumentError
from .._lib import CError, NO_OFFSET, call, declare, lib, open_handle, raise_error

BUSY, INVALID = -7, InvalidArgumentError.code  # WEIR_EBUSY, WEIR_EINVAL
POLICIES = ("auto", "odds", "lfu", "lru", "lfru", "lfu-global", "lru-global")
IO_METHODS = ("auto", "uring", "threads", "mmap")


class CChunk(ctypes.Structure):
    """``weir_chunk``."""

    _fields_ = [("file", c_uint32), ("group", c_uint32), ("offset", c_uint64), ("bytes", c_uint64)]


class COptions(ctypes.Structure):
    """``weir_store_options``."""

    _fields_ = [("paths", POINTER(c_char_p)), ("paths_count", c_uint32), ("chunks", POINTER(CChunk)), ("chunks_count", c_uint32),
                ("budget_bytes", c_uint64), ("leases_max", c_uint32), ("policy", c_char_p), ("io_method", c_char_p),
                ("io_fault", c_char_p), ("queue_depth", c_uint32), ("piece_bytes", c_uint32), ("slots_least", c_uint32),
                ("data_alignment", c_uint32), ("page_cache", c_bool), ("in_flight_bytes", c_uint64)]


class CCountedWeight(ctypes.Structure):
    """``weir_counted_weight``."""

    _fields_ = [("name", c_char_p), ("bytes", c_uint64), ("experts", c_uint32), ("chunks", POINTER(c_uint32))]


class CStats(ctypes.Structure):
    """``weir_store_stats``."""

    _fields_ = [(name, c_uint64) for name in ("demanded", "hits", "joined", "misses", "prefetched", "prefetch_used", "evictions",
                                              "bytes_read", "stall_ns")]
    _fields_ += [(name, c_uint32) for name in ("slots_count", "slots_free", "slots_loading", "slots_ready", "slots_pinned")]
    _fields_ += [("slab_bytes", c_uint64), ("slots_failed", c_uint32), ("page_cache_bytes", c_uint64)]


_error = POINTER(CError)
_leases = POINTER(c_void_p)
declare("weir_store_open", c_int, POINTER(COptions), POINTER(c_void_p), _error)
declare("weir_store_close", None, c_void_p)
declare("weir_store_sizes", c_int, POINTER(COptions), c_uint32, POINTER(c_uint64), POINTER(c_uint64))
declare("weir_store_acquire", c_int, c_void_p, POINTER(c_uint32), c_uint32, _leases, _error)
declare("weir_store_prefetch", c_int, c_void_p, POINTER(c_uint32), c_uint32)
declare("weir_store_expect", c_int, c_void_p, POINTER(c_uint32), c_uint32)
declare("weir_store_wait_all", c_int, c_void_p, _leases, c_uint32, _leases, _error)
declare("weir_store_release_all", None, c_void_p, _leases, c_uint32)
declare("weir_store_wait_read", c_int, c_void_p)
declare("weir_store_tick", None, c_void_p)
declare("weir_store_load_counts", c_uint64, c_void_p, c_char_p, POINTER(CCountedWeight), c_uint32)
declare("weir_store_save_counts", None, c_void_p, c_char_p, POINTER(CCountedWeight), c_uint32)
declare("weir_store_get_stats", None, c_void_p, POINTER(CStats))
declare("weir_store_reset_stats", None, c_void_p)
declare("weir_store_policy", c_char_p, c_void_p)
declare("weir_store_io_method", c_char_p, c_void_p)


class Chunks:
    """What a store can hold: the list of chunks, and how the store is to be opened over them.

    Args:
        paths: of the files.
        chunks: ``(file, group, offset, bytes)`` each; ids are positions in this list.
        slots_least: of each size.
        leases_max: chunks held at one time.
    """

    def __init__(self, paths: Sequence[str], chunks: Sequence[Sequence[int]], slots_least: int, *, leases_max: int = 4096,
                 policy: Optional[str] = None, io: Optional[str] = None, fault: Optional[str] = None) -> None:
        self._paths = (c_char_p * len(paths))(*(path.encode(errors="surrogateescape") for path in paths))
        self._chunks = (CChunk * len(chunks))(*(CChunk(*chunk) for chunk in chunks))
        self.count = len(chunks)
        self.slots_least = slots_least
        self.options = COptions(
            paths=self._paths, paths_count=len(paths), chunks=self._chunks, chunks_count=len(chunks), leases_max=leases_max,
            policy=(policy or "auto").encode(), io_method=(io or "auto").encode(), io_fault=fault.encode() if fault else None,
            slots_least=slots_least, data_alignment=8, page_cache=io in (None, "auto"))

    def sizes(self) -> Sequence[int]:
        """Budgets of a store over them, bytes: the least, and one that holds everything."""
        least, everything = c_uint64(), c_uint64()
        code = lib.weir_store_sizes(byref(self.options), self.slots_least, byref(least), byref(everything))
        if code < 0:
            if code == INVALID:  # the only things in it that come from outside
                raise InvalidArgumentError(f"there is no policy {self.options.policy.decode()!r} or no I/O method "
                                           f"{self.options.io_method.decode()!r}: policies are {', '.join(POLICIES)}, "
                                           f"methods {', '.join(IO_METHODS)}")
            raise_error(code)
        return least.value, everything.value


class Counted:
    """The expert weights of a model, by which counts of its runs are kept.

    Args:
        model: the file that the first of them lies in.
        weights: ``(name, bytes, chunk of each expert)``.
    """

    def __init__(self, model: str, weights: Sequence[Tuple[str, int, Sequence[int]]]) -> None:
        self._model = model.encode(errors="surrogateescape")
        self._chunks = [(c_uint32 * len(chunks))(*chunks) for _, _, chunks in weights]  # alive while the list below is
        self._list = (CCountedWeight * len(weights))(*(
            CCountedWeight(name.encode(errors="surrogateescape"), nbytes, len(chunks), chunks)
            for (name, nbytes, _), chunks in zip(weights, self._chunks)))

    @property
    def arguments(self) -> Tuple[Any, ...]:
        """For the library's functions."""
        return self._model, self._list, len(self._list)


class Leases:
    """Chunks held in their slots, from :meth:`Store.acquire` to :meth:`Store.release`."""

    __slots__ = ("array", "count")

    def __init__(self, array: Any, count: int) -> None:
        self.array = array
        self.count = count


class Store:
    """An open store.  Methods may be called from any thread.  Every ``Leases`` is released before :meth:`close`."""

    def __init__(self, chunks: Chunks, budget_bytes: int) -> None:
        chunks.options.budget_bytes = budget_bytes
        self._handle: Optional[int] = open_handle("weir_store_open", byref(chunks.options))
        self.policy: str = lib.weir_store_policy(self._handle).decode()
        self.io_method: str = lib.weir_store_io_method(self._handle).decode()

    def acquire(self, ids: Sequence[int]) -> Leases:
        """Holds the first of these chunks, as many as there are slots for now, and starts the reads of those that are not there."""
        count = len(ids)
        array = (c_void_p * count)()
        return Leases(array, call("weir_store_acquire", self._handle, (c_uint32 * count)(*ids), count, array))

    def shorten(self, leases: Leases, count: int) -> None:
        """Releases all but the first ``count``."""
        if count < leases.count:
            rest = (c_void_p * (leases.count - count)).from_buffer(leases.array, count * ctypes.sizeof(c_void_p))
            lib.weir_store_release_all(self._handle, rest, leases.count - count)
            leases.count = count

    def wait(self, leases: Leases) -> List[int]:
        """Addresses of the chunks' first bytes, once all of them are there; valid until the leases are released.

        Raises:
            InputOutputError: a read failed; the leases are still to be released.
            ChangedError: a file is not what it was.
        """
        data = (c_void_p * leases.count)()
        error = CError(offset=NO_OFFSET)
        code = lib.weir_store_wait_all(self._handle, leases.array, leases.count, data, byref(error))
        if code < 0:
            raise_error(code, error)
        return list(data)

    def release(self, leases: Leases) -> None:
        """Gives leases back."""
        lib.weir_store_release_all(self._handle, leases.array, leases.count)
        leases.count = 0

    def wait_read(self) -> bool:
        """Waits until some read ends; False when none is under way."""
        return lib.weir_store_wait_read(self._handle) != BUSY

    def prefetch(self, ids: Sequence[int], *, surely: bool = False) -> None:
        """Starts reads of chunks that will probably be wanted; ``surely`` takes slots of others for them."""
        function = lib.weir_store_expect if surely else lib.weir_store_prefetch
        function(self._handle, (c_uint32 * len(ids))(*ids), len(ids))

    def tick(self) -> None:
        """A token has ended."""
        lib.weir_store_tick(self._handle)

    def stats(self) -> Dict[str, int]:
        """Counters since the store was opened, or since :meth:`reset_stats`."""
        found = CStats()
        lib.weir_store_get_stats(self._handle, byref(found))
        return {name: getattr(found, name) for name, _ in CStats._fields_}

    def reset_stats(self) -> None:
        """Sets the counters to 0."""
        lib.weir_store_reset_stats(self._handle)

    def load_counts(self, counted: Counted) -> int:
        """Takes over what earlier runs have counted, before the first demand; returns the sum, 0 when there is nothing."""
        return int(lib.weir_store_load_counts(self._handle, *counted.arguments))

    def save_counts(self, counted: Counted) -> None:
        """Keeps what was counted for the next run; what cannot be written is lost."""
        lib.weir_store_save_counts(self._handle, *counted.arguments)

    def close(self) -> None:
        """Frees the slots; the store is not used any more."""
        handle, self._handle = self._handle, None
        if handle:
            lib.weir_store_close(handle)


# For arrays over slots: the store owns the memory, and outlives them.
RELEASE_NOTHING = ctypes.cast(lib.weir_mapping_close, c_void_p).value

__all__ = ["Chunks", "Counted", "Leases", "RELEASE_NOTHING", "Store"]
