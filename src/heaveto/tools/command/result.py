"""How a command ended."""

from __future__ import annotations

import signal
from contextlib import suppress
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CommandProcess:
    """A process that a command left behind."""

    pid: int
    name: str


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended.

    Attributes:
        exit_code: as the shell counts, but negative for the number of the signal that ended it; None if it lives on.
        output: what it put out: of more than `max_output_bytes`, the beginning and the end.
        stderr: the same for its error output, unless that is part of `output`.
        truncated: something was left out.
        ended: processes that it left in the background, which were ended with it.
        survivors: processes that could not be ended: they belong to somebody else, or hang in the kernel.
    """

    exit_code: int | None
    output: str
    stderr: str = ""
    truncated: bool = False
    ended: tuple[CommandProcess, ...] = ()
    survivors: tuple[CommandProcess, ...] = ()


def told_exit(exit_code: int | None) -> str:
    """Say how a process ended, in words: its exit code, or the signal that ended it."""
    if exit_code is None:
        return "the command could not be ended"
    if exit_code >= 0:
        return f"the command failed with exit code {exit_code}"
    name = ""
    with suppress(ValueError):
        name = f" ({signal.Signals(-exit_code).name})"
    return f"the command was ended by signal {-exit_code}{name}"
