"""All errors of the package.

    HeavetoError
    ├── InputError              the caller's value is not acceptable; nothing was written
    ├── ConfigError             the program is put together wrongly
    ├── NotFoundError           what was named does not exist
    ├── LimitExceededError      a budget of a run is used up
    ├── AnswerError             an answer to a waiting call is not acceptable
    ├── InDoubtError            it is not known whether a call took effect
    ├── StoreError              a store could not do what it was asked
    │   ├── StoreOpenError      it cannot be opened at all
    │   └── LeaseError          somebody else may write the session
    └── and those of runs, models, tools and toolsets, which stand alone

    RunCancelled, CallWaits (BaseException): signals that travel through user code, which must let them pass.

Whether trying again may help is data: `retryable`. `code` is stable and made for machines.
"""

from __future__ import annotations

from reprlib import repr as short_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from heaveto.events.records import Answered, Cause, ErrorInfo, SessionKey, StopReport, WaitingCall
    from heaveto.tools.command.result import CommandResult


def _meant(name: str, known: Iterable[str], suffix: str = "") -> str:
    from difflib import get_close_matches  # only errors need it, and it takes time to import

    near = get_close_matches(name.lower(), known, n=1)
    return f" (did you mean {near[0] + suffix!r}?)" if near else ""


class HeavetoError(Exception):
    """Base of every error that this package raises."""

    retryable: bool = False

    @property
    def code(self) -> str:
        """A stable name for machines: the class name."""
        return type(self).__name__


class RunCancelled(BaseException):
    """The run that this code works for was stopped.

    Derives from BaseException, like asyncio.CancelledError, so that ``except Exception`` in a tool cannot absorb it.
    Clean up and let it pass.
    """

    def __init__(self, run_id: str, cause: Cause) -> None:
        super().__init__(f"run {run_id} was stopped: {cause}")
        self.run_id, self.cause = run_id, cause


class CallWaits(BaseException):
    """A call ends here for now: calls of an agent within it wait for answers, and it goes on when they have come.

    Derives from BaseException, so that ``except Exception`` cannot absorb it. Clean up and let it pass.
    """


# --- the caller's input -------------------------------------------------------------------------------------------


class InputError(HeavetoError):
    """A value that the caller passed is not acceptable. Nothing was written. Correct the value and call again."""


class RewindPointError(InputError):
    """A session cannot be taken back to this seq: a run is open there, or it is not there. The message names others."""

    def __init__(self, to: int, before: int, behind: int | None) -> None:
        others = f"point is {before}" if behind is None else f"points are {before} and {behind}"
        super().__init__(f"cannot go back to seq {to}: it has to exist, with no run open there; the nearest {others}")
        self.to, self.before, self.behind = to, before, behind


class EmptyMessageError(InputError):
    """The new message has no content. Pass text or at least one part."""

    def __init__(self) -> None:
        super().__init__("new_message is empty: pass some text or at least one part with content")


class CallInMessageError(InputError):
    """The new message holds a function call, which only a model may make. Pass text, or an answer to a waiting call."""

    def __init__(self, name: str) -> None:
        super().__init__(f"new_message holds a function call ({name!r}): only a model may call; pass text instead")
        self.name = name


class InvalidHistoryError(InputError):
    """A history to be repaired has not the shape of its format. The message names what stands where.

    Check that the format is the right one: a repair mends conversations, it does not guess what an object means.
    `index` is that of the message, None if the history itself is meant.
    """

    def __init__(self, index: int | None, problem: str) -> None:
        super().__init__(f"{'history' if index is None else f'message {index}'}: {problem}")
        self.index, self.problem = index, problem


class ArtifactNameError(InputError):
    """An artifact cannot have this name. Choose a relative path without ``..`` and without control characters."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"artifact name {short_repr(name)}: {problem}")
        self.name, self.problem = name, problem


class NotSerializableError(InputError):
    """A value cannot be stored as JSON and read back the same. Pass None, bool, int, finite float, str, list or dict.

    `path` leads to the value, such as ``CallSettled.response['rows'][3]``.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path, self.problem = path, problem


class IdempotencyConflictError(InputError):
    """The idempotency key was used before with another message. Use a new key for a new message."""

    def __init__(self, idempotency_key: str, run_id: str) -> None:
        super().__init__(
            f"idempotency key {idempotency_key!r} belongs to run {run_id}, which got another message; use a new key"
        )
        self.idempotency_key, self.run_id = idempotency_key, run_id


