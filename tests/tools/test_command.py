"""Commands: their output, their end on every path, and that nothing of them is left (F46, F135)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from tests.tools.listener import Listener, cancel_again_and_again, context, living_with, open_files, zombies

from heaveto.errors import CommandTimeoutError, RunCancelled, ToolArgumentsError
from heaveto.tools.command import CommandTool, run_command
from heaveto.tools.command.kept_output import KeptOutput
from heaveto.tools.group import ProcessGroup
from heaveto.tools.process_table import find_members, process_table, table_of_ps

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the process table is looked at in /proc")

GRACE_SECONDS = 2.0
"""The run's default: a stop that takes longer is reported as still running."""


@pytest.fixture
def tag(monkeypatch: pytest.MonkeyPatch) -> str:
    """A text in the environment of every process that the test starts."""
    text = uuid.uuid4().hex
    monkeypatch.setenv("TEST_OF_COMMANDS", text)
    return text


# --- results ------------------------------------------------------------------------------------------------------


async def test_a_command_tells_its_exit_code_and_output() -> None:
    """Output and error output come in the order in which they were written, and are shown as they come."""
    host = Listener()
    result = await run_command("echo one; echo two >&2; echo three; exit 3", ctx=context(host))
    assert (result.exit_code, result.output, result.stderr) == (3, "one\ntwo\nthree\n", "")
    assert host.text == "one\ntwo\nthree\n"
    assert (result.truncated, result.ended, result.survivors) == (False, (), ())


async def test_arguments_are_not_read_by_a_shell(tmp_path: Path) -> None:
    """A sequence is executed as it is, in its directory and environment, and gets its input."""
    result = await run_command(["printf", "%s|", "a b", "$HOME", "*"])
    assert result.output == "a b|$HOME|*|"
    result = await run_command("pwd; echo $A; cat", cwd=tmp_path, env={"A": "b", "PATH": os.environ["PATH"]}, input="ü")
    assert result.output == f"{tmp_path}\nb\nü"


async def test_error_output_may_be_kept_apart() -> None:
    """`merge_stderr=False` gives two texts."""
    result = await run_command("echo out; echo err >&2", merge_stderr=False)
    assert (result.output, result.stderr) == ("out\n", "err\n")


async def test_much_input_goes_in_while_output_comes_out() -> None:
    """Neither pipe waits for the other."""
    result = await run_command(["cat"], input=b"x" * 3_000_000, max_output_bytes=4_000_000)
    assert result.output == "x" * 3_000_000
    assert (await run_command(["true"], input=b"x" * 3_000_000)).exit_code == 0  # nobody reads it


async def test_a_missing_program_or_directory_is_an_error(tmp_path: Path) -> None:
    """It is said which, and nothing is left."""
    before = open_files()
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        await run_command(["no-such-program"])
    with pytest.raises(FileNotFoundError, match="nowhere"):
        await run_command("true", cwd=tmp_path / "nowhere")
    assert open_files() == before


async def test_of_long_output_beginning_and_end_are_kept() -> None:
    """Readers are shown all of it; a character that was cut is not kept as rubble."""
    host = Listener()
    result = await run_command(
        "printf first; yes ä | head -c 999999; printf last", ctx=context(host), max_output_bytes=1001
    )
    assert result.truncated
    assert result.output.startswith("first") and result.output.endswith("last")
    assert "bytes left out" in result.output and "\ufffd" not in result.output
    assert len(result.output.encode()) < 1100
    assert host.text == "first" + "ä\n" * 333_333 + "last"


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 14, 15, 16, 20, 200_000])
@pytest.mark.parametrize("step", [1, 3, 64, 100_000])
def test_what_is_kept_is_beginning_and_end(size: int, step: int) -> None:
    """In whatever pieces it came: all of it up to the limit, else both halves and the count of what is between."""
    data = (b"0123456789" * 20_000)[:size]
    kept = KeptOutput(10)
    shown = "".join(kept.feed(data[start : start + step]) for start in range(0, size, step)) + kept.finish()
    assert shown == data.decode()
    if size <= 10:
        assert kept.text == data.decode()
    else:
        assert kept.text == f"01234\n[… {size - 10} bytes left out …]\n{data[-5:].decode()}"


