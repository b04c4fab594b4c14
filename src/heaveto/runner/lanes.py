"""The lanes of one runner: for each session at most one."""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from weakref import WeakValueDictionary

from heaveto.errors import UnknownRunError
from heaveto.events.records import SessionKey
from heaveto.runner.lane.lane import Lane
from heaveto.runner.services import Services

_IDLE_LANES = 1024


class Lanes:
    """Finds a session's lane, or makes it. What a lane knows is a cache of the log: the recently used ones are kept."""

    def __init__(self, services: Services, *, create_sessions: bool) -> None:
        self.services, self.create_sessions = services, create_sessions
        self._kept: OrderedDict[SessionKey, Lane] = OrderedDict()
        """The most recently used last."""
        self._known: WeakValueDictionary[SessionKey, Lane] = WeakValueDictionary()
        """All that anything holds on to: a session never has two of them."""

    def at(self, key: SessionKey) -> Lane:
        """Return a session's lane."""
        lane = self._known.get(key)
        if lane is None:
            lane = self._known[key] = Lane(self.services, key, create_session=self.create_sessions)
        self._kept[key] = lane
        self._kept.move_to_end(key)
        self._forget_idle()
        return lane

    async def of_run(self, run_id: str) -> Lane:
        """Return the lane of a run's session, its log read to its end.

        Raises:
            UnknownRunError: the app has no such run.
        """
        key = await self.services.store.find_run(run_id)
        if key is None or key.app != self.services.app.name:
            raise UnknownRunError(run_id)
        lane = self.at(key)
        if lane.live is None:
            await lane.log.refresh()
        return lane

    def kick(self, key: SessionKey) -> None:
        """See to it that a session's lane looks for work."""
        if not self.services.closed:
            self.at(key).kick()

    def forget(self, key: SessionKey) -> None:
        """Keep a lane no longer than others hold on to it."""
        self._kept.pop(key, None)

    def all(self) -> list[Lane]:
        """Return those that anything holds on to."""
        return list(self._known.values())

    def _forget_idle(self) -> None:
        excess = len(self._kept) - _IDLE_LANES
        if excess > 0:
            for key, lane in list(islice(self._kept.items(), excess + 16)):
                if lane.is_forgettable:
                    del self._kept[key]