class RunIdTakenError(InputError):
    """The run id that was chosen for a new run is that of another one. Choose a new id, or attach to that run.

    To make a start repeatable, use an idempotency key.
    """

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run id {run_id!r} is taken; choose another one, or use attach to follow that run")
        self.run_id = run_id


# --- configuration ------------------------------------------------------------------------------------------------


class ConfigError(HeavetoError):
    """The program is put together wrongly. Correct the code; trying again does not help."""


class DuplicateNameError(ConfigError):
    """Two things of one kind have the same name, so that a record could not tell which is meant. Rename one."""

    def __init__(self, kind: str, name: str, where: str) -> None:
        super().__init__(f"two {kind}s named {name!r} in {where}; names must be unique, rename one of them")
        self.kind, self.name, self.where = kind, name, where


class ToolDefinitionError(ConfigError):
    """A function cannot be used as a tool as it is written. The message says what to change."""

    def __init__(self, tool: str, problem: str) -> None:
        super().__init__(f"tool {tool!r}: {problem}")
        self.tool, self.problem = tool, problem


class CallbackAnswerError(ConfigError):
    """A callback returned something that its place cannot take. Return what the message names, or None."""

    def __init__(self, point: str, callback: str, answer: object, takes: str) -> None:
        super().__init__(f"callback {callback} returned {short_repr(answer)}; {point} takes {takes}, or None")
        self.point, self.callback, self.answer = point, callback, answer


class LoopStalledError(ConfigError):
    """A loop agent without `max_iterations` did nothing in a round, so that it would go round for ever.

    Let one of its agents say something, set state or escalate; or give the loop a bound.
    """

    def __init__(self, agent: str) -> None:
        super().__init__(
            f"loop agent {agent!r}: nothing was said or set in a whole round, and nothing bounds the loop; "
            "set max_iterations, or let an agent escalate"
        )
        self.agent = agent


class WrongLoopError(ConfigError):
    """A store is used from a second event loop while the first one runs. Open one store per event loop."""

    def __init__(self, where: str) -> None:
        super().__init__(f"store {where} belongs to another event loop, which is running; open a store of its own")
        self.where = where


class UnknownFormatError(ConfigError):
    """No format of a provider has this name. Use one of those that the message lists."""

    def __init__(self, name: object, known: Iterable[str]) -> None:
        self.name, self.known = name, tuple(sorted(known))
        near = _meant(str(name).partition(":")[0], self.known)
        super().__init__(f"unknown format {short_repr(name)}{near}; known are {', '.join(self.known)}")


class UnknownConnectorError(ConfigError):
    """A model's name does not begin with the name of a connector and a colon. `known` lists the connectors."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        there_are = ", ".join(f"{connector}:…" for connector in known)
        near = _meant(name.replace("/", ":").partition(":")[0], known, suffix=":…")
        super().__init__(f"model {name!r} names no connector{near}; write one of {there_are}, or pass a model")
        self.name, self.known = name, known


class MissingExtraError(ConfigError):
    """An optional dependency is not installed. Install the extra that the message names."""

    def __init__(self, extra: str, needed_for: str) -> None:
        super().__init__(f"{needed_for} needs an optional dependency: pip install 'heaveto[{extra}]'")
        self.extra, self.needed_for = extra, needed_for


# --- things that are not there ------------------------------------------------------------------------------------


class NotFoundError(HeavetoError):
    """What was named does not exist. Nothing was written."""


class UnknownSessionError(NotFoundError):
    """The session does not exist, and creating it on first use is switched off. Create it first."""

    def __init__(self, key: SessionKey) -> None:
        super().__init__(f"session {key} does not exist; create it with create_session, or use create_sessions=True")
        self.key = key


class UnknownRunError(NotFoundError):
    """No run has this id in this store. Check the id; a queued or started run is always found."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"no run {run_id!r} in this store")
        self.run_id = run_id


class UnknownCallError(NotFoundError):
    """The run has no such call, or it is settled for good. Check the id; the message says which are open.

    `run_id` is empty where the whole session was looked through.
    """

    def __init__(self, run_id: str, call_id: str, known: tuple[str, ...]) -> None:
        open_calls = ", ".join(known) or "none"
        where = f"run {run_id}" if run_id else "the session"
        super().__init__(f"{where} has no open call {call_id!r}; its open calls: {open_calls}")
        self.run_id, self.call_id, self.known = run_id, call_id, known


