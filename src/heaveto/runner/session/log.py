"""A session's log as this process knows it: the fold, kept up to date with the store, and those who watch it."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager

from msgspec.structs import replace

from heaveto.core.fold import SessionState, calls_around
from heaveto.core.project import View
from heaveto.core.request import ModelProfile, Turns
from heaveto.errors import SessionErasedError, StoreError
from heaveto.events.records import Record, SessionKey
from heaveto.runner.tasks.detached import detach
from heaveto.stores.base import Guard, Store

logger = logging.getLogger("heaveto")

_MAX_VIEWS = 64
_READ_RETRIES = 2


class SessionLog:
    """One session's log in this process. All appends of this process go through it.

    `state` never runs ahead of the store: a record is in it only after its append was durable, and in seq order.
    """

    __slots__ = (
        "_hinted",
        "_inflight",
        "_lease_watchers",
        "_refreshing",
        "_still",
        "_unsubscribe",
        "_views",
        "_watchers",
        "key",
        "loaded",
        "lost",
        "state",
        "store",
    )

    def __init__(self, store: Store, key: SessionKey) -> None:
        self.store, self.key = store, key
        self.state = SessionState()
        self.loaded = False
        self.lost: SessionErasedError | None = None
        """Why there is nothing to follow any more: the session was erased."""
        self._watchers: list[Callable[[], None]] = []
        self._lease_watchers: list[Callable[[], None]] = []
        self._views: OrderedDict[tuple[str, str, ModelProfile], View] = OrderedDict()
        self._inflight: set[asyncio.Task[None]] = set()
        self._still: asyncio.Future[None] | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self._hinted = 0

    async def refresh(self) -> None:
        """Read what others appended.

        Raises:
            UnknownSessionError, SessionErasedError
        """
        try:
            records = await self.store.read(self.key, after=self.state.last_seq)
        except SessionErasedError as error:
            self.lost = error
            self.notify()
            raise
        self.loaded = True
        self._absorb(records)

    async def append(
        self, records: Sequence[Record], *, token: int | None, expect: int | None = None, guard: Guard | None = None
    ) -> int:
        """Append, and return when the records are durable and in `state`; errors as in `Store.append`.

        Cancelling the caller does not cancel the append: it goes on, and `settle` waits for it.
        """
        return await self.append_soon(records, token=token, expect=expect, guard=guard)

    def append_soon(
        self, records: Sequence[Record], *, token: int | None, expect: int | None = None, guard: Guard | None = None
    ) -> asyncio.Future[int]:
        """Begin an append and return its outcome."""
        gate = self._still if expect is None else None
        task, outcome = detach(self._append(records, token, expect, guard, gate))
        self._inflight.add(task)
        task.add_done_callback(self._landed)
        return outcome

    async def _append(
        self,
        records: Sequence[Record],
        token: int | None,
        expect: int | None,
        guard: Guard | None,
        gate: asyncio.Future[None] | None,
    ) -> int:
        if gate is not None:
            await asyncio.wait({gate})
        last = await self.store.append(self.key, records, token=token, expect=expect, guard=guard)
        first = last - len(records) + 1
        if first <= self.state.last_seq + 1:
            self._absorb([replace(record, seq=first + index) for index, record in enumerate(records)])
        else:
            await self._read_on()
        return last

    async def _read_on(self) -> None:
        """Read what others appended before. The own records are durable: a passing error must not hide that (F117)."""
        for _ in range(_READ_RETRIES):
            try:
                await self.refresh()
            except StoreError:
                logger.warning("session %s could not be read behind an append", self.key, exc_info=True)
            else:
                return
        await self.refresh()

    def _landed(self, task: asyncio.Task[None]) -> None:
        self._inflight.discard(task)
        self._follow_hint()

    async def settle(self) -> None:
        """Wait for the appends that are under way now. Those that begin meanwhile do not hold the caller up."""
        if self._inflight:
            await asyncio.wait(set(self._inflight))

    @asynccontextmanager
    async def still(self) -> AsyncGenerator[None, None]:
        """Hold the log still for a look and a conditional append: what this process appends meanwhile comes behind it.

        Without it a run whose tools record something all the time could never be stopped: the log would always have
        moved. Within the block, append with `expect` only; anything else would wait for the block's own end.
        """
        before: set[asyncio.Future[None]] = {*self._inflight}
        previous = self._still
        self._still = end = asyncio.get_running_loop().create_future()
        try:
            if previous is not None:
                before.add(previous)
            if before:
                await asyncio.wait(before)
            yield
        finally:
            end.set_result(None)
            if self._still is end:
                self._still = None

    def _absorb(self, records: Sequence[Record]) -> None:
        last = self.state.last_seq
        fresh = [record for record in records if record.seq > last]
        if not fresh:
            return
        for record in fresh:
            self.state.apply(record)
        self.notify()

    def notify(self) -> None:
        """Tell the watchers that there is something new: a record, or a piece of a draft."""
        for watcher in tuple(self._watchers):
            watcher()

    def watch(self, watcher: Callable[[], None], *, lease: bool = False) -> Callable[[], None]:
        """Call `watcher` after each change, also by other processes, until the returned function is called.

        With `lease`, also when the session's lease may have become free.
        """
        if not self._watchers:
            self._unsubscribe = self.store.subscribe(self.key, self._hint)
        self._watchers.append(watcher)
        if lease:
            self._lease_watchers.append(watcher)

        def unwatch() -> None:
            if watcher in self._watchers:
                self._watchers.remove(watcher)
            if watcher in self._lease_watchers:
                self._lease_watchers.remove(watcher)
            if not self._watchers and self._unsubscribe is not None:
                self._unsubscribe()
                self._unsubscribe = None

        return unwatch

    @property
    def is_watched(self) -> bool:
        return bool(self._watchers)

    def _hint(self, last_seq: int) -> None:
        """The store says that the log has grown, that its lease is free, or (0) that the session was erased."""
        if not last_seq and self.state.last_seq and self._refreshing is None:
            self._refreshing = asyncio.ensure_future(self._catch_up())
        self._hinted = max(self._hinted, last_seq)
        if self._hinted > self.state.last_seq:
            self._follow_hint()
        for watcher in tuple(self._lease_watchers):
            watcher()

    def _follow_hint(self) -> None:
        behind = self._hinted > self.state.last_seq
        if behind and not self._inflight and self._refreshing is None and self._watchers:
            self._refreshing = asyncio.ensure_future(self._catch_up())

    async def _catch_up(self) -> None:
        try:
            await self.refresh()
        except SessionErasedError:
            pass  # those who watch were told
        except Exception:
            logger.warning("session %s could not be read again", self.key, exc_info=True)
            self.notify()
        finally:
            self._refreshing = None

    def turns(self, agent: str, branch: str, profile: ModelProfile) -> Turns:
        """Return the conversation as an agent's model is told it now. Costs what is new since the last time."""
        key = (agent, branch, profile)
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = View(agent, branch, profile, self._first_index(branch))
            if len(self._views) > _MAX_VIEWS:
                self._views.popitem(last=False)
        else:
            self._views.move_to_end(key)
        return view.turns(self.state.records)

    def _first_index(self, branch: str) -> int:
        """An isolated branch begins at the call that it works for."""
        around = calls_around(branch)
        call = self.state.calls.get(around[-1]) if around else None
        return call.seq - 1 if call is not None else 0
