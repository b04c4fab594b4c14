"""What the suite writes."""

from __future__ import annotations

from typing import Any

from heaveto.events.contents import Content, Text
from heaveto.events.records import Draft, Message, Queued, Record, RunEnded, RunStarted, SessionKey, StateChanged
from heaveto.ids import SystemIds

IDS = SystemIds()
KEY = SessionKey("app", "ann", "s1")
OTHER = SessionKey("app", "ann", "s2")
BIG = bytes(range(256)) * 4096
"""Content of 1 MB, which no store writes in one piece."""


def message(text: str = "hello", *, run_id: str = "run", id: str | None = None) -> Message:
    """Return a model's message."""
    return Message(id=id or IDS.record_id(), time=1.0, run_id=run_id, author="root", parts=(Text(text=text),))


def started(run_id: str) -> RunStarted:
    """Return the start of a run."""
    return RunStarted(id=IDS.record_id(), time=1.0, run_id=run_id, input=Content.of("hi"))


def queued(run_id: str) -> Queued:
    """Return a queued run."""
    return Queued(id=IDS.record_id(), time=1.0, run_id=run_id, input=Content.of("hi"))


def ended(run_id: str) -> RunEnded:
    """Return the end of a run."""
    return RunEnded(id=IDS.record_id(), time=1.0, run_id=run_id, outcome="completed")


def changed(**delta: Any) -> StateChanged:
    """Return a state change; ``app__x`` stands for ``app:x``."""
    return StateChanged(id=IDS.record_id(), time=1.0, delta={k.replace("__", ":"): v for k, v in delta.items()})


def draft(message_id: str, text: str = "so far", *, run_id: str = "run") -> Draft:
    """Return a draft of a message."""
    return Draft(message_id=message_id, run_id=run_id, author="root", parts=(Text(text=text),))


def ids_of(records: list[Record]) -> list[str]:
    """Return the records' ids."""
    return [record.id for record in records]
