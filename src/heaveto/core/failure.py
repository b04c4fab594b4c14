"""What is recorded of an error that foreign code raised: text that every log can hold."""

from __future__ import annotations

from heaveto.errors import HeavetoError
from heaveto.events.records import ErrorInfo


def message_of(error: BaseException) -> str:
    """Return an error's message as valid Unicode. Never raises, whatever the error's own code does."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an edge: foreign code
        return "its message cannot be told"
    return text.encode("utf-8", "replace").decode()


def info_of(error: BaseException) -> ErrorInfo:
    """Return what a run's ending says of the error that it failed with."""
    retryable = error.retryable if isinstance(error, HeavetoError) else False
    return ErrorInfo(type(error).__name__, message_of(error), retryable)
