"""The agent with a model: asks it, executes its calls, asks again, until it answers without calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable
from typing import Any, TypeAlias, assert_never

from msgspec.structs import replace

from heaveto.agents.base import AgentCallback, BaseAgent, as_callbacks
from heaveto.agents.context import AgentContext
from heaveto.agents.instruction import fill_instruction
from heaveto.agents.pieces import as_pieces, require_piece
from heaveto.agents.transfer import TransferTool
from heaveto.core.plan import CallModel, Finish, HandOver, RunCalls, Wait, plan_answer, plan_step
from heaveto.core.request import Generation, ModelRequest, ToolDeclaration
from heaveto.errors import DuplicateNameError
from heaveto.events.contents import Content, Json, text_of
from heaveto.events.records import Message, StateChanged
from heaveto.models.base import Model
from heaveto.models.names import model_named
from heaveto.tools.answer_schema import answer_schema
from heaveto.tools.base import Tool, ToolContext
from heaveto.tools.function import as_tool
from heaveto.tools.toolset import Toolset

Instruction: TypeAlias = str | Callable[[AgentContext], str | Awaitable[str]]
ModelCallback: TypeAlias = Callable[
    [AgentContext, ModelRequest],
    Awaitable[Content | str | ModelRequest | None] | Content | str | ModelRequest | None,
]
"""Before a model call. A content is taken as the answer, the model is not asked; a request replaces the request."""
AnswerCallback: TypeAlias = Callable[[AgentContext, Content], Awaitable[Content | str | None] | Content | str | None]
"""After a model call. A content replaces the answer."""
ModelErrorCallback: TypeAlias = Callable[
    [AgentContext, ModelRequest, Exception], Awaitable[Content | str | None] | Content | str | None
]
ToolCallback: TypeAlias = Callable[
    [Tool, dict[str, Json], ToolContext], Awaitable[dict[str, Json] | None] | dict[str, Json] | None
]
"""Before a tool call. A dict is taken as the result, the tool is not executed."""
ResultCallback: TypeAlias = Callable[
    [Tool, dict[str, Json], ToolContext, dict[str, Json]],
    Awaitable[dict[str, Json] | None] | dict[str, Json] | None,
]
ToolErrorCallback: TypeAlias = Callable[
    [Tool, dict[str, Json], ToolContext, Exception],
    Awaitable[dict[str, Json] | None] | dict[str, Json] | None,
]


class LlmAgent(BaseAgent):
    """An agent that decides with a model."""

    def __init__(
        self,
        name: str,
        model: Model | str,
        *,
        instruction: Instruction = "",
        description: str = "",
        tools: Sequence[Tool | Toolset | Callable[..., Any]] = (),
        sub_agents: Sequence[BaseAgent] = (),
        output_key: str | None = None,
        generation: Generation | None = None,
        output_schema: dict[str, Json] | type[Any] | None = None,
        disallow_transfer_to_parent: bool = False,
        disallow_transfer_to_peers: bool = False,
        before_agent_callback: AgentCallback | Sequence[AgentCallback] | None = None,
        after_agent_callback: AgentCallback | Sequence[AgentCallback] | None = None,
        before_model_callback: ModelCallback | Sequence[ModelCallback] | None = None,
        after_model_callback: AnswerCallback | Sequence[AnswerCallback] | None = None,
        on_model_error_callback: ModelErrorCallback | Sequence[ModelErrorCallback] | None = None,
        before_tool_callback: ToolCallback | Sequence[ToolCallback] | None = None,
        after_tool_callback: ResultCallback | Sequence[ResultCallback] | None = None,
        on_tool_error_callback: ToolErrorCallback | Sequence[ToolErrorCallback] | None = None,
    ) -> None:
        """Make an agent with a model.

        Args:
            name, description, sub_agents, before_agent_callback, after_agent_callback: as in `BaseAgent`.
            model: the model to ask, or the name of one, such as ``anthropic:claude-opus-5``.
            instruction: the system text, with ``{state}`` placeholders, or a function that returns it as it is.
            tools: tools, or functions that become tools.
            output_key: the state key that the final text of the agent is saved to.
            generation: temperature and the like.
            output_schema: what the model is to answer with, as a JSON schema of type object or as a pydantic model. The
                answer stays text, which the provider sees to being such JSON; it is not checked again here.
            disallow_transfer_to_parent, disallow_transfer_to_peers: narrows where its model may hand over to. It may
                hand over to its sub-agents, and to parent and peers that are agents with a model.

        Callbacks are tried in order; the first that returns something wins.

        Raises:
            ConfigError: as in `BaseAgent`; also where the model's name is unknown, or a tool cannot be one.
            DuplicateNameError: two tools have the same name.
        """
        where = f"LlmAgent {name!r}"
        if isinstance(model, str):
            model = model_named(model)
        require_piece(model, Model, f"{where}: model", "pass a model, such as AnthropicMessages('…'), or its name")
        pieces = as_pieces(tools, object, f"{where}: tools", "pass a tool, a function, or a toolset")
        self.toolsets = tuple(piece for piece in pieces if isinstance(piece, Toolset))
        self.tools = tuple(as_tool(piece) for piece in pieces if not isinstance(piece, Toolset))
        _by_name(name, self.tools)
        super().__init__(
            name,
            description=description,
            sub_agents=sub_agents,
            before_agent_callback=before_agent_callback,
            after_agent_callback=after_agent_callback,
        )
        self.model, self.instruction, self.output_key = model, instruction, output_key
        self.generation = generation or Generation()
        if output_schema is not None:
            schema = answer_schema(output_schema, f"{where}: output_schema")
            self.generation = replace(self.generation, output_schema=schema)
        self.disallow_transfer_to_parent = disallow_transfer_to_parent
        self.disallow_transfer_to_peers = disallow_transfer_to_peers
        self.before_model_callbacks = as_callbacks(before_model_callback)
        self.after_model_callbacks = as_callbacks(after_model_callback)
        self.on_model_error_callbacks = as_callbacks(on_model_error_callback)
        self.before_tool_callbacks = as_callbacks(before_tool_callback)
        self.after_tool_callbacks = as_callbacks(after_tool_callback)
        self.on_tool_error_callbacks = as_callbacks(on_tool_error_callback)
        self._by_name: dict[str, Tool] | None = None
        self._foreign: tuple[tuple[Tool, ...], ...] = ()
        """What the toolsets had when the tools were last put together."""
        self._declarations: tuple[ToolDeclaration, ...] | None = None

    @property
    def toolbox(self) -> dict[str, Tool]:
        """All tools that the model may call, by name; the transfer tool included, and what its toolsets have now.

        Raises:
            DuplicateNameError: two tools have the same name.
        """
        foreign = tuple(toolset.tools for toolset in self.toolsets)
        if self._by_name is None or any(new is not old for new, old in zip(foreign, self._foreign, strict=True)):
            self._foreign, self._declarations = foreign, None
            tools = [*self.tools, *(tool for some in foreign for tool in some)]
            targets = self.transfer_targets()
            if targets:
                tools.append(TransferTool(targets))
            self._by_name = _by_name(self.name, tools)
        return self._by_name

    @property
    def declarations(self) -> tuple[ToolDeclaration, ...]:
        """What the model is told about its tools."""
        toolbox = self.toolbox
        if self._declarations is None:
            self._declarations = tuple(tool.declaration() for tool in toolbox.values())
        return self._declarations

    async def open_toolsets(self) -> None:
        """Let the toolsets connect, and learn which tools they have.

        Raises:
            ToolsetError: one cannot be used.
        """
        for toolset in self.toolsets:
            await toolset.open()

    def transfer_targets(self) -> list[BaseAgent]:
        """Return the agents that this one's model may hand over to."""
        targets: list[BaseAgent] = list(self.sub_agents)
        if isinstance(self.parent, LlmAgent):
            if not self.disallow_transfer_to_parent:
                targets.append(self.parent)
            if not self.disallow_transfer_to_peers:
                targets.extend(peer for peer in self.parent.sub_agents if peer is not self)
        return targets

    async def instruct(self, ctx: AgentContext) -> str:
        """Return the system text for a request."""
        if isinstance(self.instruction, str):
            return fill_instruction(self.instruction, ctx.state) if "{" in self.instruction else self.instruction
        text = self.instruction(ctx)
        return await text if isawaitable(text) else text

    async def run(self, ctx: AgentContext) -> None:
        await self.open_toolsets()
        step = plan_step(ctx.host.run, self.name, ctx.branch)
        while True:
            match step:
                case CallModel():
                    if await ctx.host.pauses("after_tool"):
                        ctx.held = True
                        return
                    await self.open_toolsets()
                    answer = await ctx.host.call_model(self, ctx)
                    step = plan_answer(ctx.host.run, answer)
                    if isinstance(step, Finish):
                        self._stage_output(ctx, answer)
                case RunCalls():
                    await ctx.host.run_calls(self, ctx, step.calls)
                    step = plan_step(ctx.host.run, self.name, ctx.branch)
                case HandOver():
                    taking_over = self._nearest(step.agent)
                    if taking_over is self:  # who took over is gone
                        step = CallModel()
                        continue
                    since = ctx.host.run.thread(ctx.branch, self.name).transferred_seq
                    await ctx.run_agent(taking_over, since=since)
                    return
                case Wait():
                    ctx.held = True
                    return
                case Finish():
                    return
                case _:
                    assert_never(step)

    def _stage_output(self, ctx: AgentContext, message: Message) -> None:
        text = text_of(message.parts)
        if self.output_key and text:
            record_id, time = ctx.host.stamp()
            ctx.stage(
                StateChanged(
                    id=record_id, time=time, run_id=ctx.run_id, delta={self.output_key: text}, author=self.name
                )
            )

    def _nearest(self, path: str) -> BaseAgent:
        """Return the agent of this tree at a path, or its nearest ancestor that still exists (F32)."""
        agents = {agent.path: agent for agent in self.root.walk()}
        while path not in agents and "/" in path:
            path = path.rpartition("/")[0]
        return agents.get(path, self)


def _by_name(agent: str, tools: Sequence[Tool]) -> dict[str, Tool]:
    by_name: dict[str, Tool] = {}
    for tool in tools:
        if tool.name in by_name:
            raise DuplicateNameError("tool", tool.name, f"agent {agent!r}")
        by_name[tool.name] = tool
    return by_name
