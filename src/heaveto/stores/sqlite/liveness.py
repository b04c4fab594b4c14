"""Who counts as alive: a beat in the database, and a locked file that the kernel unlocks when its process dies."""

from __future__ import annotations

import importlib
import importlib.util
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias

# Windows has none: there the beat alone decides.
fcntl: Any = importlib.import_module("fcntl") if importlib.util.find_spec("fcntl") else None

FileState: TypeAlias = Literal["locked", "free", "absent"]


def is_alive(beat: tuple[float, float] | None, now: float, file: FileState) -> bool:
    """Decide whether an owner is alive.

    A free file means that its process is gone: dead at once (F78). Otherwise the last beat decides, so that a stopped
    process loses its leases after its time to live. `beat` is (monotonic time, time to live); a beat in the future
    was written before the machine was restarted.
    """
    if beat is None or file == "free":
        return False
    at, ttl = beat
    return 0 <= now - at < ttl


class OwnerFile:
    """The locked file of one owner, next to the database. The lock lasts as long as the process, or until `close`."""

    def __init__(self, database: Path, owner: str) -> None:
        self._path = _file_of(database, owner)
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Create and lock the file, unless that was done before. Where it cannot be done, the beat alone decides."""
        if fcntl is None or self._descriptor is not None:
            return
        with suppress(OSError):
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            return
        self.close()

    def close(self) -> None:
        """Unlock and remove the file."""
        if self._descriptor is not None:
            with suppress(OSError):
                self._path.unlink()
            os.close(self._descriptor)
            self._descriptor = None


def probe(database: Path, owner: str) -> FileState:
    """Look whether the owner's file is locked."""
    if fcntl is None:
        return "absent"
    try:
        descriptor = os.open(_file_of(database, owner), os.O_RDONLY)
    except OSError:
        return "absent"
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return "locked"
    finally:
        os.close(descriptor)
    return "free"


def remove(database: Path, owner: str) -> None:
    """Remove the file of a dead owner."""
    with suppress(OSError):
        _file_of(database, owner).unlink()


def _file_of(database: Path, owner: str) -> Path:
    return database.with_name(f"{database.name}-owner-{owner.rsplit(':', 1)[-1]}")
