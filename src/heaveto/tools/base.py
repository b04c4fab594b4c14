"""The tool interface, and what a tool may ask of the run that it works for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from heaveto.core.request import ToolDeclaration
from heaveto.errors import RunCancelled
from heaveto.events.contents import ArtifactInfo, Blob, Json
from heaveto.events.records import Cause, Replay, SessionKey
from heaveto.tools.retry import Retry

OnCancel: TypeAlias = Literal["cancel", "abandon", "finish"]
"""What a stop does to a running call of this tool.

cancel: interrupt it and wait up to the grace. abandon: do not wait, it becomes a straggler at once.
finish: do not interrupt, wait up to the grace.
"""


@dataclass(frozen=True, slots=True)
class Reply:
    """What people answered to a question that a call asked. `by` names who, as the answering side gave it."""

    accepted: bool
    value: Json = None
    by: str = ""


@dataclass(frozen=True, slots=True)
class Hold:
    """What has to come from outside before a call is executed, or instead of that.

    Attributes:
        kind: ``confirmation``: a yes. ``input``: a value, which is the result. ``client``: the result, from the caller
            who executes the call.
        hint: for whoever answers.
        schema: the JSON schema of the value.
        payload: more for whoever answers.
        within_seconds: how long to wait for the answer.
        default: the value that is taken when that time has passed; None denies.
    """

    kind: Literal["confirmation", "input", "client"]
    hint: str = ""
    schema: dict[str, Json] | None = None
    payload: Json = None
    within_seconds: float | None = None
    default: Json = None


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The yes that a call got: who gave it, and what came with it."""

    by: str = ""
    payload: Json = None


class CallHost(Protocol):
    """The run's side of a `ToolContext`."""

    @property
    def cancelled(self) -> Cause | None: ...
    def on_cancel(self, hook: Callable[[], None]) -> None: ...
    async def progress(self, value: Json) -> None: ...
    def progress_from_thread(self, value: Json) -> None: ...
    def output(self, piece: Json) -> None: ...
    async def ask(self, hint: str, schema: dict[str, Json] | None) -> Reply: ...
    async def detach(self, response: dict[str, Json] | None) -> None: ...
    def request_confirmation(self, hint: str, payload: Json, within_seconds: float | None) -> None: ...
    async def save_artifact(self, name: str, content: Blob) -> int: ...
    async def load_artifact(self, name: str, version: int | None) -> Blob | None: ...
    async def list_artifacts(self) -> list[ArtifactInfo]: ...
    async def cancel_run(self, by: str, reason: str) -> None: ...
    async def run_agent(self, agent: Any, task: str) -> str: ...
    async def run_in_background(self, agent: Any, task: str) -> None: ...