# --- runs ---------------------------------------------------------------------------------------------------------


class AgentTreeChangedError(HeavetoError):
    """A run cannot go on: an agent or a tool that it needs is gone. `missing` names them.

    Bring them back under their names, or set ``on_tree_change="close"``, which tells the model instead.
    """

    def __init__(self, run_id: str, missing: tuple[str, ...]) -> None:
        super().__init__(f"run {run_id} cannot go on: {', '.join(missing)} is not there any more")
        self.run_id, self.missing = run_id, missing


class NotResumableError(HeavetoError):
    """A run would have to wait for answers, and its app is not resumable. See `ResumabilityConfig`."""

    def __init__(self, run_id: str, calls: tuple[str, ...]) -> None:
        super().__init__(f"run {run_id} cannot wait for answers to {', '.join(calls)}: its app is not resumable")
        self.run_id, self.calls = run_id, calls


class SessionBusyError(HeavetoError):
    """The session is busy and the busy policy is ``reject``. Nothing was written. Wait, or use another policy."""

    retryable = True

    def __init__(self, key: SessionKey, run_id: str | None) -> None:
        running = f"run {run_id}" if run_id else "another run"
        super().__init__(f"session {key} is busy with {running}")
        self.key, self.run_id = key, run_id


class DetachError(HeavetoError):
    """The call cannot go into the background: an agent works in it as a part of its run. Nothing was written.

    Use ``AgentTool(agent, background=True)``, whose agent has a run of its own.
    """

    def __init__(self, call_id: str) -> None:
        super().__init__(
            f"call {call_id!r} cannot go into the background: an agent works in it as a part of this run; "
            "use AgentTool(agent, background=True)"
        )
        self.call_id = call_id


class SessionWaitingError(HeavetoError):
    """Runs of the session wait for answers, and ``on_text="reject"``. Nothing was written. Answer, or change that."""

    def __init__(self, key: SessionKey, run_ids: tuple[str, ...]) -> None:
        super().__init__(f"session {key} waits for answers, in run {', '.join(run_ids)}")
        self.key, self.run_ids = key, run_ids


class RunPausedError(HeavetoError):
    """The result of a run was asked for that waits for answers. `waiting` lists them; `Runner.answer` gives one."""

    def __init__(self, run_id: str, waiting: tuple[WaitingCall, ...]) -> None:
        calls = ", ".join(f"{call.name} ({call.call_id})" for call in waiting)
        super().__init__(f"run {run_id} waits for answers: {calls}")
        self.run_id, self.waiting = run_id, waiting


class RunnerClosedError(HeavetoError):
    """The runner is closing or closed and takes no new runs. Use another runner."""

    def __init__(self) -> None:
        super().__init__("the runner is closed and takes no new runs")


class RunFailedError(HeavetoError):
    """A run ended as failed. `error` says with what; where it failed in this process, `__cause__` is the original."""

    def __init__(self, run_id: str, error: ErrorInfo) -> None:
        super().__init__(f"run {run_id} failed: {error.type}: {error.message}")
        self.run_id, self.error = run_id, error
        self.retryable = error.retryable


class RunStoppedError(HeavetoError):
    """A run whose result was asked for was stopped. `report` says what the stop found; what was said is in its log."""

    def __init__(self, run_id: str, report: StopReport) -> None:
        by = f" by {report.by}" if report.by else ""
        super().__init__(f"run {run_id} was stopped{by}: {report.cause}")
        self.run_id, self.report = run_id, report


class LimitExceededError(HeavetoError):
    """A budget of the run is used up. Raise the limit, or set ``on_limit="stop"`` to end such runs quietly."""

    def __init__(self, what: str, limit: float) -> None:
        super().__init__(f"the run's limit of {limit:g} {what} is used up")
        self.what, self.limit = what, limit


class LlmCallsLimitExceededError(LimitExceededError):
    """The run has made as many model calls as `max_llm_calls` allows."""

    def __init__(self, limit: int) -> None:
        super().__init__("model calls", limit)


# --- answers ------------------------------------------------------------------------------------------------------


class AnswerError(HeavetoError):
    """Base of errors about answers to waiting calls. Nothing was written."""


class NotWaitingError(AnswerError):
    """The call asks nothing, or does not any more. The message says where the call stands."""

    def __init__(self, call_id: str, stands: str) -> None:
        super().__init__(f"call {call_id!r} waits for no answer: {stands}")
        self.call_id, self.stands = call_id, stands


