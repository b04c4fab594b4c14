"""The rounds of whoever looks for what dead processes left: which sessions have something to do, in nobody's hands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from heaveto.clock import Clock
from heaveto.errors import SessionErasedError, StoreError, UnknownSessionError
from heaveto.events.records import SessionKey
from heaveto.runner.lane.lane import Lane
from heaveto.runner.services import logger
from heaveto.stores.base import Store, Unfinished


class Rounds:
    """Looks at the unfinished runs of an app, as often as it is asked.

    Sessions that only wait for answers are remembered: as long as nothing comes to them and no deadline passes, a look
    at one costs a single row. What goes wrong with one session keeps no other from being found.
    """

    def __init__(self, app: str, store: Store, clock: Clock, lane_of: Callable[[SessionKey], Lane]) -> None:
        self._app, self._store, self._clock, self._lane_of = app, store, clock, lane_of
        self._at_rest: dict[SessionKey, tuple[int, float]] = {}
        """The sessions that wait for answers: their last seq, and when the first of these will be too late."""

    async def unfinished(self) -> list[Unfinished]:
        """Return the runs with business left.

        Raises:
            StoreError
        """
        return [entry for entry in await self._store.unfinished() if entry.key.app == self._app]

    async def look(self, found: Sequence[Unfinished]) -> list[Lane]:
        """Return the lanes of those sessions that have something to do, and that no live process holds."""
        keys = dict.fromkeys(entry.key for entry in found)
        owed = {entry.key for entry in found if entry.ended}
        self._at_rest = {key: known for key, known in self._at_rest.items() if key in keys}
        lanes: list[Lane] = []
        for key in keys:
            try:
                if await self._has_work(key, key in owed):
                    lanes.append(self._lane_of(key))
            except StoreError:
                logger.warning("session %s could not be looked at; trying again at the next look", key, exc_info=True)
        return lanes

    async def _has_work(self, key: SessionKey, is_owed: bool) -> bool:
        """Whether there is something to do in a session; `is_owed` if an end hook was not told."""
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
            if is_owed or lane.has_leftovers(now):
                return True
            self._at_rest[key] = lane.log.state.last_seq, lane.next_deadline
        return False
