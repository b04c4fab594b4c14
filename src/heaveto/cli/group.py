"""The command group. A subcommand's module is imported when it is run, so that ``--help`` stays quick."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import click

from heaveto.errors import ConfigError, HeavetoError, InputError

_COMMANDS: dict[str, tuple[str, str]] = {
    "demo": (
        "heaveto.cli.demo.command",
        "Watch runs being stopped and killed, and sessions go on; offline, no key needed.",
    ),
    "emulate": (
        "heaveto.cli.emulate",
        "Serve OpenAI, Anthropic and Gemini on loopback, to point any program at; no key needed.",
    ),
    "run": ("heaveto.cli.run", "Chat with an agent in a Python file or module."),
    "sessions": ("heaveto.cli.sessions", "List the sessions of a store."),
    "log": ("heaveto.cli.log", "Show what a session's log holds."),
    "stop": ("heaveto.cli.stop", "Stop a run, in whichever process it is carried."),
    "erase": ("heaveto.cli.erase", "Delete a session's content for good."),
    "repair": ("heaveto.cli.repair", "Repair a dump of messages or an agent's transcript."),
    "doctor": ("heaveto.cli.doctor", "Check a store file and say what to do."),
}
"""By name: the module that defines `command`, and the line in ``heaveto --help``."""


class _LazyGroup(click.Group):
    """Knows its commands by name and help line; loads one when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = import_module(_COMMANDS[cmd_name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in _COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; our own errors are told in one line, without a traceback."""
        try:
            return super().invoke(ctx)
        except (ConfigError, InputError) as error:
            raise click.UsageError(str(error)) from error
        except HeavetoError as error:
            raise click.ClickException(f"{error.code}: {error}") from error  # which exits with 1


_HELP = """LLM-agent runs that can be stopped, cut off or killed with their process, with nothing broken afterwards.

\b
Exit codes: 0 ok, 1 failed, 2 wrong usage, 3 waiting for an answer, 4 cancelled, 130 by Ctrl-C.
"""


@click.group(cls=_LazyGroup, help=_HELP, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(None, "--version", package_name="heaveto", prog_name="heaveto", message="%(prog)s %(version)s")
@click.pass_context
def heaveto(ctx: click.Context) -> None:
    """The command as a whole."""
    if os.environ.get("NO_COLOR"):
        ctx.color = False