class AnswerConflictError(AnswerError):
    """Another answer came first. `first` is the answer that counts."""

    def __init__(self, call_id: str, first: Answered) -> None:
        by = f" by {first.by}" if first.by else ""
        value = "" if first.value is None else f" {first.value!r}"
        args = "" if first.args is None else f" with the arguments {first.args!r}"
        super().__init__(f"call {call_id!r} was answered before{by}: {first.decision}{value}{args}")
        self.call_id, self.first = call_id, first


class AnswerExpiredError(AnswerError):
    """The answer came after its deadline, and the default counts. Nothing can be done for this call."""

    def __init__(self, call_id: str, deadline: float) -> None:
        super().__init__(f"call {call_id!r} was to be answered by {deadline:.0f} (epoch seconds)")
        self.call_id, self.deadline = call_id, deadline


_WANTED = {
    "confirmation": 'pass accept=True or False, or {"confirmed": true} or {"confirmed": false} in a message',
    "operator": "let the run go on with Runner.resume, or cancel it",
}


class AnswerKindError(AnswerError):
    """The answer is of another kind than the question, such as a value where a yes or no is wanted."""

    def __init__(self, call_id: str, decision: str, kind: str) -> None:
        wanted = _WANTED.get(kind, "pass the value that it asks for")
        super().__init__(f"call {call_id!r} waits for {kind!r}, which {decision!r} does not answer: {wanted}")
        self.call_id, self.decision, self.kind = call_id, decision, kind


class ContradictingAnswersError(AnswerError):
    """Two answers at once say different things about one call. All were refused; send one."""

    def __init__(self, call_id: str) -> None:
        super().__init__(f"call {call_id!r} is answered twice, and differently")
        self.call_id = call_id


class MixedAnswerError(AnswerError):
    """A message holds answers and something else, or answers of several runs. Send them one by one; see the message."""


class AnswerInvalidError(AnswerError):
    """The answer does not fit the schema that the call asked for. The message says where."""

    def __init__(self, call_id: str, problem: str) -> None:
        super().__init__(f"the answer to call {call_id!r} does not fit: {problem}")
        self.call_id, self.problem = call_id, problem


# --- models and tools ---------------------------------------------------------------------------------------------


class ModelError(HeavetoError):
    """A model request failed. `status` is the HTTP status if any, `retry_after_seconds` the provider's wish."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retryable: bool = False,
        retry_after_seconds: float | None = None,
        body: Any = None,
    ) -> None:
        super().__init__(message)
        self.status, self.retry_after_seconds, self.body = status, retry_after_seconds, body
        self.retryable = retryable


class ToolFatalError(HeavetoError):
    """Raise this in a tool to fail the whole run instead of telling the model about the error."""


class ToolTimeoutError(HeavetoError, TimeoutError):
    """An attempt of a call took longer than its tool's `timeout_seconds`. Give it more, or make it quicker."""

    retryable = True

    def __init__(self, name: str, seconds: float) -> None:
        super().__init__(f"tool {name!r} took longer than its limit of {seconds:g} seconds")
        self.name, self.seconds = name, seconds


class InDoubtError(HeavetoError):
    """Raise this in a tool that cannot tell whether its effect took place, such as after a lost connection.

    The call is settled as unknown, the message is told to the model, and nothing repeats the call but a retry that its
    tool allows. Raised because of a stop, it says that the stop may not have reached what does the work.

    `outcome`, if there is one, is called and awaited behind the scenes: what it returns is recorded as the late result.
    """

    def __init__(self, message: str, *, outcome: Callable[[], Awaitable[Any]] | None = None) -> None:
        super().__init__(message)
        self.outcome = outcome


class WorkerDiedError(InDoubtError):
    """The process that executed a call has died by itself. What the function had done until then is not known."""

    def __init__(self, how: str) -> None:
        super().__init__(f"the worker process died ({how})")
        self.how = how


class NotTransportableError(HeavetoError):
    """A value cannot be handed to, or from, a worker process. Pass plain data: numbers, texts, lists, dataclasses."""

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(what, problem)
        self.what, self.problem = what, problem

    def __str__(self) -> str:
        return f"{self.what} cannot pass between processes: {self.problem}"


class RemoteError(HeavetoError):
    """Base of what stands for an error of a worker that cannot be made again here; it has the name of its type."""


