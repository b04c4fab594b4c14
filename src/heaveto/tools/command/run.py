"""A command, run from within a tool; nothing of it is left behind (F46).

On every way out (it ended, an error, a stop, its time is up) TERM goes to all processes of the command, then KILL, and
only when none of them lives does the caller go on: see `group`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from subprocess import DEVNULL, PIPE, STDOUT
from typing import TypeAlias

from heaveto.errors import CommandTimeoutError, RunCancelled
from heaveto.tools.base import ToolContext
from heaveto.tools.command.pipes import PipeReader, PipeWriter
from heaveto.tools.command.result import CommandProcess, CommandResult
from heaveto.tools.group import TERM_SECONDS, Ending, ProcessGroup
from heaveto.tools.process_table import ProcessInfo
from heaveto.tools.threads import wait_through_cancels

Command: TypeAlias = str | Sequence[str]
Show: TypeAlias = Callable[[str], None]

MAX_OUTPUT_BYTES = 256 * 1024
_LEAVE_SECONDS = 0.1
"""How long what a command left may take to end by itself, as a ``>(tee log)`` does."""


async def run_command(
    command: Command,
    *,
    ctx: ToolContext | None = None,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    input: str | bytes | None = None,
    timeout_seconds: float | None = None,
    term_seconds: float = TERM_SECONDS,
    max_output_bytes: int = MAX_OUTPUT_BYTES,
    merge_stderr: bool = True,
) -> CommandResult:
    """Run a command, a shell's if it is a string, and return how it ended, when none of its processes lives any more.

    What it puts out is shown through `ctx` as it comes, as UTF-8. The command ends when its own process ends; what it
    left in the background is ended too. `env` is the whole environment, as for `subprocess.run`. An exit code other
    than 0 is no error here.

    Cancelling it ends the command; that lasts `term_seconds`, or a second more if something does not heed TERM, however
    often it is cancelled meanwhile. What even KILL does not end is named in the output.

    Raises:
        CommandTimeoutError: `timeout_seconds` are over.
        OSError: there is no such program or directory.
    """
    if ctx is not None:
        ctx.raise_if_cancelled()
    show: Show = ctx.output if ctx is not None else _show_nobody
    running = _RunningCommand(command, cwd, env, _as_bytes(input), _Screen(show), max_output_bytes, merge_stderr)
    in_time = False
    try:
        in_time = await running.ends_within(timeout_seconds)
    finally:
        await running.end(term_seconds, leave_seconds=_LEAVE_SECONDS if in_time else 0.0)
    if timeout_seconds is not None and not in_time:
        raise CommandTimeoutError(timeout_seconds, running.result)
    return running.result


def _show_nobody(text: str) -> None:
    pass


def _as_bytes(text: str | bytes | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text


def _argv(command: Command) -> list[str]:
    """Return what is executed: a string is given to bash, or to sh where there is no bash."""
    if isinstance(command, str):
        return [shutil.which("bash") or "/bin/sh", "-c", command]
    return list(command)


class _Screen:
    """Shows text to readers; an error in that ends the command, once it is told, but never the ending of it."""

    def __init__(self, show: Show) -> None:
        self._show = show
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def put(self, text: str) -> None:
        if not text or self.failed.done():
            return
        try:
            self._show(text)
        except (Exception, RunCancelled) as error:  # noqa: BLE001 - raised where the command is waited for
            self.failed.set_exception(error)
            self.failed.exception()  # looked at, also if the command has ended meanwhile


class _RunningCommand:
    """A command from its start to its result."""

    def __init__(
        self,
        command: Command,
        cwd: str | os.PathLike[str] | None,
        env: Mapping[str, str] | None,
        given: bytes | None,
        screen: _Screen,
        max_output_bytes: int,
        merge_stderr: bool,
    ) -> None:
        self._screen = screen
        self._group = ProcessGroup(
            _argv(command), env=env, cwd=cwd, bufsize=0, stdin=DEVNULL if given is None else PIPE, stdout=PIPE,
            stderr=STDOUT if merge_stderr else PIPE,
        )  # fmt: skip
        process = self._group.process
        assert process.stdout is not None
        self._readers = [PipeReader(process.stdout, max_output_bytes, screen.put)]
        if process.stderr is not None:
            self._readers.append(PipeReader(process.stderr, max_output_bytes, screen.put))
        self._writer = PipeWriter(process.stdin, given) if process.stdin is not None and given is not None else None
        self._ending = Ending()

    async def ends_within(self, seconds: float | None) -> bool:
        """Wait for the end of the command's own process; return whether it came in time."""
        ended = asyncio.ensure_future(self._group.exited())
        try:
            done, _ = await asyncio.wait(
                {ended, self._screen.failed}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if self._screen.failed in done:
                self._screen.failed.result()
            return ended in done
        finally:
            ended.cancel()

    async def end(self, term_seconds: float, *, leave_seconds: float) -> None:
        """End all processes and close the pipes.

        Raises:
            asyncio.CancelledError: the task was cancelled meanwhile; the work is done all the same.
        """
        ending = self._group.start_ending(term_seconds, leave_seconds=leave_seconds)
        interrupted = await wait_through_cancels(ending)
        self._ending = ending.result()
        if self._writer is not None:
            self._writer.close()
        for reader in self._readers:
            reader.close()
        self._tell_survivors()
        if interrupted:
            raise asyncio.CancelledError

    def _tell_survivors(self) -> None:
        if self._ending.survivors:
            names = ", ".join(f"{process.name} (process {process.pid})" for process in self._ending.survivors)
            self._screen.put(f"\n[still running, could not be ended: {names}]\n")

    @property
    def result(self) -> CommandResult:
        output, *errors = self._readers
        return CommandResult(
            exit_code=self._group.process.returncode,
            output=output.kept.text,
            stderr=errors[0].kept.text if errors else "",
            truncated=any(reader.kept.truncated for reader in self._readers),
            ended=_told(self._ending.ended),
            survivors=_told(self._ending.survivors),
        )


def _told(processes: Sequence[ProcessInfo]) -> tuple[CommandProcess, ...]:
    return tuple(CommandProcess(process.pid, process.name) for process in processes)
