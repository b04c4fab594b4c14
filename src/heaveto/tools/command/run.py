"""Commands: run one from within a tool, or give a model a shell; nothing of it is left behind (F46).

On every way out (it ended, an error, a stop, its time is up) TERM goes to all processes of the command, then KILL, and
only when none of them lives does the caller go on: see `group`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from subprocess import DEVNULL, PIPE, STDOUT
from typing import IO, Any, TypeAlias

from heaveto.core.request import ToolDeclaration
from heaveto.errors import CommandTimeoutError, RunCancelled, ToolArgumentsError
from heaveto.events.contents import Json
from heaveto.events.records import Replay
from heaveto.tools.base import Tool, ToolContext
from heaveto.tools.command.kept_output import KeptOutput
from heaveto.tools.group import TERM_SECONDS, Ending, ProcessGroup, ProcessInfo, wait_through_cancels
from heaveto.tools.naming import require_tool_name

Command: TypeAlias = str | Sequence[str]
Show: TypeAlias = Callable[[str], None]

MAX_OUTPUT_BYTES = 256 * 1024
_READ_BYTES = 64 * 1024
_LEAVE_SECONDS = 0.1
"""How long what a command left may take to end by itself, as a ``>(tee log)`` does."""
_READS_AT_THE_END = 32
"""How much more is read when the command has ended: what a pipe holds, and not what a survivor goes on writing."""


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


def argv_of(command: Command) -> list[str]:
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
            argv_of(command), env=env, cwd=cwd, bufsize=0, stdin=DEVNULL if given is None else PIPE, stdout=PIPE,
            stderr=STDOUT if merge_stderr else PIPE,
        )  # fmt: skip
        process = self._group.process
        assert process.stdout is not None
        self._readers = [_Reader(process.stdout, max_output_bytes, screen.put)]
        if process.stderr is not None:
            self._readers.append(_Reader(process.stderr, max_output_bytes, screen.put))
        self._writer = _Writer(process.stdin, given) if process.stdin is not None and given is not None else None
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


# --- pipes --------------------------------------------------------------------------------------------------------


class _Reader:
    """Reads a pipe as it fills."""

    def __init__(self, pipe: IO[Any], limit: int, show: Show) -> None:
        self.kept = KeptOutput(limit)
        self._pipe, self._show = pipe, show
        self._loop = asyncio.get_running_loop()
        os.set_blocking(pipe.fileno(), False)
        self._loop.add_reader(pipe.fileno(), self._read)

    def close(self) -> None:
        """Take what is left in the pipe, and close it, whoever else may hold it open."""
        for _ in range(_READS_AT_THE_END):
            if self._pipe.closed or not self._read():
                break
        self._stop()
        self._show(self.kept.finish())

    def _read(self) -> bool:
        try:
            data = os.read(self._pipe.fileno(), _READ_BYTES)
        except BlockingIOError:
            return False
        if data:
            self._show(self.kept.feed(data))
        else:
            self._stop()
        return bool(data)

    def _stop(self) -> None:
        if not self._pipe.closed:
            self._loop.remove_reader(self._pipe.fileno())
            self._pipe.close()


class _Writer:
    """Writes the input as the command takes it, and closes the pipe behind it."""

    def __init__(self, pipe: IO[Any], data: bytes) -> None:
        self._pipe, self._left = pipe, memoryview(data)
        self._loop = asyncio.get_running_loop()
        os.set_blocking(pipe.fileno(), False)
        self._loop.add_writer(pipe.fileno(), self._write)

    def _write(self) -> None:
        try:
            self._left = self._left[os.write(self._pipe.fileno(), self._left) :]
        except BlockingIOError:
            return
        except OSError:  # the command does not read it
            self._left = self._left[:0]
        if not self._left:
            self.close()

    def close(self) -> None:
        if not self._pipe.closed:
            self._loop.remove_writer(self._pipe.fileno())
            self._pipe.close()


# --- for models ---------------------------------------------------------------------------------------------------

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
        self._limit_seconds, self._term_seconds, self._max_output_bytes = (
            timeout_seconds,
            term_seconds,
            max_output_bytes,
        )
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
