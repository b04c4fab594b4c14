"""A run while this process carries it: its stops, its way to the log, its drafts, its operations.

What agents ask of it stands in `host`, its supervisor in `supervise`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

from heaveto.agents.state import StateView
from heaveto.core.close import Work
from heaveto.core.fold import RunState, SessionState, calls_around
from heaveto.errors import RunCancelled, StoreError
from heaveto.events.contents import Json
from heaveto.events.records import (
    CallSettled,
    CancelRequested,
    Cause,
    Delta,
    Draft,
    Record,
    SessionKey,
    StopScope,
)
from heaveto.runner.application.config import RunConfig
from heaveto.runner.run.draft import SAVE_AFTER_SECONDS, LiveDraft
from heaveto.runner.run.journal import Journal
from heaveto.runner.services import Services, logger
from heaveto.runner.session.log import SessionLog
from heaveto.runner.session.stops import ask_to_stop
from heaveto.runner.tasks.detached import detach
from heaveto.stores.base import Lease

_T = TypeVar("_T")
_RECORD_STOP_SECONDS = 1.0


class Stoppable(Protocol):
    """A started operation, as a stop sees it."""

    @property
    def task(self) -> asyncio.Task[None] | None:
        """Its work, once it has begun."""
        ...

    @property
    def is_awaited(self) -> bool:
        """Whether a stop waits for it."""
        ...

    @property
    def is_in_background(self) -> bool:
        """Whether the run goes on, and ends, without it."""
        ...

    @property
    def work(self) -> Work | None:
        """What became of it; None if nobody knows."""
        ...

    def look(self) -> None:
        """Take note of what came for it."""
        ...

    def ask_to_stop(self, cause: Cause) -> None:
        """Tell it, and interrupt it if that is its way."""
        ...


class Showable(Protocol):
    """What is streamed: an answer of a model, or the output of a call."""

    author: str
    branch: str
    unsaved: int

    @property
    def message_id(self) -> str: ...
    @property
    def wants_saving(self) -> bool: ...
    def since(self, position: int) -> tuple[list[Delta], int]: ...
    def snapshot(self, *, last: bool = False) -> Draft: ...


class LiveRun:
    """One run in this process.

    Attributes:
        drafts: answers that are being streamed, by message id, and the output of running calls.
        recovered_output: what calls of a dead process had put out, by call id.
        operations: tool calls that were started here, by call id.
        task: the agents' work.
        stopping: the work is being stopped: what ends now ends because of it.
        sealing: the ending is decided; what comes now is a late result.
        is_resuming: the work goes on with what was begun before: by a dead process, or before a pause.
        is_held: the agents have returned without being done, because something waits.
        finished: set when the ending is durable, or this process gave the run up.
    """

    def __init__(self, services: Services, log: SessionLog, lease: Lease, run_id: str, config: RunConfig) -> None:
        self.services, self.log, self.lease, self.config, self.run_id = services, log, lease, config, run_id
        self.run: RunState = log.state.run(run_id)
        self.journal = Journal(log, lease, run_id, services.app.hooks, self.check)
        self.drafts: dict[str, Showable] = {}
        self.recovered_output: dict[str, Draft] = {}
        self.operations: dict[str, Stoppable] = {}
        self.model_calls = 0
        self._recorded_before = self.run.llm_calls
        self._signals = self.run.signal_seq
        self.error: BaseException | None = None
        self.task: asyncio.Task[None] | None = None
        self.is_resuming = self.is_held = False
        self.stopping = False
        self.sealing = False
        self.finished = asyncio.Event()
        self.wake = asyncio.Event()
        self._temp: dict[str, Json] = {}
        self._local_stop: CancelRequested | None = None
        self._save_timer: asyncio.TimerHandle | None = None

    @property
    def key(self) -> SessionKey:
        return self.log.key

    @property
    def session(self) -> SessionState:
        return self.log.state

    def stamp(self) -> tuple[str, float]:
        return self.services.stamp()

    # --- stops ----------------------------------------------------------------------------------------------------

    @property
    def stop_asked(self) -> CancelRequested | None:
        """The stop that was asked for: durable, or, where the store could not take it, known to this process only."""
        return self.run.cancel or self._local_stop

    async def seal(self) -> None:
        """Let nothing more of the run be recorded but its ending, and what comes late; wait for what was begun before.

        What begins while the log settles may be held back by someone who holds it still: without the second look it
        would land behind the ending.
        """
        await self.log.settle()
        self.sealing = True
        await self.log.settle()

    def stop_locally(self, cause: Cause, by: str = "runtime", reason: str = "", scope: StopScope = "children") -> None:
        """Stop although the store cannot record the request: a stop always stops."""
        record_id, time = self.stamp()
        self._local_stop = CancelRequested(
            id=record_id, time=time, run_id=self.run_id, cause=cause, by=by, reason=reason, scope=scope
        )
        self.wake.set()

    async def request_stop(
        self,
        cause: Cause,
        by: str,
        reason: str = "",
        scope: StopScope = "children",
        delivered: int | None = None,
    ) -> None:
        """Ask for a stop, durably; where the store cannot take it, or takes too long, in this process."""
        asked = ask_to_stop(
            self.services, self.log, self.run_id, cause, by=by, reason=reason, scope=scope, delivered=delivered
        )
        _, recorded = detach(asked)
        try:
            async with asyncio.timeout(_RECORD_STOP_SECONDS):
                await recorded
        except TimeoutError:
            logger.warning("the stop of run %s is not recorded yet; stopping it all the same", self.run_id)
            self.stop_locally(cause, by, reason, scope)
        except StoreError:
            logger.exception("the stop of run %s could not be recorded; stopping it all the same", self.run_id)
            self.stop_locally(cause, by, reason, scope)

    def look(self) -> None:
        """Take note of what has come into the log: a stop, the run's ending by another worker, news for a call."""
        if self.sealing or self.stopping:
            return
        if self.run.signal_seq > self._signals:
            self._signals = self.run.signal_seq
            for operation in tuple(self.operations.values()):
                operation.look()
            if self._stopped_before_start():
                self.services.spawn(self._settle_not_started(), f"calls of {self.run_id} that never start")
        if self.run.ended is not None:
            self.stop_locally("lease_lost")
        elif self.stop_asked is not None:
            self.wake.set()

    def _stopped_before_start(self) -> list[Record]:
        """Return the settlements of calls that were stopped, each for itself, before they began (F139)."""
        settled: list[Record] = []
        for call in self.run.calls.values():
            if call.cancel is not None and call.phase == "proposed":
                record_id, time = self.stamp()
                settled.append(
                    CallSettled(
                        id=record_id, time=time, run_id=self.run_id, call_id=call.call.call_id, name=call.call.name,
                        status="not_started", cause=call.cancel.cause,
                    )
                )  # fmt: skip
        return settled

    async def _settle_not_started(self) -> None:
        """Say so at once, and not only when their turn would have come. From then on they cannot start."""
        with suppress(RunCancelled):  # the run's ending says it
            await self.journal.commit(self._stopped_before_start)
            await self.journal.tell()

    def check(self) -> None:
        """Raise `RunCancelled` if the run was asked to stop, or has ended."""
        stop = self.stop_asked
        if stop is not None:
            raise RunCancelled(self.run_id, stop.cause)
        if self.sealing or self.finished.is_set():
            raise RunCancelled(self.run_id, "lease_lost")

    def end(self) -> None:
        """Let go of what has ended with the run, so that it is freed at once and not only by the garbage collector."""
        self.finished.set()
        self.journal.end(partial(_refuse, self.run_id))
        self.operations = {
            call_id: operation
            for call_id, operation in self.operations.items()
            if operation.task is not None and not operation.task.done()
        }

    # --- records --------------------------------------------------------------------------------------------------

    def stage(self, *records: Record) -> None:
        self.journal.stage(*records)

    async def flush(self) -> None:
        await self.journal.flush()
        await self.journal.tell()
        self.check()

    def set_temp(self, delta: Mapping[str, Json]) -> None:
        """Set the ``temp:`` values of a delta: they live as long as the run and are never recorded."""
        self._temp.update({key: value for key, value in delta.items() if key.startswith("temp:")})

    def state_view(self) -> StateView:
        state = self.log.state
        return StateView((state.state, state.shared), self._temp)

    async def unless_stopped(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Do work that comes before the run's start. A stop does not wait for it, whatever it does about that.

        Raises:
            RunCancelled: the run was asked to stop.
        """
        task = asyncio.ensure_future(work)
        self.services.background.add(task)
        task.add_done_callback(self.services.background.discard)
        task.add_done_callback(lambda _: self.wake.set())
        unwatch = self.log.watch(self.look)
        try:
            while not task.done() and self.stop_asked is None:
                self.wake.clear()
                await self.wake.wait()
        finally:
            unwatch()
            task.cancel()
        self.check()
        return task.result()

    # --- work ----------------------------------------------------------------------------------------------------

    @property
    def stragglers(self) -> list[asyncio.Task[None]]:
        """What still works: tools and, if agents or callbacks swallow their cancellation, the agents' own task."""
        at_work = (operation.task for operation in self.operations.values() if not operation.is_in_background)
        tasks = [self.task, *at_work]
        return [task for task in tasks if task is not None and not task.done()]

    @property
    def unrecorded_model_calls(self) -> int:
        """How many requests of this attempt are under way, or have left no message in the log."""
        return self.model_calls - (self.run.llm_calls - self._recorded_before)

    # --- drafts ---------------------------------------------------------------------------------------------------

    def draft_grew(self, draft: Showable) -> None:
        """Show readers what is new of a draft, and see to it that it is saved soon: after 250 ms at the latest."""
        self.log.notify()
        if draft.wants_saving:
            self._save_drafts()
        elif self._save_timer is None:
            self._save_timer = asyncio.get_running_loop().call_later(SAVE_AFTER_SECONDS, self._save_drafts)

    def forget_draft(self, message_id: str) -> None:
        """The draft became a message or a result, or its request failed."""
        self.drafts.pop(message_id, None)
        if not self.drafts and self._save_timer is not None:
            self._save_timer.cancel()
            self._save_timer = None

    def keep_cut_drafts(self, author: str, branch: str) -> None:
        """An agent's request failed in mid-answer and the run goes on: what was seen of it is kept, marked as cut."""
        for draft in tuple(self.drafts.values()):
            if isinstance(draft, LiveDraft) and (draft.author, draft.branch) == (author, branch):
                self.forget_draft(draft.message_id)
                self.stage(draft.cut_off("error", self.services.clock.time()))

    def take_drafts_within(self, call_id: str) -> list[LiveDraft]:
        """Take the half answers of agents that worked for a call, which has come to its end before them."""
        taken = [
            draft
            for draft in self.drafts.values()
            if isinstance(draft, LiveDraft) and call_id in calls_around(draft.branch) and not draft.is_empty
        ]
        for draft in taken:
            self.forget_draft(draft.message_id)
        return taken

    def _save_drafts(self) -> None:
        if self._save_timer is not None:
            self._save_timer.cancel()
            self._save_timer = None
        unsaved = [draft for draft in self.drafts.values() if draft.unsaved]
        if unsaved and not self.sealing:
            for draft in unsaved:
                draft.unsaved = 0
            snapshots = [draft.snapshot() for draft in unsaved]
            self.services.spawn(self.services.store.save_drafts(self.key, snapshots), f"save drafts of {self.run_id}")


def _refuse(run_id: str) -> None:
    raise RunCancelled(run_id, "lease_lost")