async def test_text_that_is_cut_within_a_character_is_put_together() -> None:
    """A character that comes in two reads is one character; what is no UTF-8 is marked."""
    result = await run_command(r"printf '\xc3'; sleep 0.05; printf '\xa4\xff'")
    assert result.output == "ä\ufffd"


# --- the end ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "sleep 60; touch $FILE",
        "bash -c 'sleep 60; touch $FILE'; true",
        "nohup bash -c 'sleep 60; touch $FILE' >/dev/null 2>&1 & wait",
        "setsid bash -c 'sleep 60; touch $FILE' & wait",
        "(setsid bash -c '(sleep 60; touch $FILE) & sleep 60' &); sleep 60",
        "sleep 60 | cat | cat; touch $FILE",
        "trap 'echo leaving' TERM; sleep 60 & wait; wait; touch $FILE.never",
    ],
)
async def test_a_stop_ends_a_command_and_all_that_it_started(
    tag: str, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shells, their children, what runs behind nohup and what has left the session (F46)."""
    monkeypatch.setenv("FILE", str(tmp_path / "f"))
    host = Listener()
    task = asyncio.create_task(run_command(f"echo ready; {command}", ctx=context(host)))
    await host.heard("ready")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert living_with(tag) == []
    assert zombies() == []


async def test_a_process_that_hides_is_found_by_its_descent() -> None:
    """It has left the session and emptied its environment; its parent is still known (F46)."""
    host = Listener()
    task = asyncio.create_task(run_command("env -i setsid sleep 60.0317 & echo ready; wait", ctx=context(host)))
    await host.heard("ready")
    while not _commands_with("60.0317", "sleep"):  # noqa: ASYNC110 - nobody tells of it
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert _commands_with("60.0317", "sleep") == []


def _commands_with(argument: str, name: str) -> list[int]:
    found: list[int] = []
    for row in process_table().values():
        with contextlib.suppress(OSError):
            if row.name == name and argument.encode() in Path(f"/proc/{row.pid}/cmdline").read_bytes():
                found.append(row.pid)
    return found


async def test_what_ignores_term_is_killed_within_the_grace(tag: str) -> None:
    """Also a grandchild; what the command has put out is kept (F46)."""
    host = Listener()
    task = asyncio.create_task(
        run_command("trap '' TERM; bash -c \"trap '' TERM; echo ready; while :; do sleep 60; done\"", ctx=context(host))
    )
    await host.heard("ready")
    start = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - start < GRACE_SECONDS
    assert living_with(tag) == []
    assert host.text == "ready\n"


async def test_cancelled_again_and_again_it_ends_when_all_are_dead(tag: str) -> None:
    """The runtime repeats its interruption of what does not end; the ending is not disturbed by it."""
    host = Listener()
    task = asyncio.create_task(run_command("trap '' TERM; echo ready; sleep 60; sleep 60", ctx=context(host)))
    await host.heard("ready")
    await cancel_again_and_again(task)
    assert task.cancelled()
    assert living_with(tag) == [] and zombies() == []


async def test_a_cancel_before_the_first_step_starts_nothing(tag: str) -> None:
    """A task that is cancelled before it runs has no process."""
    task = asyncio.create_task(run_command("sleep 60"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert living_with(tag) == []


async def test_a_command_that_can_clean_up_is_heard_to_the_end(tag: str) -> None:
    """What is put out after TERM is shown and kept."""
    host = Listener()
    task = asyncio.create_task(
        run_command("trap 'echo cleaned; exit 0' TERM; echo ready; sleep 60 & wait", ctx=context(host))
    )
    await host.heard("ready")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert host.text == "ready\ncleaned\n"
    assert living_with(tag) == []


async def test_a_background_process_neither_holds_up_the_result_nor_lives_on(tag: str) -> None:
    """It holds the pipe open; it is ended with the command and named (F46)."""
    start = time.monotonic()
    result = await run_command("sleep 60 & setsid sleep 61 & echo started")
    assert time.monotonic() - start < GRACE_SECONDS
    assert (result.exit_code, result.output) == (0, "started\n")
    assert len(result.ended) == 2
    assert living_with(tag) == []


async def test_what_ends_by_itself_behind_a_command_is_let_do_so(tmp_path: Path) -> None:
    """A `tee` that still has something to write is neither cut off nor named."""
    result = await run_command("seq 100000 > >(sleep 0.01; tee log | tail -n 1)", cwd=tmp_path)
    assert (result.output, result.ended) == ("100000\n", ())
    assert (tmp_path / "log").read_text().endswith("\n100000\n")


async def test_what_takes_too_long_is_ended_and_its_output_kept(tag: str) -> None:
    """The error is a TimeoutError, for retries, and has the result so far (F57)."""
    with pytest.raises(CommandTimeoutError, match=r"limit of 0\.2 seconds") as caught:
        await run_command("echo begun; sleep 60", timeout_seconds=0.2)
    assert isinstance(caught.value, TimeoutError)
    assert (caught.value.result.exit_code, caught.value.result.output) == (-signal.SIGTERM, "begun\n")
    assert living_with(tag) == []


async def test_an_attempt_is_over_before_the_next_one_begins(tag: str, tmp_path: Path) -> None:
    """Attempts that run into the time limit never work at the same time (F57)."""
    found: list[list[str]] = []
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                found.append(living_with(tag))
                await run_command("sleep 60 & nohup sleep 60 & wait")
    assert found == [[], [], []]


async def test_readers_that_fail_end_the_command(tag: str) -> None:
    """An error in showing the output is raised when nothing of the command is left."""

    class Refusing(Listener):
        def output(self, piece: object) -> None:
            raise RunCancelled("r1", "lease_lost")

    with pytest.raises(RunCancelled):
        await run_command("echo hello; sleep 60", ctx=context(Refusing()))
    assert living_with(tag) == []


async def test_a_stop_that_came_before_starts_nothing() -> None:
    """A command is not started for a call that was stopped."""
    host = Listener()
    host.stop()
    with pytest.raises(RunCancelled):
        await run_command(["no-such-program"], ctx=context(host))


async def test_survivors_are_reported(monkeypatch: pytest.MonkeyPatch, tag: str) -> None:
    """What cannot be ended is named, in the result and in the output, and does not hold anything up."""
    monkeypatch.setattr("heaveto.tools.process_table._send", _send_nothing_to_sleepers)
    host = Listener()
    result = await run_command("setsid sleep 60 & echo started", ctx=context(host), term_seconds=0.05)
    assert [process.name for process in result.survivors] == ["sleep"]
    assert "still running, could not be ended: sleep" in host.text
    assert living_with(tag) == ["sleep"]
    os.kill(result.survivors[0].pid, signal.SIGKILL)


def _send_nothing_to_sleepers(*_: object) -> None:
    """As if it belonged to somebody else."""


async def test_fifty_commands_leave_neither_files_nor_zombies_nor_processes(tag: str) -> None:
    """Half of them end, half are stopped, all with a process in the background (F135)."""
    before, threads = open_files(), len(os.listdir("/proc/self/task"))
    for number in range(50):
        host = Listener()
        task = asyncio.create_task(run_command(f"sleep 60 & echo ready; sleep {60 * (number % 2)}", ctx=context(host)))
        await host.heard("ready")
        if number % 2:
            task.cancel()
        await asyncio.wait({task})
    assert living_with(tag) == [] and zombies() == []
    assert open_files() <= before
    assert len(os.listdir("/proc/self/task")) <= threads + 1


async def test_twenty_commands_are_stopped_at_once(tag: str) -> None:
    """Stops do not wait for one another."""
    hosts = [Listener() for _ in range(20)]
    tasks = [asyncio.create_task(run_command("sleep 60 & echo ready; wait", ctx=context(host))) for host in hosts]
    await asyncio.gather(*(host.heard("ready") for host in hosts))
    start = time.monotonic()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert time.monotonic() - start < GRACE_SECONDS
    assert living_with(tag) == [] and zombies() == []


def test_a_loop_that_is_shut_down_ends_its_commands(tag: str) -> None:
    """asyncio.run cancels all tasks, those that others wait for too; nothing is left when it returns."""

    async def main() -> None:
        host = Listener()
        task = asyncio.create_task(run_command("trap '' TERM; echo ready; sleep 60; sleep 60", ctx=context(host)))
        await host.heard("ready")
        assert not task.done()

    asyncio.run(main())
    assert living_with(tag) == []


# --- the process table --------------------------------------------------------------------------------------------


def test_ps_tells_the_same_table() -> None:
    """Where there is no /proc, ``ps`` is asked; it knows this process, its group and its parent."""
    mine = {row.pid: row for row in table_of_ps()}[os.getpid()]
    same = process_table()[os.getpid()]
    assert (mine.parent, mine.group, mine.is_dead) == (same.parent, same.group, False)


def test_members_are_found_by_group_session_descent_and_marker() -> None:
    """A group's own process, and one with another session that carries its marker; strangers are not."""
    group = ProcessGroup(["bash", "-c", "setsid sleep 60 & echo; wait"], stdout=subprocess.PIPE)
    assert group.process.stdout is not None
    group.process.stdout.readline()
    names = sorted(member.name for member in find_members(group.pid, group.marker))
    assert names[0] == "bash" and len(names) == 2
    ending = group.end()
    group.process.stdout.close()
    assert ending.survivors == () and len(ending.ended) == 1
    assert find_members(group.pid, group.marker) == []


async def test_the_end_of_a_leader_is_noticed_without_process_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """On an old kernel the end is looked for, and signals go by process id."""

    def none(_pid: int) -> int:
        raise OSError(38, "not implemented")

    monkeypatch.setattr(os, "pidfd_open", none)
    result = await run_command("sleep 60 & sleep 0.02; exit 5")
    assert (result.exit_code, [process.name for process in result.ended]) == (5, ["sleep"])


# --- for models ---------------------------------------------------------------------------------------------------


async def test_the_tool_for_models_tells_what_happened(tmp_path: Path) -> None:
    """Exit code and output; an exit code that is not 0, a signal, a time limit and a background process are said."""
    tool = CommandTool(cwd=tmp_path, timeout_seconds=0.3)

    async def ask(command: str) -> dict[str, object]:
        answer: dict[str, object] = await tool.run(tool.bind({"command": command}), context(Listener()))
        return answer

    assert await ask("echo hi > f; cat f") == {"exit_code": 0, "output": "hi\n"}
    assert await ask("cat g") == {
        "error": "the command failed with exit code 1",
        "exit_code": 1,
        "output": "cat: g: No such file or directory\n",
    }
    assert (await ask("kill -9 $$"))["error"] == "the command was ended by signal 9 (SIGKILL)"
    assert str((await ask("sleep 60 & true"))["background"]).startswith("ended with the command: ")
    late = await ask("echo begun; sleep 60")
    assert "longer than its limit of 0.3 seconds" in str(late["error"]) and late["output"] == "begun\n"


@pytest.mark.parametrize("args", [{}, {"command": 3}, {"command": " "}, {"command": "a\0b"}, {"command": "a", "b": 1}])
def test_the_tool_for_models_refuses_what_is_no_command(args: dict[str, object]) -> None:
    """The model is told what is expected."""
    with pytest.raises(ToolArgumentsError, match="command"):
        CommandTool().bind(args)


def test_the_tool_for_models_says_its_limits() -> None:
    """Name and description may be given; else the time limit is in the description."""
    tool = CommandTool(timeout_seconds=7)
    assert tool.declaration().name == "run_command" and "within 7 seconds" in tool.declaration().description
    assert CommandTool(name="sh", description="A shell.").declaration().description == "A shell."