class ToolContext:
    """What a tool knows and may do. Bound to a parameter with this annotation, or named `tool_context` or `ctx`.

    Attributes:
        call_id: the call's id, unique in the session. `function_call_id` is ADK's name for it.
        idempotency_key: stable over attempts, retries, resumes and machines; hand it to the service that you call.
        attempt: 1, or more if the call is executed again.
        confirmation: the yes that the call got, if it needed one.
        state: the session's state; what the tool sets is recorded together with its result.
        agent: the name of the agent whose model made the call.
        last_progress: the last durable progress value of an earlier attempt, or None.
        end_turn: set it to true to end the agent's turn without another model call (ADK: skip_summarization).
        escalate: set it to true to end the enclosing loop agent.
        transfer_to_agent: set it to an agent's name to hand the run over to it.
    """

    __slots__ = (
        "_host",
        "agent",
        "attempt",
        "branch",
        "call_id",
        "confirmation",
        "end_turn",
        "escalate",
        "idempotency_key",
        "last_progress",
        "run_id",
        "session",
        "state",
        "transfer_to_agent",
    )

    def __init__(
        self,
        *,
        host: CallHost,
        call_id: str,
        idempotency_key: str,
        attempt: int,
        state: MutableMapping[str, Json],
        agent: str,
        branch: str,
        run_id: str,
        session: SessionKey,
        last_progress: Json = None,
        confirmation: Confirmation | None = None,
    ) -> None:
        self._host = host
        self.call_id, self.idempotency_key, self.attempt = call_id, idempotency_key, attempt
        self.state, self.agent, self.branch, self.run_id, self.session = state, agent, branch, run_id, session
        self.last_progress, self.confirmation = last_progress, confirmation
        self.end_turn = False
        self.escalate = False
        self.transfer_to_agent: str | None = None

    @property
    def function_call_id(self) -> str:
        """ADK's name for `call_id`."""
        return self.call_id

    @property
    def cancelled(self) -> bool:
        """Whether the run, or this call, was asked to stop. Safe to read from any thread."""
        return self._host.cancelled is not None

    @property
    def cancel_cause(self) -> Cause | None:
        """Why this call was asked to stop, or None. Safe to read from any thread."""
        return self._host.cancelled

    def raise_if_cancelled(self) -> None:
        """Raise `RunCancelled` if the run was asked to stop: the cooperative stop of a blocking function."""
        cause = self._host.cancelled
        if cause is not None:
            raise RunCancelled(self.run_id, cause)

    def on_cancel(self, hook: Callable[[], None]) -> None:
        """Call `hook` once, when the run is asked to stop: close the socket, cancel the statement.

        It runs on the event loop's thread and must not block. Registered too late, it is called at once.
        """
        self._host.on_cancel(hook)

    async def progress(self, value: Json) -> None:
        """Record a progress value; durable on return. A later attempt of the call gets it as `last_progress`."""
        await self._host.progress(value)

    def progress_from_thread(self, value: Json) -> None:
        """`progress` for a blocking function: blocks its thread until the value is durable."""
        self._host.progress_from_thread(value)

    def output(self, piece: Json) -> None:
        """Show a piece of the call's output to readers now, and keep it: a stop does not lose what was put out.

        Safe from any thread. What the tool returns in the end is its result all the same; the output stands in for it
        only where the call is stopped, times out or dies. Pieces that are all text are kept as one text.
        """
        self._host.output(piece)

    async def ask(self, hint: str, schema: dict[str, Json] | None = None) -> Reply:
        """Ask people something while the call goes on: it waits, durably listed, until someone answers it.

        `schema` is the JSON schema of the value that is wanted; answers that do not fit are refused where they are
        given. A stop ends the wait as it ends any other.
        """
        return await self._host.ask(hint, schema)

    async def detach(self, response: dict[str, Json] | None = None) -> None:
        """Go into the background: the model is answered now, with a handle and `response`, and the call works on.

        Not while an agent works in it with `run_agent` (`DetachError`).

        What it returns in the end is told to the agent when it comes. Until then the effect may be called off:
        `Runner.cancel_call` stops the call, and the model is told so (F42).
        """
        await self._host.detach(response)

    def request_confirmation(
        self, hint: str = "", *, payload: Json = None, within_seconds: float | None = None
    ) -> None:
        """Ask for a yes, and return from the tool: what it returns now does not count.

        The call waits, durably; when the yes has come the tool is executed again, with `confirmation` set. A no settles
        the call as denied.
        """
        self._host.request_confirmation(hint, payload, within_seconds)

    async def save_artifact(self, name: str, content: Blob | bytes | str, *, mime_type: str = "") -> int:
        """Store an artifact of this session under a name; return its version, from 0. Durable on return.

        A name that begins with ``user:`` is shared by all sessions of the user.
        """
        return await self._host.save_artifact(name, as_blob(content, mime_type))

    async def load_artifact(self, name: str, version: int | None = None) -> Blob | None:
        """Return an artifact, its newest version if none is named, or None if there is no such artifact."""
        return await self._host.load_artifact(name, version)

    async def list_artifacts(self) -> list[ArtifactInfo]:
        """Return the newest version of each artifact that this session can see, by name."""
        return await self._host.list_artifacts()

    async def cancel_run(self, *, by: str = "tool", reason: str = "") -> None:
        """Ask the run that this call belongs to to stop. Returns when the request is durable, not when it is done."""
        await self._host.cancel_run(by, reason)

    async def run_agent(self, agent: Any, task: str) -> str:
        """Run an agent within this run, in a branch of its own that sees only `task`; return its final text."""
        return await self._host.run_agent(agent, task)

    async def run_in_background(self, agent: Any, task: str) -> None:
        """Let an agent work on `task` in a run and a session of its own, and let this call go on as that run.

        Returns when the run has ended and its outcome is that of this call. Cancelling it stops the run. Only an agent
        that is an `AgentTool` of the app with ``background=True`` can be found again after a crash.
        """
        await self._host.run_in_background(agent, task)


