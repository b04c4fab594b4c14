"""What stores in memory keep, and what several of them share."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from heaveto.errors import SessionErasedError, UnknownSessionError
from heaveto.events import codec
from heaveto.events.contents import Blob, Json
from heaveto.events.records import SessionKey
from heaveto.stores.base import OF_USER, SessionInfo, Tombstone


class Session:
    """One session's content."""

    def __init__(self, created: float) -> None:
        self.created = self.updated = created
        self.bodies: list[bytes] = []
        self.seq_of: dict[str, int] = {}
        self.guards: dict[str, str] = {}
        self.runs: dict[str, RunEntry] = {}
        self.drafts: dict[str, tuple[str, bytes]] = {}
        self.blobs: Blobs = {}
        self.token = 0
        self.owner: str | None = None
        self.since = 0.0

    @property
    def last_seq(self) -> int:
        return len(self.bodies)

    @property
    def open_run(self) -> str | None:
        return next((run_id for run_id, run in self.runs.items() if not run.ended), None)

    def info(self, key: SessionKey) -> SessionInfo:
        return SessionInfo(key, self.created, self.updated, self.last_seq, self.open_run)


class RunEntry:
    """A run in the index. `order` numbers the runs, over all sessions, by when they were opened."""

    def __init__(self, order: int) -> None:
        self.order, self.ended, self.settled = order, False, False


class Version(NamedTuple):
    """A version of a blob, with the id of the save that made it."""

    id: str | None
    blob: Blob


Blobs: TypeAlias = dict[str, list[Version]]


class MemoryData:
    """What several `MemoryStore` instances share, as several processes share a database file."""

    def __init__(self) -> None:
        self.sessions: dict[SessionKey, Session] = {}
        self.tombstones: dict[SessionKey, Tombstone] = {}
        self.run_sessions: dict[str, SessionKey] = {}
        self.alive: set[str] = set()
        self.instances: list[Callable[[SessionKey], None]] = []
        self.numbers = itertools.count(1)
        self._shared: dict[tuple[str, str], dict[str, bytes]] = {}
        self._user_blobs: dict[tuple[str, str], Blobs] = {}
        self._newest = 0.0

    def session(self, key: SessionKey) -> Session:
        """Return the session or raise why there is none."""
        session = self.sessions.get(key)
        if session is None:
            raise SessionErasedError(key) if key in self.tombstones else UnknownSessionError(key)
        return session

    def selected(self, key: SessionKey | None) -> Iterator[tuple[SessionKey, Session]]:
        """Return one session, if it is there, or all."""
        for candidate, session in self.sessions.items():
            if key is None or candidate == key:
                yield candidate, session

    def erase(self, key: SessionKey, stone: Tombstone) -> None:
        """Leave nothing of a session but its tombstone."""
        self.tombstones[key] = stone
        for run_id in self.sessions.pop(key).runs:
            if self.run_sessions.get(run_id) == key:
                del self.run_sessions[run_id]

    def tick(self, now: float) -> float:
        """Return the time, but later than every time before, so that a listing can be continued at any row."""
        self._newest = max(now, math.nextafter(self._newest, math.inf))
        return self._newest

    def announce(self, key: SessionKey) -> None:
        """Tell all instances that a session has changed."""
        for instance in self.instances:
            instance(key)

    # --- shared state

    def share(self, key: SessionKey, values: Mapping[str, bytes | None]) -> None:
        """Store new values, encoded, by prefixed key; None deletes."""
        for name, value in values.items():
            # An app's state is kept under its first part; a user's under both, so that no user name can reach it.
            scope = (key.app, "app:") if name.startswith("app:") else (key.app, "user:" + key.user)
            state = self._shared.setdefault(scope, {})
            if value is None:
                state.pop(name, None)
            else:
                state[name] = value

    def shared_state(self, app: str, user: str) -> dict[str, Json]:
        """Return the current ``app:`` and ``user:`` state."""
        rows = {**self._shared.get((app, "app:"), {}), **self._shared.get((app, "user:" + user), {})}
        return {name: codec.decode_value(body) for name, body in rows.items()}

    # --- blobs

    def blobs(self, key: SessionKey, name: str) -> Blobs:
        """Return the blobs among which this name would be; an empty table if the session does not exist."""
        if name.startswith(OF_USER):
            return self._user_blobs.setdefault((key.app, key.user), {})
        session = self.sessions.get(key)
        return session.blobs if session else {}
