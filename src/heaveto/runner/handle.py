"""Handles and readers: how callers see a run. Neither owns it; both follow its log."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from heaveto.core.close import report_of
from heaveto.core.fold import SessionState
from heaveto.core.status import RunStatus
from heaveto.errors import RunFailedError, RunnerClosedError, RunPausedError, RunStoppedError
from heaveto.events.contents import text_of
from heaveto.events.records import Cause, Delta, Message, Paused, Record, RunEnded, SessionKey, StopReport, StopScope

if TYPE_CHECKING:
    from heaveto.runner.lane.lane import Lane
    from heaveto.runner.lane.ticket import Ticket

StreamItem: TypeAlias = Record | Delta


class Canceller(Protocol):
    """How a handle stops its run."""

    def __call__(
        self,
        run_id: str,
        key: SessionKey,
        cause: Cause,
        by: str,
        reason: str,
        scope: StopScope = "children",
        delivered: int | None = None,
    ) -> Coroutine[Any, Any, StopReport]: ...


class Run:
    """A run, whoever carries it: this process, another one, or, after a crash, the next to come.

    Dropping the handle changes nothing. Any number of readers may follow it, each with its own position.
    """

    def __init__(self, lane: Lane, run_id: str, cancel: Canceller, *, ticket: Ticket | None, start: int) -> None:
        self._lane, self._cancel, self._ticket, self._start = lane, cancel, ticket, start
        self.run_id = run_id
        self._loop = asyncio.get_running_loop()

    @property
    def session(self) -> SessionKey:
        return self._lane.key

    @property
    def status(self) -> RunStatus:
        """Where the run stands, as far as this process has read the log."""
        return self._lane.log.state.run(self.run_id).status

    @property
    def state(self) -> SessionState:
        """What its log tells, as far as this process has read it. Look, and change nothing."""
        return self._lane.log.state

    def stream(self, *, after: int | None = None, deltas: bool = True) -> RecordReader:
        """Follow the run: its records with a seq greater than `after` (None: from its beginning), then what comes.

        Ends behind the run's ending, and where it pauses. A slow or absent reader never holds up the run; a piece of
        text that a reader was too slow for comes to it as part of the final `Message`.
        """
        return RecordReader(self, self._start if after is None else after, deltas=deltas)

    async def wait(self) -> RunEnded:
        """Wait for the run's ending and return it, also when it failed. A pause is none: it waits for the answers, too.

        Raises:
            StoreError, RunnerClosedError: this process gave the run up; another one will close it.
        """
        watch = _Watch(self._lane, self._is_over)
        try:
            await watch.catch_up(self.run_id)
            while (ended := self._ended()) is None:
                self._raise_given_up()
                await watch.changed()
        finally:
            watch.end()
        return ended

    async def ending_or_pause(self) -> RunEnded | Paused:
        """Wait until the run ends or waits for answers, and return which.

        Raises:
            StoreError, RunnerClosedError: this process gave the run up.
        """
        watch = _Watch(self._lane, lambda: self._is_over() or self._pause() is not None)
        try:
            await watch.catch_up(self.run_id)
            while (reached := self._ended() or self._pause()) is None:
                self._raise_given_up()
                await watch.changed()
        finally:
            watch.end()
        return reached

    def _pause(self) -> Paused | None:
        """The pause that the run is in: some of its calls have no answer yet."""
        run = self.state.run(self.run_id)
        if run.status != "paused" or not run.waiting:
            return None
        waiting = tuple(call.question for call in run.waiting if call.question is not None)
        return Paused(id="", time=run.paused_time, run_id=self.run_id, waiting=waiting)

    async def result(self) -> str:
        """Wait for the ending and return the answer: the last text that an agent said in the conversation.

        Raises:
            RunPausedError: the run waits for answers; it lists them.
            RunFailedError: the run failed.
            RunStoppedError: the run was stopped; what it had said is in its log.
        """
        ended = await self.ending_or_pause()
        if isinstance(ended, Paused):
            raise RunPausedError(self.run_id, ended.waiting)
        self.raise_if_failed(ended)
        if ended.outcome == "cancelled":
            raise RunStoppedError(self.run_id, report_of(ended))
        return answer_of(self.state, self.run_id)

    def cancel_soon(self, *, cause: Cause = "user", by: str = "", reason: str = "") -> None:
        """Ask for a stop and return at once: from any thread, signal handler or callback. `wait` tells its end."""

        def begin() -> None:
            stop = self._cancel(self.run_id, self.session, cause, by, reason)
            self._lane.services.spawn(stop, f"stop of run {self.run_id}")

        with suppress(RuntimeError):  # the loop is closed, and with it everything that the run did
            self._loop.call_soon_threadsafe(begin)

    async def cancel(
        self,
        *,
        cause: Cause = "user",
        by: str = "",
        reason: str = "",
        scope: StopScope = "children",
        delivered: int | None = None,
    ) -> StopReport:
        """Stop the run and return what the stop found, when all of it is durable (P3).

        `scope` and `delivered` as in `Runner.cancel`.

        Idempotent: on a run that has ended it returns that run's report. From code that the run itself carries, such
        as a tool, it returns as soon as the request is durable, and does not wait for itself.
        """
        return await self._cancel(self.run_id, self.session, cause, by, reason, scope, delivered)

    def _ended(self) -> RunEnded | None:
        return self._lane.log.state.run(self.run_id).ended

    def _is_over(self) -> bool:
        """Whether there is nothing to wait for: the run has ended, or this process gave it up."""
        given_up = self._ticket is not None and self._ticket.failure is not None
        return given_up or self._is_left() or self._lane.log.lost is not None or self._ended() is not None

    def _is_at_rest(self) -> bool:
        """Whether nothing comes any more, now that all was read: it has ended, or waits for answers."""
        return self._ended() is not None or self._pause() is not None

    def _raise_given_up(self) -> None:
        if self._lane.log.lost is not None:
            raise self._lane.log.lost
        if self._ticket is not None and self._ticket.failure is not None:
            raise self._ticket.failure
        if self._is_left():
            raise RunnerClosedError

    def _is_left(self) -> bool:
        """Whether the runner was closed over a run that is not over: another process goes on with it."""
        return self._lane.services.closed and self._lane.is_idle and self._ended() is None

    def raise_if_failed(self, ended: RunEnded) -> None:
        """Raise `RunFailedError` if the run failed, from its original error where that happened in this process."""
        if ended.outcome == "failed" and ended.error is not None:
            raise RunFailedError(self.run_id, ended.error) from self._original_error()

    def _original_error(self) -> BaseException | None:
        """Readers learn of the ending before the lane has put the error into the ticket."""
        live = self._lane.live
        if live is not None and live.run_id == self.run_id:
            return live.error
        return self._ticket.cause if self._ticket is not None else None

    @property
    def report(self) -> StopReport | None:
        """The stop report of an ended run."""
        ended = self._ended()
        return report_of(ended) if ended is not None else None

    def __repr__(self) -> str:
        return f"<Run {self.run_id} of {self.session}: {self.status}>"


def answer_of(state: SessionState, run_id: str) -> str:
    """Return the last text that an agent said in a run's conversation."""
    run = state.run(run_id)
    last = run.ended.seq if run.ended is not None else None
    for record in reversed(state.records[max(0, run.started_seq - 1) : last]):
        if isinstance(record, Message) and record.run_id == run_id and _is_answer(record):
            return text_of(record.parts)
    return ""


