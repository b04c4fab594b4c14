"""What an agent may do within a run, and what it asks of the runner for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NoReturn, Protocol, TypeAlias

from heaveto.agents.state import StateView
from heaveto.core.fold import RunState, SessionState
from heaveto.errors import RunCancelled
from heaveto.events.contents import Content, FunctionCall, Json, Part
from heaveto.events.records import AgentCheckpoint, Cause, Message, Record, SessionKey, StateChanged, Transferred

if TYPE_CHECKING:
    from heaveto.agents.base import BaseAgent
    from heaveto.agents.llm import LlmAgent


PausePoint: TypeAlias = Literal["after_tool", "after_turn"]


class RunHost(Protocol):
    """The runner's side: performs what agents decide. Every method raises `RunCancelled` once the run was stopped."""

    @property
    def key(self) -> SessionKey: ...
    @property
    def run(self) -> RunState: ...
    @property
    def session(self) -> SessionState: ...
    @property
    def is_resuming(self) -> bool: ...
    def stamp(self) -> tuple[str, float]: ...
    def check(self) -> None: ...
    async def pauses(self, at: PausePoint) -> bool: ...
    async def request_stop(self, cause: Cause, by: str, reason: str = "") -> None: ...
    def stage(self, *records: Record) -> None: ...
    async def flush(self) -> None: ...
    def state_view(self) -> StateView: ...
    async def enter(self, agent: BaseAgent, branch: str, since: int | None = None) -> bool: ...
    async def run_task(self, agent: BaseAgent, branch: str, task: str) -> str: ...
    async def call_model(self, agent: LlmAgent, ctx: AgentContext) -> Message: ...
    async def run_calls(self, agent: LlmAgent, ctx: AgentContext, calls: Sequence[FunctionCall]) -> None: ...


class AgentContext:
    """One agent's part of one run.

    Attributes:
        agent: the agent.
        branch: its branch; agents that work in parallel have branches of their own and do not see each other's.
        state: the session's state as a mapping; what is set is recorded with the next record.
        held: the agent's part is not done: something in it waits. It is entered again when the run goes on.
    """

    __slots__ = ("agent", "branch", "held", "host", "state")

    def __init__(self, host: RunHost, agent: BaseAgent, branch: str) -> None:
        self.host, self.agent, self.branch, self.held = host, agent, branch, False
        self.state = host.state_view()

    @property
    def run_id(self) -> str:
        return self.host.run.run_id

    @property
    def session(self) -> SessionKey:
        return self.host.key

    @property
    def input(self) -> Content:
        """The message that the run was started with."""
        return self.host.run.input

    @property
    def resumed_from(self) -> AgentCheckpoint | None:
        """The checkpoint to go on from, if a crash or a pause cut this agent's part off; None where it begins.

        Look at it before the first `checkpoint`, and pass its `seq` to `run_agent` as `since`.
        """
        last = self.host.run.checkpoints.get((self.branch, self.agent.name))
        if last is None or last.end_of_agent or not self.host.is_resuming:
            return None
        return last

    @property
    def cancelled(self) -> bool:
        """Whether the run was asked to stop."""
        return self.host.run.cancel is not None

    def raise_if_cancelled(self) -> None:
        """Raise `RunCancelled` if the run was asked to stop."""
        self.host.check()

    async def stop(self, *, cause: Cause = "guardrail", reason: str = "") -> NoReturn:
        """Stop the run from inside, and this code with it: the same operation as a cancel from outside (F155).

        Raises:
            RunCancelled: always. Let it pass.
        """
        await self.host.request_stop(cause, self.agent.name, reason)
        self.host.check()
        raise RunCancelled(self.run_id, cause)

    async def say(self, *parts: str | Part, escalate: bool = False) -> None:
        """Record a message of this agent; durable, and seen by readers, on return."""
        record_id, time = self.host.stamp()
        content = Content.of(*parts)
        self.stage(
            Message(
                id=record_id, time=time, run_id=self.run_id, author=self.agent.name, branch=self.branch,
                parts=content.parts, escalate=escalate,
            )
        )  # fmt: skip
        await self.host.flush()

    async def escalate(self) -> None:
        """End the enclosing loop after this agent."""
        await self.say(escalate=True)

    async def run_agent(self, agent: BaseAgent, *, branch: str | None = None, since: int | None = None) -> bool:
        """Run another agent's part within this run, and return whether it has done it.

        False means that calls of it wait for answers: return too, and your `run` is called again when they have come.
        With `since`, it is not run if the log says behind that seq that it has done its part: for those who resume.
        """
        done = await self.host.enter(agent, self.branch if branch is None else branch, since)
        self.held = self.held or not done
        return done

    async def checkpoint(self, agent_state: dict[str, Json]) -> None:
        """Record this agent's progress. Durable before the next effect of the run."""
        record_id, time = self.host.stamp()
        self.stage(
            AgentCheckpoint(
                id=record_id, time=time, run_id=self.run_id, agent=self.agent.name, branch=self.branch,
                agent_state=agent_state,
            )
        )  # fmt: skip

    def end(self) -> None:
        """Record that this agent has done its part. The runner calls it."""
        record_id, time = self.host.stamp()
        self.stage(
            AgentCheckpoint(
                id=record_id, time=time, run_id=self.run_id, agent=self.agent.name, branch=self.branch,
                end_of_agent=True,
            )
        )  # fmt: skip

    def transferred(self, agent: BaseAgent) -> Transferred:
        """Return the record by which another agent takes over, now and for the next inputs."""
        record_id, time = self.host.stamp()
        return Transferred(
            id=record_id, time=time, run_id=self.run_id, agent=agent.path, author=self.agent.name, branch=self.branch
        )

    def stage(self, *records: Record) -> None:
        """Put records into the next append, behind what was set in `state`. They are durable before the next effect."""
        delta = self.state.take_delta()
        if delta:
            record_id, time = self.host.stamp()
            self.host.stage(
                StateChanged(id=record_id, time=time, run_id=self.run_id, delta=delta, author=self.agent.name)
            )
        self.host.stage(*records)
