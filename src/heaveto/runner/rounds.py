"""The rounds of those who look for what dead processes left: so many sessions at a time, each by one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from heaveto.clock import Clock
from heaveto.errors import SessionErasedError, UnknownSessionError
from heaveto.events.records import SessionKey
from heaveto.runner.lane.lane import Lane
from heaveto.runner.lane.leftovers import has_leftovers, next_deadline
from heaveto.runner.services import logger
from heaveto.stores.base import Holder, Store, Unfinished


@dataclass(frozen=True, slots=True)
class _Quiet:
    """A session that somebody alive holds: how far its log was, since when, and whether that was said."""

    holder: Holder
    last_seq: int
    since: float
    is_said: bool = False


class Rounds:
    """Looks at the unfinished runs of an app, as often as it is asked.

    Sessions that only wait for answers are remembered: as long as nothing comes to them and no deadline passes, a look
    at one costs a single row. What goes wrong with one session keeps no other from being found.
    """

    def __init__(self, app: str, store: Store, clock: Clock, lane_of: Callable[[SessionKey], Lane]) -> None:
        self._app, self._store, self._clock, self._lane_of = app, store, clock, lane_of
        self._at_rest: dict[SessionKey, tuple[int, float]] = {}
        """The sessions that wait for answers: their last seq, and when the first of these will be too late."""
        self._taken: set[SessionKey] = set()
        """The sessions that are taken up just now, by whichever look."""
        self._quiet: dict[SessionKey, _Quiet] = {}

    async def unfinished(self) -> dict[SessionKey, list[Unfinished]]:
        """Return the runs with business left, by session.

        Raises:
            StoreError
        """
        sessions: dict[SessionKey, list[Unfinished]] = {}
        for entry in await self._store.unfinished():
            if entry.key.app == self._app:
                sessions.setdefault(entry.key, []).append(entry)
        self._at_rest = {key: known for key, known in self._at_rest.items() if key in sessions}
        self._quiet = {key: known for key, known in self._quiet.items() if key in sessions}
        return sessions

    async def recover(self, *, max_concurrent: int) -> list[str]:
        """Carry out what one look finds, and return the ids of the runs that were found and carried out here.

        Raises:
            StoreError
        """
        recovered: list[str] = []
        found = await self.unfinished()
        async with asyncio.TaskGroup() as carrying:
            await self.look(found, carrying, asyncio.Semaphore(max_concurrent), recovered)
        return recovered

    async def look(
        self,
        found: Mapping[SessionKey, Sequence[Unfinished]],
        carrying: asyncio.TaskGroup,
        free: asyncio.Semaphore,
        recovered: list[str],
        *,
        alarm_after_seconds: float | None = None,
    ) -> None:
        """Take up what was found, and return when all of it goes on in tasks.

        Args:
            found: the sessions with runs that are unfinished.
            carrying: has the tasks. Each ends when its session has nothing more to do here; cancelling it leaves the
                session to itself.
            free: the places. A session has one as long as it has something to do.
            recovered: takes the ids of the runs that were carried out.
            alarm_after_seconds: how long a run may record nothing before that is logged.
        """
        for key, entries in found.items():
            if key in self._taken:
                continue
            await free.acquire()
            self._taken.add(key)
            work = self._take_up(key, entries, recovered, alarm_after_seconds)
            task = carrying.create_task(work, name=f"heaveto recovery of {key}")
            task.add_done_callback(lambda _, key=key: self._put_down(key, free))  # type: ignore[misc]

    def _put_down(self, key: SessionKey, free: asyncio.Semaphore) -> None:
        self._taken.discard(key)
        free.release()

    async def _take_up(
        self, key: SessionKey, entries: Sequence[Unfinished], recovered: list[str], alarm_after_seconds: float | None
    ) -> None:
        try:
            lane = self._lane_of(key)
            if lane.services.closed or not await self.has_work(key, is_owed=any(entry.ended for entry in entries)):
                if alarm_after_seconds is not None:
                    await self._watch(key, alarm_after_seconds)
                return
        except Exception:  # noqa: BLE001 - an edge: no trouble of one session may keep others from being found
            logger.warning("session %s could not be looked at; trying again at the next look", key, exc_info=True)
            return
        lane.take_up()
        await lane.drained()
        if not lane.is_elsewhere:
            recovered.extend(entry.run_id for entry in entries if entry.run_id not in lane.log.state.paused)

    async def has_work(self, key: SessionKey, *, is_owed: bool) -> bool:
        """Whether there is something to do in a session that nobody alive holds.

        `is_owed` tells that an end hook was not told.

        Raises:
            StoreError
        """
        now = self._clock.time()
        if key in self._at_rest and not is_owed:
            last_seq, deadline = self._at_rest[key]
            row = await self._store.get_session(key)
            if row is None or (row.last_seq == last_seq and now < deadline):
                return False
        lane = self._lane_of(key)
        holder = await self._store.holder(key)
        if not lane.is_idle or (holder is not None and holder.alive):
            return False
        with suppress(UnknownSessionError, SessionErasedError):
            await lane.log.refresh()
            if is_owed or has_leftovers(lane.log.state, now):
                return True
            self._at_rest[key] = lane.log.state.last_seq, next_deadline(lane.log.state)
        return False

    async def _watch(self, key: SessionKey, alarm_after_seconds: float) -> None:
        """Say, once, of a session that somebody alive holds that its log has not grown for long (F83)."""
        holder, row = await self._store.holder(key), await self._store.get_session(key)
        if holder is None or row is None or not holder.alive:
            self._quiet.pop(key, None)
            return
        now, known = self._clock.time(), self._quiet.get(key)
        if known is None or (known.holder, known.last_seq) != (holder, row.last_seq):
            self._quiet[key] = _Quiet(holder, row.last_seq, now)
        elif not known.is_said and now - known.since >= alarm_after_seconds:
            self._quiet[key] = _Quiet(holder, row.last_seq, known.since, is_said=True)
            logger.error(
                "session %s: nothing was recorded for %.0f seconds, and %s, which holds it, is alive",
                key, now - known.since, holder.owner,
            )  # fmt: skip
