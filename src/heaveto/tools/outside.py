"""Tools that are not executed here: people or the caller give their results."""

from __future__ import annotations

from typing import Any

from heaveto.core.answers import answer_problem
from heaveto.core.request import ToolDeclaration
from heaveto.errors import ToolArgumentsError
from heaveto.events.contents import Json
from heaveto.tools.base import Hold, Tool, ToolContext
from heaveto.tools.function import FunctionTool
from heaveto.tools.naming import require_tool_name


class ClientTool(Tool):
    """A tool that the caller executes: the run pauses with the call, and the caller answers with the result.

    Args:
        name: what the model calls it by.
        description: what the model is told.
        parameters: the JSON schema of its arguments, an object.
        result_schema: the JSON schema of the result; answers that do not fit are refused.
        within_seconds: how long to wait for the result.
    """

    def __init__(
        self,
        name: str,
        description: str,
        parameters: dict[str, Json],
        *,
        result_schema: dict[str, Json] | None = None,
        within_seconds: float | None = None,
    ) -> None:
        self.name, self.description = require_tool_name(name), description
        self._declaration = ToolDeclaration(self.name, description, parameters)
        self._result_schema, self._within = result_schema, within_seconds

    def declaration(self) -> ToolDeclaration:
        return self._declaration

    def bind(self, args: dict[str, Json]) -> dict[str, Any]:
        problem = answer_problem(args, self._declaration.parameters)
        if problem is not None:
            raise ToolArgumentsError(problem)
        return args

    async def hold(self, args: dict[str, Any], ctx: ToolContext) -> Hold:
        return Hold("client", self.description, self._result_schema, within_seconds=self._within)


class RequestInputTool(Tool):
    """Lets a model ask people for something: the run pauses until someone answers.

    Args:
        name: what the model calls it by.
        schema: the JSON schema of the answer; without one it is a text.
        within_seconds: how long to wait for the answer.
        default: the answer that is taken when that time has passed; None denies.
    """

    def __init__(
        self,
        name: str = "request_input",
        *,
        description: str = "Ask the user for something that you need to know. Ask for one thing at a time.",
        schema: dict[str, Json] | None = None,
        within_seconds: float | None = None,
        default: Json = None,
    ) -> None:
        self.name, self.description = require_tool_name(name), description
        self._schema, self._within, self._default = schema or {"type": "string"}, within_seconds, default

    def declaration(self) -> ToolDeclaration:
        parameters: dict[str, Json] = {
            "type": "object",
            "properties": {"question": {"type": "string", "description": "What you want to know."}},
            "required": ["question"],
            "additionalProperties": False,
        }
        return ToolDeclaration(self.name, self.description, parameters)

    def bind(self, args: dict[str, Json]) -> dict[str, Any]:
        question = args.get("question")
        if not isinstance(question, str) or not question.strip():
            raise ToolArgumentsError("question must be a text")
        return {"question": question}

    async def hold(self, args: dict[str, Any], ctx: ToolContext) -> Hold:
        return Hold("input", args["question"], self._schema, within_seconds=self._within, default=self._default)


class LongRunningFunctionTool(FunctionTool):
    """A function that only begins the work; see `Tool.long_running`. ADK's name for such a `FunctionTool`."""

    def __init__(self, func: Any, **options: Any) -> None:
        super().__init__(func, long_running=True, **options)
