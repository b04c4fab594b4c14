"""A shell for a model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from heaveto.core.request import ToolDeclaration
from heaveto.errors import CommandTimeoutError, ToolArgumentsError
from heaveto.events.contents import Json
from heaveto.events.records import Replay
from heaveto.tools.base import Tool, ToolContext
from heaveto.tools.command.result import CommandResult, told_exit
from heaveto.tools.command.run import run_command
from heaveto.tools.group import TERM_SECONDS
from heaveto.tools.naming import require_tool_name

_PARAMETERS: dict[str, Json] = {
    "type": "object",
    "properties": {"command": {"type": "string", "description": "The command line, as for bash."}},
    "required": ["command"],
    "additionalProperties": False,
}


class CommandTool(Tool):
    """A shell for a model: each call is one command line in a working directory.

    The result has `exit_code` and `output`, and says in `error` if the command failed or took too long, in `background`
    which processes it left and were ended. There is no sandbox: the model can do all that this process may do.

    Args:
        name: what the model calls it by.
        description: what the model is told; says that output is cut, time limited, and background work ended.
        cwd: where commands start; the current directory if left out.
        env: their whole environment; this process's if left out.
        timeout_seconds: how long a command may take; what it had put out until then is still the result.
        term_seconds: how long its processes have to end after TERM.
        max_output_bytes: of longer output the beginning and the end are kept.
        replay: whether a call in doubt after a crash may be executed again.
    """

    def __init__(
        self,
        *,
        name: str = "run_command",
        description: str | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        timeout_seconds: float = 120.0,
        term_seconds: float = TERM_SECONDS,
        max_output_bytes: int = 64 * 1024,
        replay: Replay = "never",
    ) -> None:
        self.name = require_tool_name(name)
        self.description = _description(timeout_seconds) if description is None else description
        self.replay = replay
        # Not Tool.timeout_seconds: the runner's time limit would come without the output.
        self._limit_seconds, self._term_seconds = timeout_seconds, term_seconds
        self._max_output_bytes = max_output_bytes
        self._cwd, self._env = cwd, env

    def declaration(self) -> ToolDeclaration:
        return ToolDeclaration(self.name, self.description, _PARAMETERS)

    def bind(self, args: dict[str, Json]) -> dict[str, Any]:
        command = args.get("command")
        if not isinstance(command, str) or not command.strip() or "\0" in command:
            raise ToolArgumentsError("command must be a command line: a string that is not empty.")
        if unknown := sorted(args.keys() - {"command"}):
            raise ToolArgumentsError(f"{unknown[0]} is not known; the only argument is command.")
        return {"command": command}

    async def run(self, args: dict[str, Any], ctx: ToolContext) -> Any:
        try:
            result = await run_command(
                args["command"], ctx=ctx, cwd=self._cwd, env=self._env, timeout_seconds=self._limit_seconds,
                term_seconds=self._term_seconds, max_output_bytes=self._max_output_bytes,
            )  # fmt: skip
        except CommandTimeoutError as error:
            return {"error": str(error), **_answer(error.result)}
        problem = {"error": told_exit(result.exit_code)} if result.exit_code else {}
        return {**problem, **_answer(result)}

    def __repr__(self) -> str:
        return f"CommandTool({self.name!r})"


def _description(limit_seconds: float) -> str:
    return (
        "Run a command line in bash and return its exit code and output. It must end by itself, within "
        f"{limit_seconds:g} seconds, and cannot be given input; processes that it leaves in the background are ended."
    )


def _answer(result: CommandResult) -> dict[str, Json]:
    answer: dict[str, Json] = {"exit_code": result.exit_code, "output": result.output}
    if result.ended:
        names = ", ".join(process.name for process in result.ended)
        answer["background"] = f"ended with the command: {names}"
    if result.survivors:
        names = ", ".join(f"{process.name} (process {process.pid})" for process in result.survivors)
        answer["still_running"] = f"could not be ended: {names}"
    return answer
