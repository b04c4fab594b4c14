"""What a shell may do to a session that another process carries: ask for a stop, wait for the ending, erase.

Nothing here carries a run or closes what a dead process left: that calls the app's end hooks, and so needs the app.
"""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Literal, TypeAlias

import click

from heaveto.agents.base import BaseAgent
from heaveto.agents.context import AgentContext
from heaveto.artifacts.in_store import StoreArtifacts
from heaveto.clock import SystemClock
from heaveto.core.close import Ending
from heaveto.events.records import RunEnded, SessionKey
from heaveto.ids import SystemIds
from heaveto.runner.application.app import App
from heaveto.runner.gate import Gate
from heaveto.runner.lane.endings import end_waiting
from heaveto.runner.services import Services
from heaveto.runner.session.log import SessionLog
from heaveto.runner.session.stops import ask_to_stop
from heaveto.stores.base import Store
from heaveto.stores.sqlite import SqliteStore

Stopped: TypeAlias = RunEnded | Literal["asked", "dead"]
"""The run's ending; or that it was asked and has not ended yet; or that nobody is alive to end it now."""


class Outside:
    """One session, seen and spoken to from outside of its runs."""

    def __init__(self, store: Store, key: SessionKey) -> None:
        self._store, self._key = store, key
        self._log = SessionLog(store, key)
        app, artifacts = App(key.app, _Nobody("outside")), StoreArtifacts(store)
        self._services = Services(app, store, SystemClock(), SystemIds(), artifacts, Gate())

    async def open_runs(self) -> list[str]:
        """Return the runs that wait or have begun and not ended: those that wait first, so that none begins."""
        await self._log.refresh()
        state = self._log.state
        return [*state.queue, *([state.current] if state.current is not None else [])]

    async def stop(self, run_id: str, *, by: str, reason: str, patience_seconds: float) -> Stopped:
        """Record that a run shall stop, and wait for its ending while its process lives. Idempotent."""
        await self._log.refresh()
        await ask_to_stop(self._services, self._log, run_id, "user", by=by, reason=reason)
        await end_waiting(self._services, self._log, run_id, Ending("cancelled", "user", by, reason))
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_seconds):
                return await self._ending(run_id)
        return "asked"

    async def _ending(self, run_id: str) -> Stopped:
        changed = asyncio.Event()
        unwatch = self._log.watch(changed.set)
        try:
            while (ended := self._log.state.run(run_id).ended) is None:
                holder = await self._store.holder(self._key)
                if holder is None or not holder.alive:
                    return "dead"
                await changed.wait()
                changed.clear()
            return ended
        finally:
            unwatch()


@asynccontextmanager
async def outside(path: Path, key: SessionKey) -> AsyncGenerator[tuple[Outside, Store], None]:
    """Open a store that is there, for one session of it."""
    async with SqliteStore(path) as store:
        yield Outside(store, key), store


class _Nobody(BaseAgent):
    """Stands for the app's agents, which are not needed to stop and to erase."""

    async def run(self, ctx: AgentContext) -> None:
        raise NotImplementedError


def _login_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return "command line"


by_option = click.option("--by", default=_login_name, show_default="your login name", help="Who wants it, for the log.")
reason_option = click.option("--reason", default="", help="Why, for the log.")
