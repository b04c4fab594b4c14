"""The one thread that writes: group commit over all sessions, signs of life, and news from other processes."""

from __future__ import annotations

import asyncio
import math
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from heaveto.errors import HeavetoError, StoreError
from heaveto.events.records import SessionKey
from heaveto.stores.sqlite.ledger import Ledger
from heaveto.stores.sqlite.schema import typed_error
from heaveto.stores.sqlite.worker import Operation, Worker, deliver
from heaveto.stores.subscriptions import Subscriptions

POLL_SECONDS = 0.025
ORPHAN_TURNS = 8
"""After so many polls it is looked whether a holder died: nothing in the database changes when that happens."""
T = TypeVar("T")


class Writer(Worker):
    """Performs all operations that wait in one transaction, and resolves them after its commit.

    Args:
        open_ledger: opens the store; called in the thread before the first operation, and again after it failed.
        subscriptions: while there are any, other processes' changes are looked for every 25 ms.
    """

    def __init__(self, path: Path, open_ledger: Callable[[], Ledger], subscriptions: Subscriptions) -> None:
        super().__init__(f"heaveto-writer-{path.name}")
        self._path, self._open_ledger, self._subscriptions = path, open_ledger, subscriptions
        self._ledger: Ledger | None = None
        self._idle_turns = 0
        self._looked_around = 0.0
        self._lock = threading.Lock()  # between the thread and `do_now`
        self.listener: asyncio.AbstractEventLoop | None = None

    @property
    def is_open(self) -> bool:
        """Whether the store was opened."""
        return self._ledger is not None

    # --- performing

    def perform(self, batch: Sequence[Operation]) -> None:
        wanted = [operation for operation in batch if not (operation.is_last or operation.future.cancelled())]
        if not wanted:
            return
        with self._lock:
            try:
                ledger = self._ledger = self._ledger or self._open_ledger()
            except StoreError as error:  # tried again by the next operation
                _fail(wanted, error)
                return
            self._perform(ledger, wanted)

    def _perform(self, ledger: Ledger, wanted: Sequence[Operation]) -> None:
        if not self._transact(ledger, wanted) and len(wanted) > 1:
            for operation in wanted:  # so that the one that cannot be done does not keep the others from it
                operation.error = operation.value = None
                self._transact(ledger, [operation])
        if ledger.wal.owes_truncation:
            self._truncate(ledger, 1.0)

    def _transact(self, ledger: Ledger, operations: Sequence[Operation]) -> bool:
        """Do the operations in one transaction; return whether it was committed, or could not even begin."""
        try:
            ledger.begin(durable=any(operation.durable for operation in operations))
        except sqlite3.Error as error:
            ledger.rollback()
            _fail(operations, typed_error(error, self._path))
            return True
        try:
            for operation in operations:
                _attempt(ledger, operation)
            ledger.commit()
        except Exception as error:  # noqa: BLE001  # an edge: whatever it is, its callers must learn of it
            ledger.rollback()
            _fail(operations, typed_error(error, self._path))
            return False
        return True

    def _truncate(self, ledger: Ledger, wait_seconds: float) -> None:
        with suppress(sqlite3.Error):  # owed on; the erase itself is done
            ledger.wal.truncate(wait_seconds)

    def do_now(self, work: Callable[[Ledger], T]) -> tuple[T] | None:
        """Do a small operation that needs no fsync on the event loop, if nothing else is going on; else return None.

        It takes some 30 µs, which is what handing it to the thread and back would cost the loop, without the 100 µs
        that two thread switches take. It waits for no other process and no disk.
        """
        ledger = self._ledger
        if ledger is None or self.in_flight or not self._lock.acquire(blocking=False):
            return None
        try:
            value = _do_now(ledger, work)
            changed = self._changes(ledger, look=False) if ledger.has_news else {}
        finally:
            self._lock.release()
        if changed and self.listener is not None:
            self._call_back(self.listener, changed)
        return value

    # --- after a batch, and between batches

    def after(self, batch: Sequence[Operation]) -> None:
        """Deliver a batch and the news of it in one step of the event loop, then see to the rest."""
        with self._lock:
            own = self._own_changes(self._ledger) if self._ledger is not None else {}
        deliver(batch, partial(self._settle_and_tell, own))
        with self._lock:
            if self._ledger is not None:
                self._tidy(self._ledger)

    def _tidy(self, ledger: Ledger) -> None:
        if time.monotonic() - self._looked_around >= POLL_SECONDS:
            self._look_around(ledger, look=False)
        with suppress(sqlite3.Error):  # tried again after the next batch
            ledger.wal.checkpoint(is_idle=self.is_idle)

    def _settle_and_tell(self, changed: Mapping[SessionKey, int], batch: Sequence[Operation]) -> None:
        self.settle(batch)
        if self.listener is not None and changed:
            self._call_back(self.listener, changed)

    def idle(self) -> None:
        with self._lock:
            ledger = self._ledger
            if ledger is None:
                return
            if ledger.wal.owes_truncation:
                self._truncate(ledger, 0.0)
            self._look_around(ledger, look=True)
            self._idle_turns += 1
            if self._idle_turns % ORPHAN_TURNS == 0:
                self._tell(self._orphans(ledger))

    def _orphans(self, ledger: Ledger) -> dict[SessionKey, int]:
        with suppress(sqlite3.Error):  # looked at again later
            return ledger.orphans(self._subscriptions.keys())
        return {}

    def _look_around(self, ledger: Ledger, *, look: bool) -> None:
        """See to what is due, and tell what has changed; without `look`, as the last transaction saw it."""
        self._looked_around = time.monotonic()
        if ledger.leases.held and ledger.leases.next_beat <= 0:
            self._beat(ledger)
        self._tell(self._changes(ledger, look=look))

    def _changes(self, ledger: Ledger, *, look: bool) -> dict[SessionKey, int]:
        """Return sessions that changed since the last call, by this process or another, if anyone listens."""
        changed = self._own_changes(ledger)
        watched = self._subscriptions.keys()
        if watched:
            with suppress(sqlite3.Error):  # locked or damaged: callers learn it from their operations; looked at again
                changed = ledger.foreign_changes(watched, look=look) | changed
        return changed

    def _own_changes(self, ledger: Ledger) -> dict[SessionKey, int]:
        """Return the watched sessions that this process changed since the last call."""
        own = ledger.own_changes()
        return {key: own[key] for key in own.keys() & self._subscriptions.keys()} if own else own

    def _tell(self, changed: Mapping[SessionKey, int]) -> None:
        loop = self.listener
        if loop is not None and changed:
            with suppress(RuntimeError):  # closed meanwhile
                loop.call_soon_threadsafe(self._call_back, loop, changed)

    def _call_back(self, loop: asyncio.AbstractEventLoop, changed: Mapping[SessionKey, int]) -> None:
        for callback in self._subscriptions.callbacks(changed):
            loop.call_soon(callback)

    def _beat(self, ledger: Ledger) -> None:
        try:
            ledger.begin(durable=False)
            ledger.leases.beat()
            ledger.commit()
        except sqlite3.Error:  # tried again at the next turn; the lease is only lost if this goes on
            ledger.rollback()

    def patience(self) -> float | None:
        seconds = self._ledger.leases.next_beat if self._ledger else math.inf
        if self._subscriptions:
            seconds = min(seconds, POLL_SECONDS)
        if self._ledger and self._ledger.wal.owes_truncation:
            seconds = min(seconds, 1.0)
        return None if seconds == math.inf else max(seconds, 0.001)

    # --- the end

    def close(self) -> None:
        with self._lock:
            ledger, self._ledger = self._ledger, None
        if ledger is None:
            return
        try:
            ledger.begin(durable=False)
            ledger.leases.release_all()
            ledger.commit()
        except sqlite3.Error:  # the leases end with the file lock below, or after their time to live
            ledger.rollback()
        ledger.close()


def _attempt(ledger: Ledger, operation: Operation) -> None:
    try:
        operation.value = operation.work(ledger)
    except HeavetoError as error:  # found before anything was written
        operation.error = error


def _do_now(ledger: Ledger, work: Callable[[Ledger], T]) -> tuple[T] | None:
    if not ledger.begin_nowait():
        return None
    try:
        try:
            value = work(ledger)
        except HeavetoError:  # found before anything was written
            ledger.commit()
            raise
        ledger.commit()
    except HeavetoError:
        raise
    except Exception:  # noqa: BLE001  # whatever it is, the thread will meet it again and report it
        ledger.rollback()
        return None
    return (value,)


def _fail(operations: Sequence[Operation], error: BaseException) -> None:
    for operation in operations:
        operation.error = error
