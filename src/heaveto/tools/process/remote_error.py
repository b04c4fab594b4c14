"""Errors that a function raised in a worker process."""

from __future__ import annotations

import pickle
import traceback
from typing import Any

from heaveto.errors import RemoteError


def described(error: BaseException) -> tuple[Any, ...]:
    """Return an error as what can be sent: its type's name, its message, its traceback, and itself if that can be."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - an edge: foreign code
        message = "its message cannot be told"
    told = "".join(traceback.format_exception(error))
    return type(error).__name__, message, told, _pickled(error)


def restored(name: str, message: str, told: str, pickled: bytes | None) -> BaseException:
    """Return the error that was described, or one that looks like it, with the worker's traceback in its notes."""
    error = _unpickled(pickled)
    if error is None:
        error = type(name, (RemoteError,), {})(message)
    error.add_note(f"In the worker process:\n{told.rstrip()}")
    return error


def _pickled(error: BaseException) -> bytes | None:
    """Return the error pickled, if it comes out of that as it went in. Signals travel by name only."""
    if not isinstance(error, Exception):
        return None
    try:
        data = pickle.dumps(error)
        again = pickle.loads(data)
        return data if type(again) is type(error) and str(again) == str(error) else None
    except Exception:  # noqa: BLE001 - an edge: foreign code
        return None


def _unpickled(data: bytes | None) -> Exception | None:
    if data is None:
        return None
    try:
        error = pickle.loads(data)
    except Exception:  # noqa: BLE001 - its class is not known here
        return None
    return error if isinstance(error, Exception) else None