def _is_answer(message: Message) -> bool:
    """Whether something was said by an agent in the conversation: not by a user, and not in a tool's own branch."""
    return message.author != "user" and "@" not in message.branch and bool(text_of(message.parts))


class _Watch:
    """Waits for changes of a lane's log, or for one that matters.

    Of the many who wait while a long queue is worked through, a change wakes those only whom it concerns (P9).
    """

    __slots__ = ("_event", "_lane", "_matters", "_unwatch")

    def __init__(self, lane: Lane, matters: Callable[[], bool] | None = None) -> None:
        self._lane, self._matters = lane, matters
        self._event = asyncio.Event()
        self._unwatch: Callable[[], None] | None = None

    def begin(self) -> None:
        if self._unwatch is None:
            self._unwatch = self._lane.log.watch(self._hear)

    def _hear(self) -> None:
        if self._matters is None or self._matters():
            self._event.set()

    async def changed(self) -> None:
        """Wait for the next change since the last call."""
        await self._event.wait()
        self._event.clear()

    def end(self) -> None:
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None

    async def catch_up(self, run_id: str) -> None:
        """Begin to watch; read what others appended, where this process does not carry the session itself."""
        self.begin()
        if self._lane.live is None and self._lane.log.state.run(run_id).ended is None:
            await self._lane.log.refresh()


