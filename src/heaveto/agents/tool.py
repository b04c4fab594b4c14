"""An agent as a tool: within the same run, in a branch that sees nothing but its task, or in the background."""

from __future__ import annotations

from typing import Any

from heaveto.agents.base import BaseAgent
from heaveto.core.request import ToolDeclaration
from heaveto.errors import ToolArgumentsError
from heaveto.events.contents import Json
from heaveto.tools.base import Tool, ToolContext


class AgentTool(Tool):
    """Lets a model call another agent with a task, and get its final text back.

    In the foreground the agent works in the same run: its messages are in the same log, its model calls count against
    the same budgets, and a stop of the run stops it too. It does not see the conversation, only its task. After a crash
    it goes on from its log, where it was.

    With `background`, the call is answered at once with a handle, and the agent works in a run and a session of its
    own, durably. Its text is told when it comes: to the caller's run if that still runs, else in a run of its own. A
    stop of the caller's run stops it too, unless its scope is ``turn``.
    """

    replay = "safe"

    def __init__(
        self, agent: BaseAgent, *, name: str | None = None, description: str | None = None, background: bool = False
    ) -> None:
        self.agent, self.background = agent, background
        self.name = name or agent.name
        self.description = description or agent.description or f"Give a task to the agent {agent.name}."

    def declaration(self) -> ToolDeclaration:
        parameters: dict[str, Json] = {
            "type": "object",
            "properties": {"request": {"type": "string", "description": "The task, complete in itself."}},
            "required": ["request"],
            "additionalProperties": False,
        }
        return ToolDeclaration(self.name, self.description, parameters)

    def bind(self, args: dict[str, Json]) -> dict[str, Any]:
        request = args.get("request")
        if not isinstance(request, str) or not request.strip():
            raise ToolArgumentsError("request must be a text with the task")
        return {"request": request}

    async def run(self, args: dict[str, Any], ctx: ToolContext) -> Any:
        if self.background:
            return await ctx.run_in_background(self.agent, args["request"])
        return {"result": await ctx.run_agent(self.agent, args["request"])}