class CommandTimeoutError(HeavetoError, TimeoutError):
    """A command took longer than its `timeout_seconds`, and was ended. `result` has what it put out until then."""

    retryable = True

    def __init__(self, seconds: float, result: CommandResult) -> None:
        super().__init__(f"the command took longer than its limit of {seconds:g} seconds and was ended")
        self.seconds, self.result = seconds, result


class ToolsetError(HeavetoError):
    """A toolset cannot be used: its server cannot be reached, or refused. The message says which and why."""

    retryable = True

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"toolset {name}: {problem}")
        self.name, self.problem = name, problem


class ToolArgumentsError(HeavetoError):
    """The model's arguments do not fit the tool's schema. The message is shown to the model, which may correct them."""


# --- stores -------------------------------------------------------------------------------------------------------


class StoreError(HeavetoError):
    """A store could not do what it was asked. Nothing was written."""


class StoreOpenError(StoreError):
    """The store cannot be opened or written at this place. Check the path and its permissions."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"store {where}: {problem}")
        self.where, self.problem = where, problem


class StoreCorruptError(StoreOpenError):
    """The file is damaged or not a heaveto store. It was not touched. Restore a backup, or run ``heaveto doctor``."""


class StoreTooNewError(StoreOpenError):
    """The store was written by a newer version of heaveto. It was not touched. Upgrade heaveto."""


class StoreFullError(StoreError):
    """There is no space left where the store writes. Free some; what was confirmed before is intact."""

    retryable = True


class StoreBusyError(StoreError):
    """Another process kept the store locked for longer than the busy timeout. Try again, or find out who does."""

    retryable = True

    def __init__(self, where: str) -> None:
        super().__init__(f"store {where}: locked by another process for longer than the busy timeout")
        self.where = where


class RecordFormatError(StoreError):
    """A stored record cannot be read by this version: unknown type, newer format, or malformed. Upgrade heaveto."""

    def __init__(self, record_type: str, problem: str) -> None:
        super().__init__(f"record of type {record_type!r}: {problem}")
        self.record_type, self.problem = record_type, problem


class DuplicateRecordError(StoreError):
    """An append holds an id that the session has already, or holds it twice, and is not a repeat. Use new ids."""

    def __init__(self, key: SessionKey, record_id: str) -> None:
        super().__init__(f"session {key}: record id {record_id!r} is there already, in another append")
        self.key, self.record_id = key, record_id


class StoreClosedError(StoreError):
    """The store was closed before this call. A runner closes its store when it ends: open one for each runner."""

    def __init__(self) -> None:
        super().__init__("the store is closed; a runner closes its store when it ends, so open another for the next")


class SessionExistsError(StoreError):
    """A session with this key exists already. Use it, or choose another session id."""

    def __init__(self, key: SessionKey) -> None:
        super().__init__(f"session {key} exists already")
        self.key = key


class SessionErasedError(StoreError):
    """The session was erased; only its tombstone is left. Use another session id."""

    def __init__(self, key: SessionKey) -> None:
        super().__init__(f"session {key} was erased")
        self.key = key


class LogMovedError(StoreError):
    """A conditional append came too late: others appended since. Nothing was written. Read on, decide again."""

    retryable = True

    def __init__(self, key: SessionKey, *, expected: int, current: int) -> None:
        super().__init__(f"session {key}: expected last seq {expected}, but it is {current}")
        self.key, self.expected, self.current = key, expected, current


class GuardTakenError(StoreError):
    """A unique key of the session was taken by an earlier append. Nothing was written; `value` is the first one's."""

    def __init__(self, key: SessionKey, guard: str, value: str) -> None:
        super().__init__(f"session {key}: {guard!r} was taken before")
        self.key, self.guard, self.value = key, guard, value


class LeaseError(StoreError):
    """Base of errors about who may write a session."""


class LeaseHeldError(LeaseError):
    """Someone who is alive holds the session. Wait for its lease to be released or to expire."""

    retryable = True

    def __init__(self, key: SessionKey, *, owner: str, since: float) -> None:
        super().__init__(f"session {key} is held by {owner}")
        self.key, self.owner, self.since = key, owner, since


class StaleLeaseError(LeaseError):
    """A write carried a fencing token older than the session's current one.

    Another worker has taken the session over. Drop the run: the new holder will finish it.
    """

    def __init__(self, key: SessionKey, *, held: int, current: int) -> None:
        super().__init__(f"session {key}: token {held} was superseded by {current}")
        self.key, self.held, self.current = key, held, current
