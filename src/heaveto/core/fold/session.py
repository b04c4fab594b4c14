"""The fold: what a log means. A cache that is rebuilt from records at any time, and never the truth itself.

`SessionState.apply` takes one record more; it is total (no stored record makes it raise) and deterministic. Its cost
does not depend on the length of the log, except for `Rewound`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from heaveto.core.fold.states import CallState, RunState
from heaveto.core.growth import Growth
from heaveto.core.status import RunStep, advance_call, advance_run
from heaveto.events.contents import Content, FunctionCall, Json, calls_of
from heaveto.events.records import (
    AgentCheckpoint,
    Answered,
    CallProgress,
    CallSettled,
    CallStarted,
    CancelRequested,
    Compacted,
    Message,
    OutcomeKind,
    Paused,
    PauseRequested,
    Queued,
    Record,
    Rewound,
    RunEnded,
    RunStarted,
    StateChanged,
    Transferred,
    WaitingCall,
)

SHARED_PREFIXES = ("app:", "user:")


_OUTCOME_STEPS: dict[OutcomeKind, RunStep] = {
    "completed": "complete",
    "failed": "fail",
    "cancelled": "end_cancelled",
}


class SessionState:
    """A session as its log tells it.

    Attributes:
        records: the log, seq 1 at index 0.
        runs: every run that was ever queued, started or asked to stop.
        state: the session's own state; shared keys are not in it.
        active_agent: path of the agent that takes the next input; empty for the root.
        background: calls that were answered with a handle and work on, by call id.
        queue: the inbox: runs that wait for their turn, in order of arrival.
        paused: runs that wait for answers, and hold nobody up, by run id.
        current: the run that was started, is not paused and has not ended.
        growth: what no summary covers yet.
    """

    __slots__ = ("active_agent", "background", "calls", "current", "growth", "paused", "queue", "records", "runs",
                 "shared", "state")  # fmt: skip

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.runs: dict[str, RunState] = {}
        self.calls: dict[str, CallState] = {}
        self.background: dict[str, CallState] = {}
        self.state: dict[str, Json] = {}
        self.shared: dict[str, Json] = {}
        self.active_agent = ""
        self.queue: dict[str, Queued] = {}
        self.paused: dict[str, RunState] = {}
        self.current: str | None = None
        self.growth = Growth()

    @property
    def last_seq(self) -> int:
        return self.records[-1].seq if self.records else 0

    @property
    def current_run(self) -> RunState | None:
        return self.runs[self.current] if self.current is not None else None

    def run(self, run_id: str) -> RunState:
        """Return a run's state, made on first use."""
        found = self.runs.get(run_id)
        if found is None:
            found = self.runs[run_id] = RunState(run_id)
        return found

    def apply(self, record: Record) -> None:  # noqa: C901, PLR0912 - one for each kind of record
        """Take one record more. Records come in seq order."""
        self.records.append(record)
        self.growth.take(record)
        match record:
            case Message():
                self._message(record)
            case CallStarted():
                self._call_started(record)
            case CallSettled():
                self._call_settled(record)
            case RunStarted():
                self._run_started(record)
            case RunEnded():
                self._run_ended(record)
            case StateChanged():
                merge_state(self.state, self.shared, record.delta)
            case AgentCheckpoint():
                self._checkpoint(record)
            case Transferred():
                self._transferred(record)
            case CallProgress():
                self._progress(record)
            case Queued():
                self._queued(record)
            case CancelRequested():
                self._cancel_requested(record)
            case PauseRequested():
                self._pause_requested(record)
            case Paused():
                self._paused(record)
            case Answered():
                self._answered(record)
            case Rewound():
                self._rewound()
            case Compacted():
                pass
            case _:
                assert_never(record)

    def _message(self, record: Message) -> None:
        run = self.run(record.run_id)
        if record.author == "user":
            if not record.branch:
                run.steered_seq = record.seq
            return
        if record.seen:
            run.llm_calls += 1
        if record.usage is not None:
            run.usage += record.usage
        if run.ended is not None:
            return
        if record.escalate:
            run.escalated[record.branch] = record.seq
        calls = calls_of(record.parts)
        if record.seen and record.interrupted is None and not calls:
            run.fruitless = 0
        thread = run.thread(record.branch, record.author)
        thread.last, thread.transferred = record, None
        thread.call_ids = tuple(call.call_id for call in calls)
        for call in calls:  # an id that was used before is armed again: pairs are by position (F20)
            state = CallState(call, record.run_id, record.author, record.branch, record.seq)
            self.calls[call.call_id] = run.calls[call.call_id] = state

    def _call_started(self, record: CallStarted) -> None:
        call = self.calls.get(record.call_id)
        if call is None or call.phase == "settled":
            return
        call.phase = advance_call(call.phase, "start")
        call.attempt, call.idempotency_key, call.replay = record.attempt, record.idempotency_key, record.replay
        call.args, call.owner = record.args, record.owner
        if call.answer is not None:
            call.question = None  # it was answered, and goes on

    def _call_settled(self, record: CallSettled) -> None:
        """The first settlement wins (F17), then a late outcome; that of a background call may not know that it is."""
        call = self.calls.get(record.call_id)
        if call is None:
            return
        run, was_in_background = self.run(call.run_id), call.is_in_background
        is_outcome = call.awaits_late_result and (record.late or was_in_background)
        if call.phase == "settled" and not is_outcome:
            return
        call.phase = advance_call(call.phase, "settle")
        call.settled = record
        if not call.is_in_background:  # what works on still wants its answer
            call.question = None
        if record.status != "not_started" and record.cause != "crash":
            run.fruitless = 0
        if record.child_run:
            run.children.append(record.child_run)
        if call.is_in_background:
            self.background[record.call_id] = call
        else:
            self.background.pop(record.call_id, None)
        if run.ended is None:
            if record.escalate:
                run.escalated[call.branch] = record.seq
            if record.status == "detached":
                run.signal_seq = record.seq
            elif was_in_background and not call.branch:
                run.steered_seq = record.seq  # the agent shall hear of it before it is done
        elif not call.awaits_late_result:
            del self.calls[record.call_id]

    def _run_started(self, record: RunStarted) -> None:
        run = self.run(record.run_id)
        if run.is_terminal:
            return
        self.queue.pop(record.run_id, None)
        run.status = advance_run(run.status, "start")
        if not run.started_seq:
            run.started_seq, run.started_time = record.seq, record.time
            run.input, run.limits = record.input, record.limits
        elif record.trigger == "recovery":
            run.fruitless += 1
        if self.paused.pop(record.run_id, None) is not None:
            run.idle_seconds += max(0.0, record.time - run.paused_time)
        run.trigger, run.attempt, run.agent = record.trigger, record.attempt, record.agent
        run.settings, run.parent, run.tree_hash = record.settings, record.parent, record.tree_hash
        self.current = record.run_id

    def _run_ended(self, record: RunEnded) -> None:
        run = self.run(record.run_id)
        if run.ended is not None:
            return
        self.queue.pop(record.run_id, None)
        self.paused.pop(record.run_id, None)
        run.status, run.ended = advance_run(run.status, _OUTCOME_STEPS[record.outcome]), record
        if not run.is_terminal:  # an outcome that the table does not allow still ends the run: the log says so
            run.status = record.outcome
        for call_id, call in run.calls.items():
            if not call.awaits_late_result and self.calls.get(call_id) is call:
                del self.calls[call_id]
        run.threads, run.checkpoints, run.escalated, run.calls = {}, {}, {}, {}
        if run.operator is not None:
            self.calls.pop(run.operator.call.call_id, None)
            run.operator = None
        if self.current == record.run_id:
            self.current = None

    def _checkpoint(self, record: AgentCheckpoint) -> None:
        run = self.run(record.run_id)
        if run.ended is not None:
            return
        key = (record.branch, record.agent)
        previous = run.checkpoints.get(key)
        if previous is None or (previous.agent_state, previous.end_of_agent) != (
            record.agent_state,
            record.end_of_agent,
        ):
            run.fruitless = 0
        run.checkpoints[key] = record
        if record.end_of_agent:
            run.threads.pop(key, None)

    def _transferred(self, record: Transferred) -> None:
        if not record.branch:  # what happens in a side branch does not move the conversation
            self.active_agent = record.agent
        run = self.run(record.run_id)
        if run.ended is None and record.author:
            thread = run.thread(record.branch, record.author)
            thread.transferred, thread.transferred_seq = record.agent, record.seq
            # Who takes over begins anew, also one that is still open because it handed over before.
            run.threads.pop((record.branch, record.agent.rpartition("/")[2]), None)

    def _progress(self, record: CallProgress) -> None:
        call = self.calls.get(record.call_id)
        if call is not None:
            call.progress = record.value
            self.run(call.run_id).fruitless = 0

    def _queued(self, record: Queued) -> None:
        run = self.run(record.run_id)
        if run.started_seq or run.is_terminal:
            return
        run.status = advance_run(run.status, "queue")
        run.input = Content(run.input.parts + record.input.parts)
        run.state_delta = {**run.state_delta, **record.state_delta}
        self.queue.setdefault(record.run_id, record)

    def _cancel_requested(self, record: CancelRequested) -> None:
        run = self.run(record.run_id)
        if record.call_id:
            call = self.calls.get(record.call_id)
            if call is not None and call.cancel is None:
                call.cancel, run.signal_seq = record, record.seq
            return
        run.status = advance_run(run.status, "cancel")
        run.delivered = record.delivered if run.delivered is None else run.delivered
        if run.cancel is None and run.ended is None:
            run.cancel = record

    def _paused(self, record: Paused) -> None:
        run = self.run(record.run_id)
        if not record.held and run.is_open:
            run.status, run.paused_time, run.fruitless = advance_run(run.status, "pause"), record.time, 0
            self.paused[run.run_id], run.was_handed_over = run, not record.waiting
            if self.current == run.run_id:
                self.current = None
        for waiting in record.waiting:
            if waiting.kind == "operator":
                self._held_by_operator(run, record, waiting)
                continue
            call = self.calls.get(waiting.call_id)
            if call is None or not (call.phase != "settled" or call.is_in_background):
                continue
            if call.question is None or call.answer is not None:  # the pause of a run lists what was asked before
                call.question, call.question_seq, call.answer = waiting, record.seq, None
            if waiting.kind != "input" or call.phase != "started":  # else its tool holds on in its process
                call.phase = advance_call(call.phase, "wait")

    def _pause_requested(self, record: PauseRequested) -> None:
        run = self.run(record.run_id)
        if run.is_open and run.pause is None and run.operator is None:
            run.pause, run.signal_seq = record, record.seq

    def _held_by_operator(self, run: RunState, record: Paused, waiting: WaitingCall) -> None:
        if run.operator is None and run.ended is None:
            call = FunctionCall(call_id=waiting.call_id, name=waiting.kind)
            run.operator = CallState(
                call, run.run_id, "", "", record.seq, phase="waiting", question=waiting, question_seq=record.seq
            )
            run.pause = None
            self.calls[waiting.call_id] = run.operator

    def _answered(self, record: Answered) -> None:
        """The first answer to a question wins."""
        call = self.calls.get(record.call_id)
        if call is not None and call.question is not None and call.answer is None:
            call.answer = record
            run = self.run(call.run_id)
            run.signal_seq = record.seq
            if run.operator is call:
                run.operator = None
                del self.calls[record.call_id]

    def _rewound(self) -> None:
        """Take the session's own state back. Shared state belongs to others as well and stays."""
        self.state, self.active_agent, self.growth = {}, "", Growth()
        for record in effective(self.records):
            self.growth.take(record)
            if isinstance(record, StateChanged):
                merge_state(self.state, {}, record.delta)
            elif isinstance(record, Transferred) and not record.branch:
                self.active_agent = record.agent


def fold(records: Iterable[Record]) -> SessionState:
    """Return what a log means."""
    state = SessionState()
    for record in records:
        state.apply(record)
    return state


def effective(records: Iterable[Record]) -> list[Record]:
    """Return the records that count: those that a later `Rewound` took back are left out."""
    kept: list[Record] = []
    for record in records:
        if isinstance(record, Rewound):
            while kept and kept[-1].seq > record.to:
                kept.pop()
        kept.append(record)
    return kept


def merge_state(own: dict[str, Json], shared: dict[str, Json], delta: dict[str, Json]) -> None:
    """Apply a delta: shared keys to `shared`, others to `own`; None deletes."""
    for key, value in delta.items():
        target = shared if key.startswith(SHARED_PREFIXES) else own
        if value is None:
            target.pop(key, None)
        else:
            target[key] = value
