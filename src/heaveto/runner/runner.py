"""The runner: starts runs, finds them again, stops them, recovers what died, and closes in order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Literal, Self

from heaveto.agents.base import BaseAgent
from heaveto.artifacts.base import ArtifactService
from heaveto.artifacts.in_store import StoreArtifacts
from heaveto.clock import Clock, SystemClock
from heaveto.core.answers import Given
from heaveto.core.gate import GateState
from heaveto.errors import ConfigError, InputError, RunnerClosedError, UnknownRunError
from heaveto.events.contents import Content, Json, Part
from heaveto.events.records import (
    Answered,
    CallSettled,
    Cause,
    PauseRequested,
    Queued,
    Record,
    Rewound,
    SessionKey,
    StopReport,
    StopScope,
)
from heaveto.ids import IdSource, SystemIds
from heaveto.runner.answering import answer_by_message, answer_call, decision_of, require_tree
from heaveto.runner.application.app import App
from heaveto.runner.application.config import RunConfig
from heaveto.runner.application.hooks import Plugin
from heaveto.runner.checks import (
    checked_message,
    holds_answers,
    recorded_delta,
    require_count,
    require_id,
    require_parts_of_runner,
)
from heaveto.runner.children import ChildRuns
from heaveto.runner.closing import close_all
from heaveto.runner.erasure import erase_session
from heaveto.runner.facade import Background
from heaveto.runner.gate import Gate
from heaveto.runner.handle import Run, RunStream, StreamItem
from heaveto.runner.lane.lane import Lane
from heaveto.runner.lane.ticket import Ticket, fingerprint_of
from heaveto.runner.lane.time_travel import fork_session, rewind_session
from heaveto.runner.lanes import Lanes
from heaveto.runner.rounds import Rounds
from heaveto.runner.runs import attach_run, begin_run, handle, stop_run
from heaveto.runner.services import Services, logger
from heaveto.runner.session.desk import Question, open_questions
from heaveto.stores.base import SessionInfo, Store, Tombstone
from heaveto.stores.memory import MemoryStore

RETRY_NOTE = "Try again what could not be finished, from where it stopped. Do not repeat what was done."


@dataclass(frozen=True, slots=True)
class Holding:
    """Who holds a session: which worker, since when, whether it is alive, with which run, and what waits behind it."""

    owner: str
    since: float
    alive: bool
    run_id: str | None
    queue: tuple[str, ...]


class Runner:
    """Carries runs of one application, durably. An async context manager; leaving it drains.

    Use it from one event loop. `run` is the same for scripts without one.
    """

    def __init__(
        self,
        agent: BaseAgent | None = None,
        *,
        app: App | None = None,
        app_name: str | None = None,
        store: Store | None = None,
        artifacts: ArtifactService | None = None,
        plugins: Sequence[Plugin] = (),
        create_sessions: bool = True,
        clock: Clock | None = None,
        ids: IdSource | None = None,
    ) -> None:
        """Make a runner for an app, or for an agent under an app name.

        Args:
            agent: the root agent; instead of `app`.
            app: the application.
            app_name: the name under which sessions are kept; the agent's name if left out.
            store: where sessions are durable; in memory if left out.
            artifacts: where artifacts are kept; in the store if left out.
            plugins: plugins of an agent's app.
            create_sessions: whether a session is created by its first message.
            clock, ids: where time and ids come from; for tests.

        Raises:
            ConfigError: both or neither of `agent` and `app`, or a tree that is put together wrongly.
        """
        require_parts_of_runner(agent, app, store)
        if (agent is None) == (app is None):
            raise ConfigError("Runner: pass either agent= or app=")
        if app is None:
            assert agent is not None
            app = App(app_name or agent.name, agent, plugins=plugins)
        elif app_name is not None or plugins:
            raise ConfigError("Runner: app_name and plugins belong to the App when app= is passed")
        self.app = app
        self.store: Store = MemoryStore() if store is None else store
        clock = clock or SystemClock()
        artifacts = artifacts or StoreArtifacts(self.store)
        self._services = services = Services(app, self.store, clock, ids or SystemIds(), artifacts, Gate(clock))
        self._lanes = lanes = Lanes(services, create_sessions=create_sessions)
        services.children, services.kick = ChildRuns(lanes), lanes.kick
        self._rounds = Rounds(app.name, self.store, clock, lanes.at)
        self._closing: asyncio.Task[None] | None = None
        self._background: Background | None = None

    # --- runs -----------------------------------------------------------------------------------------------------

    def run_async(
        self,
        *,
        user_id: str,
        session_id: str,
        new_message: str | Content | Part | None = None,
        run_config: RunConfig | None = None,
        state_delta: Mapping[str, Json] | None = None,
        run_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> RunStream:
        """Return a cold stream of a run's records: it starts with the first iteration, and leaving it stops the run.

        Args:
            user_id, session_id: the session; created if there is none.
            new_message: the input. Function responses are answers to waiting calls, and the stream goes on with their
                run; None goes on with the run `run_id`.
            run_config: settings of this run.
            state_delta: session state to set together with the input.
            run_id: an id of the caller's choice, unique in the store.
            idempotency_key: a repeated start with the same key and message is the same run, across restarts.

        Iterating raises what `start` raises, and `RunFailedError` behind the last record of a run that failed.
        """
        config = run_config or RunConfig()
        chosen = run_id or self._services.ids.record_id()
        key = self._key(user_id, session_id)
        goes_on = new_message is None or holds_answers(new_message)

        async def start() -> Run:
            return await self._start(
                key, new_message, config, state_delta, run_id if goes_on else chosen, idempotency_key,
                is_new_id=run_id is None,
            )  # fmt: skip

        return RunStream(chosen, start, partial(self._abandon, chosen, key), deltas=config.streaming)

    async def start(
        self,
        *,
        user_id: str,
        session_id: str,
        new_message: str | Content | Part | None = None,
        run_config: RunConfig | None = None,
        state_delta: Mapping[str, Json] | None = None,
        run_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """Start a run and return its handle when the message is durable; its work needs no reader.

        If the session is busy, `RunConfig.busy_policy` decides; the handle is then that of the run which takes the
        message. Arguments as in `run_async`.

        Raises:
            EmptyMessageError, CallInMessageError, NotSerializableError: the message is not acceptable.
            IdempotencyConflictError: the key was used with another message.
            RunIdTakenError: another run has the id.
            SessionBusyError: the session is busy and the policy is ``reject``.
            UnknownSessionError: there is no such session, and the runner does not create any.
            RunnerClosedError, StoreError
        """
        key = self._key(user_id, session_id)
        config = run_config or RunConfig()
        return await self._start(
            key, new_message, config, state_delta, run_id, idempotency_key, is_new_id=run_id is None
        )

    async def _start(
        self,
        key: SessionKey,
        new_message: str | Content | Part | None,
        config: RunConfig,
        state_delta: Mapping[str, Json] | None,
        run_id: str | None,
        idempotency_key: str | None,
        *,
        is_new_id: bool,
    ) -> Run:
        if self._services.closed:
            raise RunnerClosedError
        if new_message is None:
            if run_id is None:
                raise InputError("pass new_message, or the run_id of a run that is to go on")
            return await self.resume(run_id)
        content = checked_message(new_message)
        if holds_answers(content):
            return await self._answer_by_message(key, content, run_id)
        ticket = Ticket(
            run_id or self._services.ids.record_id(), content, config, idempotency_key,
            fingerprint_of(content), recorded_delta(state_delta or {}),
        )  # fmt: skip
        return await begin_run(self._lanes, key, ticket, is_new_id=is_new_id)

    async def attach(self, run_id: str) -> Run:
        """Return a handle of a run that was started before, here or elsewhere, running or ended.

        Raises:
            UnknownRunError: the store has no such run.
        """
        return attach_run(self._lanes, await self._lanes.of_run(run_id), run_id)

    # --- stops ----------------------------------------------------------------------------------------------------

    async def cancel(
        self,
        run_id: str,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
        cause: Cause = "user",
        by: str = "",
        reason: str = "",
        scope: StopScope = "children",
        delivered: int | None = None,
    ) -> StopReport:
        """Stop a run, wherever it is carried, and return what the stop found, when all of it is durable.

        `scope` says what becomes of calls that went into the background: ``turn`` leaves them alone, ``children`` stops
        those of this run, also when the run itself has ended before, ``everything`` those of the whole session.

        `delivered` says how many characters of the run's last text the user has seen or heard, if not all: the model is
        shown that much of it from then on, and told so (F62). It counts once, also when the run has ended before.

        Idempotent. A stop meant for one run never hits another. With `user_id` and `session_id` it may also come
        before the run's start: it is kept, and the run never starts (F165).

        Raises:
            UnknownRunError: the store has no such run, and no session was named.
            InputError: there is no such scope, or `delivered` is no number of characters.
        """
        if user_id is not None and session_id is not None:
            key: SessionKey | None = self._key(user_id, session_id)
        else:
            key = await self.store.find_run(run_id)
        if key is None:
            raise UnknownRunError(run_id)
        return await stop_run(self._lanes, run_id, key, cause, by, reason, scope, delivered)

    async def cancel_call(
        self, run_id: str, call_id: str, *, by: str = "", reason: str = "", cause: Cause = "user"
    ) -> CallSettled | None:
        """Stop one call, wherever it is carried, and let its run go on (F139); also one in the background.

        Return how the call is settled when that is durable; None if it is so slow to stop that nobody knows yet.
        Idempotent: of a call that has ended it returns how.

        Raises:
            UnknownRunError, UnknownCallError
        """
        lane = await self._lanes.of_run(run_id)
        call = lane.log.state.background.get(call_id)
        if call is not None and call.settled is not None and call.settled.child_run:
            await self._services.children.stop(call.settled.child_run, cause, by)
        return await lane.calls.cancel(run_id, call_id, cause, by=by, reason=reason)

    async def detach(self, run_id: str, call_id: str) -> str:
        """Move a running call into the background: it is answered with a handle now, and works on (F138).

        Its outcome is told to the agent when it comes: to the run if it still runs, else in a run of its own. Return
        the handle, which is the call's id: `cancel_call` stops it. Idempotent.

        Raises:
            UnknownRunError, UnknownCallError: there is no such call, or it is not running.
            DetachError: an agent works in it, as a part of its run.
        """
        return await (await self._lanes.of_run(run_id)).calls.detach(run_id, call_id)

    async def answer(
        self,
        run_id: str,
        call_id: str,
        value: Json = None,
        *,
        accept: bool = True,
        args: Mapping[str, Json] | None = None,
        as_result: bool = False,
        by: str = "",
    ) -> Answered:
        """Answer a waiting call, durably; the run goes on when nothing of it waits any more. The first answer wins.

        The same answer again is harmless, from wherever it comes. Return the answer that counts.

        Args:
            run_id, call_id: the call, as `questions` lists it; of a confirmation also ``<call id>:confirmation``. With
                `Question.question_id` in its place, a late repeat cannot answer what the call asks next.
            value: what was asked for, checked against the question's schema. With a yes, something for the tool, which
                finds it in `ctx.confirmation`; it never is the yes or no itself, so a bool and `confirmed` are refused.
            accept: False says no, with `value` as the reason if there is one.
            args: with a yes, the arguments to execute the call with, instead of the model's.
            as_result: take `value` as the tool's result; it is not executed.
            by: who answers; recorded.

        Raises:
            UnknownRunError, UnknownCallError
            InputError: accept=False, args and as_result do not go together.
            AnswerError: see its kinds: NotWaitingError, AnswerConflictError, AnswerExpiredError, AnswerKindError,
                AnswerInvalidError. Nothing was written.
        """
        decision = decision_of(accept=accept, args=args, as_result=as_result)
        lane = await self._lanes.of_run(run_id)
        return await answer_call(self.app, lane, run_id, call_id, value, decision, args, by)

    async def _answer_by_message(self, key: SessionKey, content: Content, run_id: str | None) -> Run:
        """Take a message of function responses as answers; the handle is that of their run, from here on."""
        lane = self._lanes.at(key)
        if lane.live is None:
            await lane.log.refresh()
        position = lane.log.state.last_seq
        found = await answer_by_message(self.app, lane, content, run_id)
        return handle(self._lanes, lane, found, start=position, ticket=lane.ticket_of(found))

    async def resume(self, run_id: str) -> Run:
        """Go on with a run, if there is something to go on with, and return its handle.

        A run whose process died is continued from its log, whatever `on_crash` says, unless it was stopped. A run that
        an operator paused goes on. One that waits for answers goes on only when they have come. A run that has ended,
        or works, is left alone.

        Raises:
            UnknownRunError: there is no such run. No model is asked.
        """
        lane = await self._lanes.of_run(run_id)
        position = lane.log.state.last_seq
        run = lane.log.state.run(run_id)
        if run.operator is not None:
            await lane.calls.answer([Given(run.operator.call.call_id, "approve")])
        if run.is_open and lane.live is None:
            require_tree(self.app, run)
            lane.resume(run_id)
        return handle(self._lanes, lane, run_id, start=position, ticket=lane.ticket_of(run_id))

    async def pause(
        self, run_id: str, *, at: Literal["after_tool", "after_turn"] = "after_tool", by: str = "", reason: str = ""
    ) -> None:
        """Ask a run to pause at its next safe point; `resume` lets it go on. Returns when the request is durable.

        `after_tool`: before its next model call. `after_turn`: before its next agent. A run that gets to its end first
        ends.

        Raises:
            UnknownRunError
        """
        lane = await self._lanes.of_run(run_id)
        record_id, time = self._services.stamp()
        wanted = PauseRequested(id=record_id, time=time, run_id=run_id, at=at, by=by, reason=reason)
        if lane.log.state.run(run_id).is_open:
            await lane.log.append([wanted], token=None)

    async def retry(self, run_id: str, *, note: str = "") -> Run:
        """Try again what a failed run did not get done: a new run, whose agent sees how far that one came and `note`.

        It has the settings of that run, but waits for its turn, and has no deadline that has passed.

        Raises:
            UnknownRunError
            InputError: the run has not failed.
        """
        lane = await self._lanes.of_run(run_id)
        run = lane.log.state.run(run_id)
        if run.ended is None or run.ended.outcome != "failed":
            raise InputError(f"run {run_id} is {run.status}; only a run that has failed can be tried again")
        config = RunConfig.of_settings(run.settings)
        is_past = config.deadline is not None and config.deadline <= self._services.clock.time()
        return await self.start(
            user_id=lane.key.user, session_id=lane.key.session, new_message=note or RETRY_NOTE,
            run_config=replace(config, busy_policy="queue", deadline=None if is_past else config.deadline),
        )  # fmt: skip

    async def questions(self, *, user_id: str, session_id: str) -> list[Question]:
        """Return what calls of a session wait for, and nobody has answered: the oldest first.

        Raises:
            UnknownSessionError
        """
        lane = await self._session(user_id, session_id)
        return open_questions(lane.log.state)

    def concurrency(self) -> list[GateState]:
        """Return which calls have a place among those that run at the same time here, and which wait for one.

        Only what has a limit is listed: of a tool (`max_concurrency`), of the app, of its users.
        """
        return self._services.gate.snapshot()

    # --- sessions -------------------------------------------------------------------------------------------------

    async def create_session(
        self, *, user_id: str, session_id: str | None = None, state: Mapping[str, Json] | None = None
    ) -> SessionInfo:
        """Create a session, with an id of its own if none is given.

        Raises:
            SessionExistsError, SessionErasedError, StoreError
        """
        return await self.store.create_session(self._key(user_id, session_id or self._services.ids.record_id()), state)

    async def get_session(self, *, user_id: str, session_id: str) -> SessionInfo | None:
        """Return a session's row, or None."""
        return await self.store.get_session(self._key(user_id, session_id))

    async def list_sessions(
        self, *, user_id: str | None = None, limit: int = 100, before: float | None = None
    ) -> list[SessionInfo]:
        """Return up to `limit` of the app's sessions, of one user or of all, the most recently updated first.

        `before` continues a listing: pass the `updated` time of the last row.
        """
        return await self.store.list_sessions(self.app.name, user_id, limit=limit, before=before)

    async def erase_session(self, *, user_id: str, session_id: str, by: str, reason: str = "") -> Tombstone:
        """Stop what runs and waits in a session, wherever it is carried; delete its content, and leave a tombstone.

        Idempotent. Who still follows a run of it gets `SessionErasedError`. Cancelling the caller, who may be a tool of
        a run that is stopped for it, does not take it back.

        Raises:
            UnknownSessionError
        """
        key = self._key(user_id, session_id)
        return await self._services.shielded(erase_session(self._lanes, key, by, reason), f"erasure of session {key}")

    async def records(self, *, user_id: str, session_id: str, after: int = 0) -> list[Record]:
        """Return a session's log behind a seq.

        Raises:
            UnknownSessionError
        """
        return await self.store.read(self._key(user_id, session_id), after=after)

    async def state(self, *, user_id: str, session_id: str) -> dict[str, Json]:
        """Return a session's state, the shared ``app:`` and ``user:`` values included.

        Raises:
            UnknownSessionError
        """
        lane = await self._session(user_id, session_id)
        shared = await self.store.shared_state(self.app.name, user_id)
        return {**shared, **lane.log.state.state}

    async def rewind(
        self, *, user_id: str, session_id: str, to: int | None = None, before_run: str | None = None
    ) -> Rewound:
        """Take a session back: what came behind seq `to`, or from a run on, counts no more, and the state is as it was.

        Nothing is deleted, and shared state (``app:``, ``user:``) stays. Waits for the run that runs; `cancel` it first
        to stop and rewind. Paused runs that are taken back end, and their calls in the background are stopped; messages
        that wait for their turn still have it. The record returned lists the effects on the outside world that remain.

        Raises:
            RewindPointError: a run is open at that seq; the error names the nearest points.
            InputError: the run was taken back before.
            UnknownRunError: the session has no such run.
            UnknownSessionError
        """
        lane = await self._session(user_id, session_id)
        job = partial(rewind_session, self._services, lane.log, to=to, before_run=before_run)
        return await lane.exclusively(job)

    async def fork(self, *, user_id: str, session_id: str, at: int, new_session_id: str | None = None) -> SessionInfo:
        """Make a new session with a copy of this one's log up to a seq, and of its artifacts.

        Runs get new ids; what was under way ends as superseded. No end hooks are told: those runs had theirs, or will.
        Shared state is the same for both.

        Raises:
            InputError: there is no such seq.
            SessionExistsError, UnknownSessionError
        """
        lane = await self._session(user_id, session_id)
        key = self._key(user_id, new_session_id or self._services.ids.record_id())
        return await fork_session(self._services, lane.log, key, at=at)

    async def inbox(self, *, user_id: str, session_id: str) -> list[Queued]:
        """Return the messages that wait for their turn, in order. `cancel` with their run id takes one back."""
        lane = await self._session(user_id, session_id)
        return list(lane.log.state.queue.values())

    async def who_holds(self, *, user_id: str, session_id: str) -> Holding | None:
        """Return who holds a session, or None. `attach` with its run id to follow what it does (F166)."""
        lane = self._lanes.at(self._key(user_id, session_id))
        holder = await self.store.holder(lane.key)
        if holder is None:
            return None
        await lane.log.refresh()
        state = lane.log.state
        return Holding(holder.owner, holder.since, holder.alive, state.current, tuple(state.queue))

    # --- recovery and the end -------------------------------------------------------------------------------------

    async def recover(self, *, max_concurrent: int = 100) -> list[str]:
        """Close what dead processes left open, and carry out what waits in inboxes; return the run ids that were found.

        Level-triggered and safe to call at any time, from any number of processes: what a live process holds, or takes
        up meanwhile, is left to it. At most `max_concurrent` sessions are carried at a time; one that fails or hangs
        keeps no other from its turn. Cancelling it takes up nothing more; what was begun goes on with the runner.

        Raises:
            InputError: `max_concurrent` is not a positive number.
            StoreError: the store could not be searched.
        """
        require_count("max_concurrent", max_concurrent)
        return await self._rounds.recover(max_concurrent=max_concurrent)

    async def recover_always(
        self, *, every_seconds: float = 10.0, max_concurrent: int = 100, alarm_after_seconds: float | None = None
    ) -> None:
        """Look for runs of dead processes, and for answers whose time has passed, again and again.

        Ends when it is cancelled, or behind the look at which the runner is closed. Level-triggered, and safe in any
        number of processes. What it finds is carried out in the background, so one long run keeps no other from being
        found, until `max_concurrent` sessions are carried. A store that fails is tried again at the next look.

        With `alarm_after_seconds`, an error is logged for each session that a live process holds and that has recorded
        nothing for so long.

        Raises:
            InputError: `max_concurrent` is not a positive number.
        """
        require_count("max_concurrent", max_concurrent)
        free = asyncio.Semaphore(max_concurrent)
        async with asyncio.TaskGroup() as carrying:
            while not self._services.closed:
                try:
                    found = await self._rounds.unfinished()
                    await self._rounds.look(found, carrying, free, [], alarm_after_seconds=alarm_after_seconds)
                except Exception:  # noqa: BLE001 - an edge: whatever it is, the next look tries again (F112)
                    logger.exception("the store could not be searched for runs of dead processes; trying again")
                await self._services.clock.sleep(every_seconds)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Drain: take no new runs, stop those that run (cause ``shutdown``), write their endings, close the store.

        Messages that still wait stay in the inbox, for the next process. Idempotent: whoever calls it waits for the
        same end, and cancelling one who waits does not keep it from coming.
        """
        if self._closing is None:
            self._services.closed = True
            self._closing = asyncio.create_task(close_all(self._lanes), name="heaveto closing")
        await asyncio.shield(self._closing)

    # --- without an event loop ------------------------------------------------------------------------------------

    def run(
        self,
        *,
        user_id: str,
        session_id: str,
        new_message: str | Content | Part,
        run_config: RunConfig | None = None,
        state_delta: Mapping[str, Json] | None = None,
        idempotency_key: str | None = None,
    ) -> Iterator[StreamItem]:
        """Run without an event loop of one's own, for scripts and notebooks: yields what `run_async` yields.

        Works on a background thread. Leaving the iteration, also by Ctrl-C, stops the run and waits for its ending;
        call `close` at the end.

        Raises:
            ConfigError: called where an event loop is running; use `run_async` there.
        """
        if self._background is None:
            self._background = Background()
        return self._background.iterate(
            lambda: self.run_async(
                user_id=user_id, session_id=session_id, new_message=new_message, run_config=run_config,
                state_delta=state_delta, idempotency_key=idempotency_key,
            )
        )  # fmt: skip

    def close(self) -> None:
        """`aclose` for those who used `run`. Idempotent."""
        if self._background is not None:
            self._background.call(self.aclose)
            self._background.stop()
            self._background = None

    # --- inside ---------------------------------------------------------------------------------------------------

    def _key(self, user_id: str, session_id: str) -> SessionKey:
        for name, value in (("user_id", user_id), ("session_id", session_id)):
            require_id(name, value)
        return SessionKey(self.app.name, user_id, session_id)

    async def _session(self, user_id: str, session_id: str) -> Lane:
        """Return a session's lane, its log read to its end."""
        lane = self._lanes.at(self._key(user_id, session_id))
        await lane.log.refresh()
        return lane

    def _abandon(self, run_id: str, key: SessionKey) -> None:
        """The reader of a cold stream went away: stop its run, in the background."""
        if not self._services.closed:
            stop = stop_run(self._lanes, run_id, key, "disconnect", "caller", "")
            self._services.spawn(stop, f"stop of run {run_id}")
