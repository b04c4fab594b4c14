"""The log's records: one closed union of frozen facts.

A record is appended once and never changed. `seq` is given by the store; everything else is made by the writer.
"Held" records are appended by the holder of the session's lease; "side" records need no lease and are guarded by
unique keys instead (`Queued`, `CancelRequested`, `Answered`, a user's `Message`, a late `CallSettled`).
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from heaveto.events.contents import Content, Json, Part

Cause: TypeAlias = Literal[
    "user", "deadline", "budget", "guardrail", "shutdown", "superseded", "disconnect", "lease_lost", "crash", "error",
    "timeout", "sibling", "expired",
]  # fmt: skip
"""Why something was stopped. Five are never asked for: recovery writes `crash` when a process is found dead, what was
under way when its run failed was stopped by `error`, a call whose tool's time limit passed by `timeout`, and one that
was stopped because another call of the same step failed by `sibling`, and one whose answer did not come in time by
`expired`."""

CallStatus: TypeAlias = Literal["succeeded", "failed", "denied", "cancelled", "not_started", "unknown", "detached"]
Replay: TypeAlias = Literal["never", "safe", "idempotent", "probe"]
Trigger: TypeAlias = Literal["message", "answer", "recovery", "continuation", "background"]
StopScope: TypeAlias = Literal["turn", "children", "everything"]
"""What a stop of a run reaches. turn: the run alone; calls that went into the background go on. children: those of this
run too. everything: all background work of the session.
"""
OutcomeKind: TypeAlias = Literal["completed", "cancelled", "failed"]


class SessionKey(msgspec.Struct, frozen=True, order=True, gc=False):
    """The address of a session."""

    app: str
    user: str
    session: str

    def __str__(self) -> str:
        return f"{self.app}/{self.user}/{self.session}"


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Tokens and money of one or more model calls.

    `input_tokens` are all of the input: `cached_tokens` of them were read from a cache, `cache_write_tokens` were
    written to one. `estimated` is true where a stream was cut before its provider reported (F126). `cost` is in the
    unit that the model's prices were given in.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float = 0.0
    estimated: bool = False
    cache_write_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.cost + other.cost,
            self.estimated or other.estimated,
            self.cache_write_tokens + other.cache_write_tokens,
        )

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens


class Limits(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The budgets of a run; counted over all its attempts and agents. None means unlimited.

    `seconds` is wall-clock time from the first `RunStarted`; `deadline` is a point in epoch seconds.
    """

    llm_calls: int | None = 500
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None
    deadline: float | None = None
    on_limit: Literal["stop", "fail"] = "fail"


