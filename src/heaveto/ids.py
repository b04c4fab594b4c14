"""Identifiers: UUIDv7 for records and runs, nine characters for calls.

Ids are made by the client before the append, so that a repeated append is recognised (F117).
"""

from __future__ import annotations

import os
import threading
import time
from typing import Protocol

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class IdSource(Protocol):
    """Where ids come from. Tests pass a counting source to get the same ids each time."""

    def record_id(self) -> str:
        """Return a new id for a record or a run; later ids sort after earlier ones of this source."""
        ...

    def call_id(self) -> str:
        """Return a new id for a tool call.

        Nine alphanumeric characters: the one shape that every provider accepts.
        """
        ...


_POOL_BYTES = 4096


class _Randomness:
    """The operating system's random bytes, fetched in larger pieces; a forked child starts with a piece of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool, self._position = b"", 0
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._pool, self._position = b"", 0

    def number(self, size: int) -> int:
        """Return a random number of `size` bytes."""
        with self._lock:
            if self._position + size > len(self._pool):
                self._pool, self._position = os.urandom(_POOL_BYTES), 0
            start = self._position
            self._position += size
            return int.from_bytes(self._pool[start : self._position], "big")


_randomness = _Randomness()


class SystemIds:
    """Ids from the operating system's randomness; safe over threads and forks.

    Record ids are UUIDv7 (RFC 9562): 48 bits of milliseconds, a 12-bit counter within the millisecond, random bits.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last_tick = 0

    def record_id(self) -> str:
        with self._lock:
            tick = max((time.time_ns() // 1_000_000) << 12, self._last_tick + 1)
            self._last_tick = tick
        tail = _randomness.number(8) & 0x3FFF_FFFF_FFFF_FFFF | 0x8000_0000_0000_0000
        head = f"{tick >> 12:012x}7{tick & 0xFFF:03x}"
        low = f"{tail:016x}"
        return f"{head[:8]}-{head[8:12]}-{head[12:]}-{low[:4]}-{low[4:]}"

    def call_id(self) -> str:
        number = _randomness.number(7)
        digits: list[str] = []
        for _ in range(9):
            number, digit = divmod(number, 62)
            digits.append(_ALPHABET[digit])
        return "".join(digits)