def as_blob(content: Blob | bytes | str, mime_type: str = "") -> Blob:
    """Return content as a blob; text is encoded as UTF-8 and is ``text/plain`` unless told otherwise."""
    match content:
        case Blob():
            return content
        case str():
            return Blob(mime_type=mime_type or "text/plain; charset=utf-8", content=content.encode())
        case bytes():
            return Blob(mime_type=mime_type or "application/octet-stream", content=content)


def end_context(ctx: ToolContext, host: CallHost) -> None:
    """The context's call has ended: from now on `host` answers for it."""
    ctx._host = host  # pyright: ignore[reportPrivateUsage]


class Tool(ABC):
    """Something that a model can call.

    Attributes:
        name: what the model calls it by; ``[A-Za-z0-9_-]``, 1 to 64 characters.
        description: what the model is told.
        replay: whether a call in doubt after a crash may be executed again; stored with each call.
        on_cancel: what a stop does to a running call.
        blocking: `run_blocking` is executed in a thread, instead of `run` on the event loop.
        timeout_seconds: how long one attempt may take; None for no limit.
        retry: whether and how a failed attempt is repeated; not with ``replay="never"``.
        max_concurrency: how many calls of this tool run at the same time in this process; None for no limit.
        max_result_bytes: results larger than this become an artifact; None leaves it to the run's setting.
        long_running: `run` only begins the work, which goes on elsewhere. If it returns None, the run pauses until the
            outcome is answered; if it returns something, the model is told that now, and the outcome when it comes.
    """

    name: str
    description: str
    replay: Replay = "never"
    on_cancel: OnCancel = "cancel"
    blocking: bool = False
    timeout_seconds: float | None = None
    retry: Retry | None = None
    max_concurrency: int | None = None
    max_result_bytes: int | None = None
    long_running: bool = False

    @abstractmethod
    def declaration(self) -> ToolDeclaration:
        """Return what the model is told about the tool."""

    @abstractmethod
    def bind(self, args: dict[str, Json]) -> dict[str, Any]:
        """Validate the model's arguments strictly and return what `run` gets.

        Raises:
            ToolArgumentsError: the arguments do not fit; its message is told to the model.
        """

    async def hold(self, args: dict[str, Any], ctx: ToolContext) -> Hold | None:
        """Return what has to come from outside before the call is executed, or instead of that; None if nothing has."""

    async def run(self, args: dict[str, Any], ctx: ToolContext) -> Any:
        """Do the work; return a value that can be written as JSON. Cancelling it stops the work."""
        raise NotImplementedError

    def run_blocking(self, args: dict[str, Any], ctx: ToolContext) -> Any:
        """Do the work in a thread; look at `ctx.cancelled` now and then."""
        raise NotImplementedError

    async def probe(self, args: dict[str, Any], ctx: ToolContext) -> Any:
        """For ``replay="probe"``: find out what an earlier attempt of this call did, by `ctx.idempotency_key`.

        Return its result if it took effect, and None if it did not, and is now executed. Raise if you cannot tell: the
        call is then settled as unknown.
        """
        raise NotImplementedError
