"""Commands: run one from within a tool, or give a model a shell."""

from heaveto.tools.command.run import CommandProcess, CommandResult, CommandTool, run_command

__all__ = ["CommandProcess", "CommandResult", "CommandTool", "run_command"]
