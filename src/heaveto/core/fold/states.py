"""Where a run and its calls stand, as far as their session's log was read."""

from __future__ import annotations

from dataclasses import dataclass, field

from heaveto.core.fold.branches import calls_around, is_within
from heaveto.core.status import TERMINAL, CallPhase, RunStatus
from heaveto.events.contents import Content, FunctionCall, Json
from heaveto.events.records import (
    AgentCheckpoint,
    Answered,
    CallSettled,
    CancelRequested,
    Limits,
    Message,
    ParentCall,
    PauseRequested,
    Replay,
    RunEnded,
    Trigger,
    Usage,
    WaitingCall,
)


@dataclass(slots=True)
class CallState:
    """Where a call stands.

    Attributes:
        agent: the one that made it, in `branch`.
        seq: where the message stands that holds it.
        attempt: how often it was started; 0 if it never was.
        args: the arguments in force where a callback changed the model's; see `effective_args`.
        owner: the store client in which its last attempt began.
        question: what it waits for, or waited for; asked at `question_seq`. The first `answer` to it counts.
        settled: its last settlement; that of a call in doubt or in the background may be followed by its outcome.
    """

    call: FunctionCall
    run_id: str
    agent: str
    branch: str
    seq: int
    phase: CallPhase = "proposed"
    attempt: int = 0
    idempotency_key: str = ""
    replay: Replay = "never"
    args: dict[str, Json] | None = None
    owner: str = ""
    progress: Json = None
    cancel: CancelRequested | None = None
    question: WaitingCall | None = None
    question_seq: int = 0
    answer: Answered | None = None
    settled: CallSettled | None = None

    @property
    def is_waiting(self) -> bool:
        """It waits for an answer, and nobody has given one, or asked it to stop. One in the background may, too."""
        asks = self.question is not None and self.answer is None and self.cancel is None
        return asks and (self.settled is None or self.is_in_background)

    @property
    def has_started(self) -> bool:
        """Whether it may have had an effect."""
        return self.phase == "started" or self.attempt > 0

    @property
    def is_in_background(self) -> bool:
        """It was answered with a handle, and works on."""
        return self.settled is not None and self.settled.status == "detached"

    @property
    def is_outside(self) -> bool:
        """It works on elsewhere, and nobody here does anything for it: its outcome is answered."""
        return self.is_in_background and self.question is not None and self.question.kind == "long_running"

    @property
    def awaits_late_result(self) -> bool:
        """Settled, but not with its outcome: work may still be going on, and what becomes of it is welcome."""
        return self.settled is not None and self.settled.status in ("unknown", "detached")

    @property
    def effective_args(self) -> dict[str, Json]:
        """The arguments in force: the model's, unless a callback changed them."""
        return self.call.args if self.args is None else self.args


@dataclass(slots=True)
class Thread:
    """An agent's place within a run and branch, since it was last entered.

    Attributes:
        last: its last message, with the calls in `call_ids`.
        transferred: path of the agent that it handed over to since, at `transferred_seq`.
    """

    last: Message | None = None
    call_ids: tuple[str, ...] = ()
    transferred: str | None = None
    transferred_seq: int = 0


@dataclass(slots=True)
class RunState:
    """Where a run stands. What only an open run needs is dropped when it ends.

    Attributes:
        steered_seq: the last text or news that the agent has to hear before it is done.
        signal_seq: the last request or answer that came for one of its calls.
        pause: an operator's wish that has not been obeyed yet.
        operator: the operator's pause that it is in, as a call that waits for a yes.
        was_handed_over: its last pause waited for nothing but another process.
        idle_seconds: how long it has been paused, over all pauses that are over.
        delivered: how many characters of its last text had reached the user when it was stopped; None if all, or nobody
            knows.
        fruitless: how many attempts in a row have brought nothing: no result of a call, no progress value, no
            checkpoint that says something new, no answer of a model that calls nothing. A call that a model makes is
            no fruit yet, nor is it one that the call before took the process with it: else a tool that kills its
            process would do so for as long as the model asks for it (F107).
        children: the runs that ever worked for its calls in the background; they may have begun others, and ended.
    """

    run_id: str
    status: RunStatus = "new"
    input: Content = Content(())
    limits: Limits = Limits()
    trigger: Trigger = "message"
    attempt: int = 0
    agent: str = ""
    tree_hash: str = ""
    parent: ParentCall | None = None
    settings: dict[str, Json] = field(default_factory=dict[str, Json])
    state_delta: dict[str, Json] = field(default_factory=dict[str, Json])
    started_seq: int = 0
    started_time: float = 0.0
    cancel: CancelRequested | None = None
    delivered: int | None = None
    ended: RunEnded | None = None
    llm_calls: int = 0
    usage: Usage = Usage()
    steered_seq: int = 0
    signal_seq: int = 0
    pause: PauseRequested | None = None
    operator: CallState | None = None
    paused_time: float = 0.0
    was_handed_over: bool = False
    idle_seconds: float = 0.0
    fruitless: int = 0
    threads: dict[tuple[str, str], Thread] = field(default_factory=dict[tuple[str, str], Thread])
    checkpoints: dict[tuple[str, str], AgentCheckpoint] = field(default_factory=dict[tuple[str, str], AgentCheckpoint])
    escalated: dict[str, int] = field(default_factory=dict[str, int])
    calls: dict[str, CallState] = field(default_factory=dict[str, CallState])
    children: list[str] = field(default_factory=list[str])

    @property
    def is_open(self) -> bool:
        """Started and not ended."""
        return self.started_seq > 0 and self.ended is None

    @property
    def is_terminal(self) -> bool:
        return self.status in TERMINAL

    @property
    def waiting(self) -> list[CallState]:
        """What holds the run up: calls that wait for answers that nobody has given, and an operator's pause."""
        held = [call for call in self.calls.values() if call.is_waiting and call.phase == "waiting"]
        return [*held, self.operator] if self.operator is not None and self.operator.is_waiting else held

    def waits_in(self, call_id: str) -> bool:
        """Whether such a call was made by an agent that works for this one."""
        return any(call_id in calls_around(call.branch) for call in self.waiting)

    def thread(self, branch: str, agent: str) -> Thread:
        """Return the agent's place, made on first use."""
        key = (branch, agent)
        found = self.threads.get(key)
        if found is None:
            found = self.threads[key] = Thread()
        return found

    def has_escalated(self, branch: str, since: int) -> bool:
        """Whether something in this branch or below it asked to escalate after the seq `since`."""
        return any(seq > since and is_within(where, branch) for where, seq in self.escalated.items())
