"""What the parts of a runner share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from heaveto.agents.base import BaseAgent
from heaveto.artifacts.base import ArtifactService
from heaveto.clock import Clock
from heaveto.core.fold import SessionState
from heaveto.events.records import Cause, ParentCall, RunEnded, SessionKey, StopReport
from heaveto.ids import IdSource
from heaveto.runner.application.app import App
from heaveto.runner.application.config import RunConfig
from heaveto.runner.gate import Gate
from heaveto.stores.base import Store

_T = TypeVar("_T")

logger = logging.getLogger("heaveto")

END_HOOK_SECONDS = 30.0


class BackgroundCall(Protocol):
    """A call that works on although its run may have ended."""

    child_run: str
    """The run that it goes on as, if it is an agent's."""

    @property
    def task(self) -> asyncio.Task[None] | None: ...
    def cut(self, cause: Cause) -> None: ...


class ChildRun(Protocol):
    """A run that works for a call, as that call sees it."""

    run_id: str

    @property
    def state(self) -> SessionState:
        """What is known of its session."""
        ...

    async def wait(self) -> RunEnded: ...
    async def cancel(self, *, cause: Cause, by: str) -> StopReport: ...


class Children(Protocol):
    """Starts runs that work for calls, and brings their outcomes home."""

    async def start(self, parent: ParentCall, agent: BaseAgent, task: str, config: RunConfig) -> ChildRun:
        """Start a run for a call, with settings of its own; a repeated start is the same run."""
        ...

    async def deliver(self, state: SessionState, run_id: str) -> None:
        """Record the outcome of a run that has ended as that of the call it worked for. Idempotent."""
        ...

    async def stop(self, run_id: str, cause: Cause, by: str) -> None:
        """Stop such a run, wherever it is carried."""
        ...


class _Childless:
    """Who carries no runs starts none either."""

    async def start(self, parent: ParentCall, agent: BaseAgent, task: str, config: RunConfig) -> ChildRun:
        raise NotImplementedError

    async def deliver(self, state: SessionState, run_id: str) -> None:
        pass

    async def stop(self, run_id: str, cause: Cause, by: str) -> None:
        pass


@dataclass(slots=True)
class Services:
    """The app, where it is durable, and where time and ids come from."""

    app: App
    store: Store
    clock: Clock
    ids: IdSource
    artifacts: ArtifactService
    gate: Gate
    children: Children = field(default_factory=_Childless)
    kick: Callable[[SessionKey], None] = lambda _: None
    """Tells a session's lane that there is something to do."""
    background_calls: dict[str, BackgroundCall] = field(default_factory=dict[str, "BackgroundCall"])
    """Calls in the background that work in this process, by call id."""
    background: set[asyncio.Task[Any]] = field(default_factory=set[asyncio.Task[Any]])
    """Work that outlives the run that began it: stragglers' late results, saves of drafts."""
    closed: bool = False
    """The runner closes, or has closed: nothing new begins."""
    listening: set[asyncio.Task[Any]] = field(default_factory=set[asyncio.Task[Any]])
    """Work that only waits for news from outside, and is dropped when the runner closes."""

    def stamp(self) -> tuple[str, float]:
        """Return the id and the time for a new record."""
        return self.ids.record_id(), self.clock.time()

    def spawn(self, work: Coroutine[Any, Any, object], name: str) -> None:
        """Start background work that is waited for when the runner closes; its errors are logged."""
        self._start(work, name).add_done_callback(self._finished)

    def listen(self, work: Coroutine[Any, Any, object], name: str) -> Callable[[], bool]:
        """Wait for something that may never come, until the runner closes. Return a function that ends the wait."""
        task = asyncio.create_task(work, name=name)
        self.listening.add(task)
        task.add_done_callback(self.listening.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # looked at: no news is no error
        return task.cancel

    async def shielded(self, work: Coroutine[Any, Any, _T], name: str) -> _T:
        """Do work that goes on to its end although the caller is cancelled."""
        return await asyncio.shield(self._start(work, name))

    async def bounded(self, work: Coroutine[Any, Any, object], name: str) -> None:
        """Do work that neither a cancelled caller nor its own error stops, and that may not hold up the caller long."""
        task = self._start(work, name)
        task.add_done_callback(self._finished)
        _, late = await asyncio.wait({task}, timeout=END_HOOK_SECONDS)
        if late:
            logger.error("%s takes longer than %g seconds and is left behind", name, END_HOOK_SECONDS)
            task.cancel()

    def _start(self, work: Coroutine[Any, Any, _T], name: str) -> asyncio.Task[_T]:
        task: asyncio.Task[_T] = asyncio.create_task(work, name=name)
        self.background.add(task)
        task.add_done_callback(self.background.discard)
        return task

    def _finished(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("%s failed", task.get_name(), exc_info=error)