class ErrorInfo(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """An error as data: its class, its message, and whether trying again may help."""

    type: str
    message: str
    retryable: bool = False


class Operation(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One piece of work that a stop found, and what became of it.

    stopped: it ended because of the stop. finished: it ended by itself, its result is kept. still_running: it could
    not be stopped; its late result will be recorded. not_started: it never began, no effect. unknown: its process died.
    """

    kind: Literal["model", "tool", "agent"]
    name: str
    state: Literal["stopped", "finished", "still_running", "not_started", "unknown"]
    call_id: str = ""


class StopReport(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a stop found: the list that a cancelled run owes its user (F168).

    `text_kept` counts the characters of the cut-off answer that are in the log.
    """

    run_id: str
    outcome: OutcomeKind
    cause: Cause | None = None
    by: str = ""
    operations: tuple[Operation, ...] = ()
    text_kept: int = 0
    usage: Usage = Usage()

    @property
    def still_running(self) -> tuple[Operation, ...]:
        """The work that goes on although the run has ended."""
        return tuple(operation for operation in self.operations if operation.state == "still_running")


WaitingKind: TypeAlias = Literal["long_running", "confirmation", "input", "client", "operator"]
"""What a call waits for. long_running: the outcome of work that goes on elsewhere. confirmation: a yes, before it is
executed. input: a value that its tool asks people for. client: the caller, who executes it. operator: someone who lets
a run that was paused by hand go on.
"""


class WaitingCall(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a pause waits for.

    `payload` is for whoever answers, `path` the agents from the root to the one that called, through agents that work
    as tools. `deadline` is in epoch seconds; when it passes, `default` is recorded as the answer: a value, or a denial
    if there is none.
    """

    call_id: str
    kind: WaitingKind
    name: str = ""
    hint: str = ""
    schema: dict[str, Json] | None = None
    args: dict[str, Json] = {}
    deadline: float | None = None
    default: Json = None
    payload: Json = None
    path: str = ""


class ParentCall(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The call of another session's run that a run works for. Its outcome is recorded there when the run has ended."""

    key: SessionKey
    run_id: str
    call_id: str
    name: str


class _Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", gc=False):
    id: str
    time: float
    run_id: str = ""
    seq: int = 0
    v: int = 1
    """The format version of this record's type. Absent in the encoded form means 1."""


class Queued(_Record, frozen=True, kw_only=True, tag=True):
    """A message arrived while the session was busy: a durable entry of the inbox (side).

    `run_id` is the run that it will become. A second one with the same run id merges into it. `settings` are those of
    its run that differ from the defaults, for whoever carries it out. `trigger` is ``background`` where no one sent it,
    but a call in the background ended and the agent shall hear of it. `agent` and `parent` are as in `RunStarted`,
    where the message does not go to the session's active agent.
    """

    input: Content
    owner: str = ""
    settings: dict[str, Json] = {}
    state_delta: dict[str, Json] = {}
    trigger: Trigger = "message"
    agent: str = ""
    parent: ParentCall | None = None


class CancelRequested(_Record, frozen=True, kw_only=True, tag=True):
    """Someone wants the run to stop: durable before it is delivered, level-triggered, final (side; F107, F151).

    With `call_id` it is that one call that shall stop, and the run goes on (F139). `delivered` says how many characters
    of the last text of the run had reached the user (F62); where the run has ended, it says nothing but that.
    """

    cause: Cause
    by: str = ""
    reason: str = ""
    call_id: str = ""
    scope: StopScope = "children"
    delivered: int | None = None


class PauseRequested(_Record, frozen=True, kw_only=True, tag=True):
    """An operator wants the run to pause at its next safe point, until someone lets it go on (side).

    after_tool: before its next model call. after_turn: before its next agent.
    """

    at: Literal["after_tool", "after_turn"] = "after_tool"
    by: str = ""
    reason: str = ""


class RunStarted(_Record, frozen=True, kw_only=True, tag=True):
    """A run, or a further attempt of it, began. `agent` is the path of the agent that takes the input.

    `settings` are those of the run that differ from the defaults, for whoever continues it. `parent` is the call that
    the run works for, if it does.
    """

    input: Content
    trigger: Trigger = "message"
    attempt: int = 1
    agent: str = ""
    tree_hash: str = ""
    limits: Limits = Limits()
    settings: dict[str, Json] = {}
    parent: ParentCall | None = None


class Message(_Record, frozen=True, kw_only=True, tag=True):
    """Something was said: by an agent's model, by a custom agent, or by the user to a running run (side).

    `author` is an agent's name or ``user``. `seen` is the last seq that the model request was computed from: what came
    between it and this record was not known to the model when it said this; 0 means everything was.
    `interrupted` tells why the message was cut off; its text is what had been received.
    """

    author: str
    parts: tuple[Part, ...]
    branch: str = ""
    finish_reason: str = ""
    usage: Usage | None = None
    provider: str = ""
    model: str = ""
    seen: int = 0
    interrupted: Cause | None = None
    escalate: bool = False
    data: dict[str, Json] | None = None


class CallStarted(_Record, frozen=True, kw_only=True, tag=True):
    """A call is about to have its first side effect: the commit point (P5).

    `args` are the arguments in force where a callback changed the model's. `previous` tells how the attempt before
    ended. `owner` names the store client, and so the process, in which the attempt works.
    """

    call_id: str
    name: str = ""
    attempt: int = 1
    idempotency_key: str = ""
    replay: Replay = "never"
    args: dict[str, Json] | None = None
    previous: ErrorInfo | None = None
    owner: str = ""


class CallSettled(_Record, frozen=True, kw_only=True, tag=True):
    """The one final fact about a call; or, with `late`, the real outcome of one that was unknown or in the background.

    `response` is what the tool returned, or ``{"error": …}``; of a call that was stopped, what it had put out. `cause`
    says why it was stopped or never started. A `detached` call goes on in the background, and its outcome comes late;
    `child_run` is the run that it goes on as, if it does.
    `end_turn` ends the agent's turn without another model call; `escalate` ends the enclosing loop.
    """

    call_id: str
    status: CallStatus
    name: str = ""
    response: dict[str, Json] | None = None
    cause: Cause | None = None
    late: bool = False
    end_turn: bool = False
    escalate: bool = False
    child_run: str = ""


class CallProgress(_Record, frozen=True, kw_only=True, tag=True):
    """A durable progress value of a long tool; an attempt that continues it gets the last one back."""

    call_id: str
    value: Json


class Paused(_Record, frozen=True, kw_only=True, tag=True):
    """The run stopped on purpose and waits for outside answers.

    With `held`, only these calls wait: their tools hold on in their process, and the run goes on around them.
    """

    waiting: tuple[WaitingCall, ...]
    held: bool = False


class Answered(_Record, frozen=True, kw_only=True, tag=True):
    """An answer to a waiting call arrived (side). The first one wins.

    approve: execute it, with `args` where they were edited. deny: do not, `value` says why. value: what was asked for.
    result: taken as what the tool returned, which is not executed. `expired` marks the default that was recorded
    because nobody had answered in time.
    """

    call_id: str
    decision: Literal["approve", "deny", "value", "result"]
    value: Json = None
    args: dict[str, Json] | None = None
    by: str = ""
    expired: bool = False


class StateChanged(_Record, frozen=True, kw_only=True, tag=True):
    """A delta of session state. Keys with ``app:`` and ``user:`` go to the shared states too; a None value deletes."""

    delta: dict[str, Json]
    author: str = ""


class AgentCheckpoint(_Record, frozen=True, kw_only=True, tag=True):
    """A workflow agent's progress, or the end of an agent (ADK's `agent_state` and `end_of_agent`)."""

    agent: str
    branch: str = ""
    agent_state: dict[str, Json] | None = None
    end_of_agent: bool = False


class Transferred(_Record, frozen=True, kw_only=True, tag=True):
    """The session's active agent, stored and never guessed (F32). `agent` is a path from the root, such as ``root/x``.

    `author` is the agent that handed over.
    """

    agent: str
    author: str = ""
    branch: str = ""


class Compacted(_Record, frozen=True, kw_only=True, tag=True):
    """A summary stands in for the records up to and including `upto` in projections. The records stay.

    `usage` is what the summary cost; it belongs to no run.
    """

    upto: int
    summary: Content
    usage: Usage | None = None


class Rewound(_Record, frozen=True, kw_only=True, tag=True):
    """Records after `to` no longer count. `not_undone` lists the effects on the outside world that remain."""

    to: int
    not_undone: tuple[str, ...] = ()


class RunEnded(_Record, frozen=True, kw_only=True, tag=True):
    """The run's one ending (P7). Nothing of the run follows it but late results."""

    outcome: OutcomeKind
    cause: Cause | None = None
    by: str = ""
    reason: str = ""
    error: ErrorInfo | None = None
    report: StopReport | None = None
    usage: Usage = Usage()
    llm_calls: int = 0


Record: TypeAlias = (
    Queued
    | CancelRequested
    | PauseRequested
    | RunStarted
    | Message
    | CallStarted
    | CallSettled
    | CallProgress
    | Paused
    | Answered
    | StateChanged
    | AgentCheckpoint
    | Transferred
    | Compacted
    | Rewound
    | RunEnded
)


class Delta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag=True, gc=False):
    """A piece of a message that is still being streamed, or of a running call's output. Never stored as such.

    `message_id` is the id that the final `Message` will have, which replaces all its deltas. A piece of ``output`` has
    the `call_id` of its call instead, and is replaced by its settlement.
    """

    run_id: str
    message_id: str
    author: str
    kind: Literal["text", "thought", "args", "output"]
    text: str
    branch: str = ""
    index: int = 0
    """For arguments: the position of the call within the message."""
    call_id: str = ""


class Draft(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What was received so far of a message that is being streamed: saved so that kill -9 loses little of it.

    Replaced by the final `Message` of the same id. Calls in a draft are complete ones only. With `call_id` it is not a
    message, but what a running call has put out.
    """

    message_id: str
    run_id: str
    author: str
    parts: tuple[Part, ...]
    branch: str = ""
    provider: str = ""
    model: str = ""
    seen: int = 0
    usage: Usage | None = None
    call_id: str = ""
