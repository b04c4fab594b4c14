"""The store's interface: an append-only log per session, a lease per session, and little else.

All decisions of this interface that matter (fence, condition, unique key) are taken by the store atomically with the
write. A store keeps records as opaque encoded values except for the few facts it must act on: `RunStarted`, `Queued`
and `RunEnded` open and close a run in its index of unfinished runs, and `StateChanged` updates the shared states.
`heaveto.testing.store_contract` is the suite that every implementation passes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from heaveto.events.contents import ArtifactInfo, Blob, Json
from heaveto.events.records import Draft, Record, SessionKey

OF_USER = "user:"
"""Blobs whose names begin so belong to the user of the app, over all sessions; the others to one session."""


class Lease(msgspec.Struct, frozen=True):
    """The right to append held records to one session. `token` grows with each claim (the fence)."""

    key: SessionKey
    owner: str
    token: int
    last_seq: int
    shared: dict[str, Json] = {}
    """The current ``app:`` and ``user:`` state at the time of the claim, keys with their prefixes."""


class Holder(msgspec.Struct, frozen=True):
    """Who holds a session: `owner` names a store client (host, process), `since` is epoch seconds."""

    owner: str
    since: float
    alive: bool


class Guard(msgspec.Struct, frozen=True):
    """A unique key within a session, with the value that a later taker is shown."""

    name: str
    value: str


class SessionInfo(msgspec.Struct, frozen=True):
    """A row of a session listing. Times are epoch seconds. `open_run` is a run that has not ended, if there is one."""

    key: SessionKey
    created: float
    updated: float
    last_seq: int
    open_run: str | None = None


class Unfinished(msgspec.Struct, frozen=True):
    """A run with business left: queued, started and not ended, or ended and its end hook not confirmed."""

    key: SessionKey
    run_id: str
    ended: bool


class Tombstone(msgspec.Struct, frozen=True):
    """What is left of an erased session: that it was, how much it held, who erased it, when and why."""

    key: SessionKey
    created: float
    erased: float
    records: int
    by: str
    reason: str


class Store(Protocol):
    """Durable logs of sessions. Every method may be cancelled: its effect has then either happened whole or not at all.

    A store instance is one *owner*: its leases live as long as it shows signs of life, and end with `aclose`.
    """

    @property
    def owner(self) -> str:
        """The name under which this instance holds leases, unique per instance."""
        ...

    async def create_session(self, key: SessionKey, state: Mapping[str, Json] | None = None) -> SessionInfo:
        """Create a session with an initial state (stored as its first record, a `StateChanged`).

        Raises:
            SessionExistsError: there is one already.
            SessionErasedError: there was one.
        """
        ...

    async def get_session(self, key: SessionKey) -> SessionInfo | None:
        """Return the session's row, or None."""
        ...

    async def list_sessions(
        self, app: str | None = None, user: str | None = None, *, limit: int = 100, before: float | None = None
    ) -> list[SessionInfo]:
        """Return sessions, the most recently updated first; `before` continues a listing (an `updated` time)."""
        ...

    async def erase_session(self, key: SessionKey, *, by: str, reason: str = "") -> Tombstone:
        """Delete all content of a session and leave a tombstone. Idempotent. The holder's next append is refused.

        Blobs of the session are content; those of its user stay.

        Raises:
            UnknownSessionError: there is and was no such session.
        """
        ...

    async def tombstone(self, key: SessionKey) -> Tombstone | None:
        """Return the tombstone of an erased session."""
        ...

    async def read(self, key: SessionKey, *, after: int = 0, limit: int | None = None) -> list[Record]:
        """Return the records with a seq greater than `after`, in order, without gaps.

        Raises:
            UnknownSessionError, SessionErasedError
        """
        ...

    async def append(
        self,
        key: SessionKey,
        records: Sequence[Record],
        *,
        token: int | None,
        expect: int | None = None,
        guard: Guard | None = None,
    ) -> int:
        """Append records atomically, with consecutive seqs; return the seq of the last one.

        All or none are stored. On return they survive a crash of this process and of the machine. Repeating an append
        with the same record ids is a no-op that returns the same seq, whatever token and condition it carries.

        Args:
            token: the lease's fencing token; None for a side append, which needs no lease.
            expect: append only if the session's last seq is still this.
            guard: append only if this unique key is not taken, and take it.

        Raises:
            StaleLeaseError: `token` is not the session's current one.
            LogMovedError: `expect` is not the last seq.
            GuardTakenError: the key was taken by records with other ids.
            RunIdTakenError: the records open a run whose id is that of a run in another session.
            StoreFullError, UnknownSessionError, SessionErasedError
        """
        ...

    async def claim(self, key: SessionKey) -> Lease:
        """Take the session's lease if nobody alive holds it (this instance included). The token grows.

        Raises:
            LeaseHeldError: someone alive holds it.
            UnknownSessionError, SessionErasedError
        """
        ...

    async def release(self, lease: Lease, *, settled: Sequence[str] = ()) -> None:
        """Give the lease back and forget `settled` runs (ended, end hook done). A stale lease is ignored."""
        ...

    async def holder(self, key: SessionKey) -> Holder | None:
        """Return who holds the session, alive or not, or None if nobody does."""
        ...

    async def unfinished(self, key: SessionKey | None = None) -> list[Unfinished]:
        """Return runs with business left, the oldest first, of one session or of all."""
        ...

    async def find_run(self, run_id: str) -> SessionKey | None:
        """Return the session of a run that was queued or started, whether it has ended or not."""
        ...

    async def find_guard(self, key: SessionKey, name: str) -> str | None:
        """Return the value of a taken unique key."""
        ...

    async def shared_state(self, app: str, user: str) -> dict[str, Json]:
        """Return the current ``app:`` and ``user:`` state, keys with their prefixes."""
        ...

    async def save_drafts(self, key: SessionKey, drafts: Sequence[Draft]) -> None:
        """Save drafts by message id, over earlier ones. Survives kill -9; need not survive power loss."""
        ...

    async def drafts(self, key: SessionKey, run_id: str) -> list[Draft]:
        """Return the saved drafts of a run. They are dropped when its `RunEnded` is appended, or their `Message`."""
        ...

    async def save_blob(
        self, key: SessionKey, name: str, content: bytes, *, mime_type: str, id: str | None = None
    ) -> int:
        """Store content under a name and return its version: 0, or one more than the newest.

        Durable on return; no reader ever sees a part of it. A name that begins with `OF_USER` belongs to the user and
        needs no session. The first save of an `id` under a name counts: another one stores nothing and returns the
        same version, whatever it brings.

        Raises:
            StoreFullError, UnknownSessionError, SessionErasedError
        """
        ...

    async def load_blob(self, key: SessionKey, name: str, version: int | None = None) -> Blob | None:
        """Return a version of a blob, the newest if none is named, or None if there is no such blob."""
        ...

    async def list_blobs(self, key: SessionKey) -> list[ArtifactInfo]:
        """Return the newest version of each blob of the session and of its user, by name."""
        ...

    async def blob_versions(self, key: SessionKey, name: str) -> list[int]:
        """Return the versions of a blob that there are, ascending; empty if there is no such blob."""
        ...

    async def delete_blob(self, key: SessionKey, name: str) -> None:
        """Delete all versions of a blob, if there are any. The next one saved under its name is version 0."""
        ...

    async def is_alive(self, owner: str) -> bool:
        """Whether the instance of this name still shows signs of life: neither closed nor gone with its process.

        An instance shows them from its first claim at the latest, with or without a lease, and this one until it is
        closed. One that is frozen may count as either.
        """
        ...

    def subscribe(self, key: SessionKey, callback: Callable[[int], None]) -> Callable[[], None]:
        """Call back with the last seq after each append to the session and each release of its lease, by anyone.

        Calls come on the event loop, may be merged, and may come although nothing changed; they are never left out.
        Latency: at once for changes made through this instance, else as fast as the medium allows (SQLite 25 ms).
        Returns how to unsubscribe.
        """
        ...

    async def aclose(self) -> None:
        """Finish what was begun, release this instance's leases, close. Idempotent."""
        ...
