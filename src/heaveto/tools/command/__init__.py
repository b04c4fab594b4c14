"""Commands: run one from within a tool, or give a model a shell."""

from heaveto.tools.command.result import CommandProcess, CommandResult
from heaveto.tools.command.run import run_command
from heaveto.tools.command.tool import CommandTool

__all__ = ["CommandProcess", "CommandResult", "CommandTool", "run_command"]