class RecordReader:
    """An asynchronous iterator over a run's records and deltas, with a position of its own.

    `aclose` ends the reading, never the run. Deltas of a message come before it, never behind it.
    """

    def __init__(self, run: Run, after: int, *, deltas: bool) -> None:
        self._run, self._deltas = run, deltas
        self._position = after
        self._shown: dict[str, int] = {}
        self._ready: deque[StreamItem] = deque()
        self._watch = _Watch(run._lane)  # pyright: ignore[reportPrivateUsage]
        self._begun = False
        self._over = False

    def __aiter__(self) -> RecordReader:
        return self

    async def __anext__(self) -> StreamItem:
        if not self._begun:
            self._begun = True
            await self._watch.catch_up(self._run.run_id)
        while not self._ready:
            if self._over:
                self._watch.end()
                raise StopAsyncIteration
            self._gather()
            if not self._ready and not self._over:
                self._run._raise_given_up()  # pyright: ignore[reportPrivateUsage]
                await self._watch.changed()
        return self._ready.popleft()

    def _gather(self) -> None:
        lane = self._run._lane  # pyright: ignore[reportPrivateUsage]
        records = lane.log.state.records
        for record in records[self._position :]:
            if record.run_id == self._run.run_id:
                self._ready.append(record)
                self._shown.pop(record.id, None)
                if isinstance(record, RunEnded):
                    self._over = True
                    break
        self._position = len(records)
        self._over = self._over or self._run._is_at_rest()  # pyright: ignore[reportPrivateUsage]
        if self._deltas and not self._over and lane.live is not None and lane.live.run_id == self._run.run_id:
            for draft in lane.live.drafts.values():
                pieces, self._shown[draft.message_id] = draft.since(self._shown.get(draft.message_id, 0))
                self._ready.extend(pieces)

    async def aclose(self) -> None:
        """End the reading. The run goes on."""
        self._over = True
        self._ready.clear()
        self._watch.end()

    async def __aenter__(self) -> RecordReader:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        self._watch.end()


class RunStream:
    """A cold stream (ADK's `run_async`): nothing happens before the first iteration; leaving it stops the run.

    Leaving means `aclose`, the end of an ``async with`` block, cancellation of the iterating task, or, as soon as the
    interpreter notices, dropping it, as a ``break`` does. At the run's failure, raises `RunFailedError` behind the last
    record.
    """

    def __init__(
        self, run_id: str, start: Callable[[], Awaitable[Run]], abandon: Callable[[], None], *, deltas: bool
    ) -> None:
        self._run_id, self._start, self._abandon, self._deltas = run_id, start, abandon, deltas
        self._run: Run | None = None
        self._reader: RecordReader | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop on which the iteration began."""
        self._ended: RunEnded | None = None
        self._over = self._left = False

    @property
    def run(self) -> Run | None:
        """The run's handle, once it has begun."""
        return self._run

    def __aiter__(self) -> RunStream:
        return self

    async def __anext__(self) -> StreamItem:
        if self._over:
            raise StopAsyncIteration
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        try:
            if self._reader is None:
                self._run = await self._start()
                self._reader = self._run.stream(deltas=self._deltas)
            item = await anext(self._reader)
        except StopAsyncIteration:
            self._over = True
            if self._run is not None and self._ended is not None:
                self._run.raise_if_failed(self._ended)
            raise
        except asyncio.CancelledError:
            self._leave()
            raise
        except BaseException:
            self._over = True
            raise
        if isinstance(item, RunEnded):
            self._ended = item
        return item

    @property
    def _must_stop(self) -> bool:
        """Whether leaving now stops the run. A run that took our message in (steer, merge) is not ours."""
        is_own = self._run is None or self._run.run_id == self._run_id
        return self._loop is not None and not self._over and self._ended is None and is_own

    def _leave(self) -> None:
        """Stop the run, in the background: the garbage collector may call this from any thread."""
        if self._must_stop:
            self._left = True
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._abandon)
        self._over = True

    async def aclose(self) -> None:
        """Leave the stream: the run is stopped, and its ending is durable on return."""
        self._leave()
        if self._reader is not None:
            await self._reader.aclose()
        if self._left and self._run is not None:
            await self._run.cancel(cause="disconnect")

    async def __aenter__(self) -> RunStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        self._leave()
