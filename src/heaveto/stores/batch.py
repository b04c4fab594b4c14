"""What an append does besides storing its records: decided here, purely, for every store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from heaveto.events import codec
from heaveto.events.contents import Json
from heaveto.events.records import Message, Queued, Record, RunEnded, RunStarted, StateChanged


class Batch:
    """Records made ready to be stored, and the few facts in them that a store acts on.

    Attributes:
        size: bytes of all of them.
        rows: (record id, encoded record) in order; the seq is not part of the encoding.
        opened: ids of runs that were queued or started.
        ended: ids of runs that ended; their drafts are dropped.
        said: ids of messages; the drafts with the same ids are dropped.
        shared: new values of shared state, encoded, by prefixed key; None deletes.
    """

    __slots__ = ("ended", "opened", "rows", "said", "shared", "size")

    def __init__(self, rows: list[tuple[str, bytes]]) -> None:
        self.rows = rows
        self.size = sum([len(body) for _, body in rows])
        self.opened: list[str] = []
        self.ended: list[str] = []
        self.said: list[str] = []
        self.shared: dict[str, bytes | None] = {}


def prepare(records: Sequence[Record]) -> Batch:
    """Encode records and find what the store must act on.

    Raises:
        NotSerializableError: a record holds a value that cannot be stored.
    """
    encode = codec.encode
    batch = Batch([(record.id, encode(_without_seq(record))) for record in records])
    for record in records:
        if isinstance(record, Message):
            batch.said.append(record.id)
        elif isinstance(record, RunStarted | Queued):
            batch.opened.append(record.run_id)
        elif isinstance(record, RunEnded):
            batch.ended.append(record.run_id)
        elif isinstance(record, StateChanged):
            batch.shared.update(shared_part(record.delta))
    return batch


def _without_seq(record: Record) -> Record:
    return msgspec.structs.replace(record, seq=0) if record.seq else record


def shared_part(delta: Mapping[str, Json]) -> dict[str, bytes | None]:
    """Return the keys of a delta that go to the shared states, with encoded values; None stays None and deletes."""
    return {
        key: None if value is None else codec.encode_value(value, f"delta[{key!r}]")
        for key, value in delta.items()
        if key.startswith(("app:", "user:"))
    }
