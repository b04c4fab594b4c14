"""Handing a run over to another agent, as a tool that the model calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heaveto.agents.base import BaseAgent
from heaveto.core.request import ToolDeclaration
from heaveto.errors import ToolArgumentsError
from heaveto.events.contents import Json
from heaveto.tools.base import Tool, ToolContext

TRANSFER = "transfer_to_agent"


class TransferTool(Tool):
    """Lets the model hand over to one of the given agents."""

    replay = "safe"

    def __init__(self, targets: Sequence[BaseAgent]) -> None:
        self.name = TRANSFER
        lines = "\n".join(f"- {agent.name}: {agent.description or 'no description'}" for agent in targets)
        self.description = f"Hand the conversation over to another agent that suits it better:\n{lines}"
        self._names = [agent.name for agent in targets]

    def declaration(self) -> ToolDeclaration:
        names: list[Json] = list(self._names)
        parameters: dict[str, Json] = {
            "type": "object",
            "properties": {"agent_name": {"type": "string", "enum": names}},
            "required": ["agent_name"],
            "additionalProperties": False,
        }
        return ToolDeclaration(self.name, self.description, parameters)

    def bind(self, args: dict[str, Json]) -> dict[str, Any]:
        name = args.get("agent_name")
        if name not in self._names:
            raise ToolArgumentsError(f"agent_name must be one of {', '.join(self._names)}, not {name!r}")
        return {"agent_name": name}

    async def run(self, args: dict[str, Any], ctx: ToolContext) -> dict[str, Json]:
        ctx.transfer_to_agent = args["agent_name"]
        return {"transferred_to": args["agent_name"]}
