"""Who holds which session, and who is alive; a beat says so of this owner."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from heaveto.clock import Clock
from heaveto.errors import LeaseHeldError
from heaveto.events.records import SessionKey
from heaveto.stores.base import Lease
from heaveto.stores.sqlite import liveness, sql
from heaveto.stores.sqlite.news import News
from heaveto.stores.sqlite.rows import Rows
from heaveto.stores.sqlite.shared import SharedStates


class Leases:
    """What claims, releases and beats do inside a transaction; part of the ledger.

    Attributes:
        held: sessions whose lease this owner holds, with their tokens.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path,
        owner: str,
        *,
        ttl_seconds: float,
        clock: Clock,
        rows: Rows,
        shared: SharedStates,
        news: News,
    ) -> None:
        self._execute, self._path, self._owner = connection.execute, path, owner
        self._ttl, self._clock = ttl_seconds, clock
        self._rows, self._shared, self._news = rows, shared, news
        self._file = liveness.OwnerFile(path, owner)
        self._buried: set[str] = set()  # dead owners whose files go once others can see that their beats are gone
        self._last_beat = -math.inf
        self.held: dict[SessionKey, int] = {}

    def claim(self, key: SessionKey) -> Lease:
        """Take the lease if nobody alive holds it."""
        row = self._rows.get(key)
        if row.owner is not None and self.is_alive(row.owner):
            raise LeaseHeldError(key, owner=row.owner, since=row.since or 0.0)
        shared = self._shared.get(key.app, key.user)
        self.show_life()
        row.token += 1
        row.owner, row.since = self._owner, self._clock.time()
        self._rows.leased.add(row)
        self.held[key] = row.token
        return Lease(key, self._owner, row.token, row.last_seq, shared)

    def release(self, lease: Lease, settled: Sequence[str]) -> None:
        """Give the lease back, and forget settled runs; ignore a stale lease."""
        if self.held.get(lease.key) == lease.token:
            del self.held[lease.key]
        row = self._rows.find(lease.key)
        if row is None or row.token != lease.token or row.owner != lease.owner:
            return
        for run_id in settled:
            self._execute(sql.SETTLE_RUN, (row.id, run_id))
        row.owner, row.since = None, None
        self._rows.leased.add(row)
        self._news.changed[lease.key] = row.last_seq

    def release_all(self) -> None:
        """Give all leases of this owner back, and its sign of life."""
        if not self.held and self._last_beat == -math.inf:
            return
        for key, token in list(self.held.items()):
            self.release(Lease(key, self._owner, token, 0), ())
        self._execute(sql.DELETE_OWNER, (self._owner,))

    # --- signs of life

    def show_life(self) -> None:
        """Show a sign of life if one is due."""
        if self._clock.monotonic() - self._last_beat >= self._ttl / 3:
            self._file.acquire()
            self.beat()

    def beat(self) -> None:
        """Show a sign of life."""
        now = self._clock.monotonic()
        self._execute(sql.UPSERT_OWNER, (self._owner, now, self._ttl))
        self._last_beat = now

    @property
    def next_beat(self) -> float:
        """Seconds until it must be looked whether a sign of life is due."""
        if not self.held:
            return self._ttl / 3
        return max(0.0, self._last_beat + self._ttl / 3 - self._clock.monotonic())

    def is_alive(self, owner: str) -> bool:
        """Whether the owner is alive; this one is, as long as it can ask. The traces of a dead one are removed."""
        if owner == self._owner or self.looks_alive(owner):
            return True
        if liveness.probe(self._path, owner) == "free":
            self._execute(sql.DELETE_OWNER, (owner,))
            self._buried.add(owner)
        return False

    def looks_alive(self, owner: str) -> bool:
        """Whether another owner is alive; changes nothing."""
        file = liveness.probe(self._path, owner)  # first: a file that is gone means that the beat is gone too
        beat: tuple[float, float] | None = self._execute(sql.SELECT_OWNER, (owner,)).fetchone()
        return liveness.is_alive(beat, self._clock.monotonic(), file)

    def is_running(self, owner: str) -> bool:
        """Whether the owner's process is there, be it frozen."""
        return liveness.probe(self._path, owner) == "locked" or self.looks_alive(owner)

    # --- behind a transaction

    def committed(self) -> None:
        """Others can see now that the beats of the dead are gone: their files may go, too."""
        while self._buried:
            liveness.remove(self._path, self._buried.pop())

    def rolled_back(self) -> None:
        """Nothing of it happened, and the last sign of life may not have been one."""
        self._buried.clear()
        self._last_beat = -math.inf

    def close(self) -> None:
        """Remove this owner's file."""
        self._file.close()
