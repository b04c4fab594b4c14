"""Functions in worker processes: transport, context, errors, and that a stop really ends them (F43, F46, F57, F135)."""

from __future__ import annotations

import asyncio
import functools
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.tools import process_functions as functions
from tests.tools.listener import Listener, cancel_again_and_again, context, living_with, open_files, zombies

from heaveto import CallSettled, LlmAgent, Runner
from heaveto.errors import (
    NotTransportableError,
    RemoteError,
    RunCancelled,
    ToolDefinitionError,
    ToolFatalError,
    WorkerDiedError,
)
from heaveto.events.contents import Blob
from heaveto.testing import ScriptedModel, call, say
from heaveto.tools.function import FunctionTool
from heaveto.tools.process import pool
from heaveto.tools.process.pool import MAX_IDLE, end_idle_workers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the process table is looked at in /proc")

ROOT = Path(__file__).parents[2]
GRACE_SECONDS = 2.0


@pytest.fixture
def tag(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A text in the environment of all workers of the test, which begins and ends without any."""
    end_idle_workers()
    text = uuid.uuid4().hex
    monkeypatch.setenv("TEST_OF_PROCESSES", text)
    yield text
    end_idle_workers()
    assert living_with(text) == []


async def ask(func: Callable[..., Any], host: Listener | None = None, **args: Any) -> Any:
    return await FunctionTool(func, isolation="process").run(args, context(host or Listener()))


def start(func: Callable[..., Any], host: Listener, **args: Any) -> asyncio.Task[Any]:
    return asyncio.create_task(ask(func, host, **args))


# --- definition ---------------------------------------------------------------------------------------------------


def in_main() -> None: ...


in_main.__module__ = "__main__"


def hidden() -> None: ...


original = hidden


@functools.cache
def hidden() -> None: ...  # type: ignore[no-redef]


async def asynchronous() -> None: ...


@pytest.mark.parametrize(
    ("func", "words"),
    [
        (lambda: None, r"cannot find <lambda>; define it at the top level of a module"),
        (in_main, r"from the program's main file; define it at the top level"),
        (original, r"is not this function \(is it decorated, or defined twice\?\)"),
        (hidden, r"takes a plain function, not a _lru_cache_wrapper"),
        (functools.partial(functions.large, 3), r"takes a plain function, not a partial"),
        (functions.Methods().bound, r"takes a plain function, not a method"),
        (asynchronous, r"is for blocking functions; it is async"),
    ],
)
def test_what_a_worker_cannot_find_is_refused_at_once(func: Callable[..., Any], words: str) -> None:
    """The error comes when the program starts, and says what to do."""
    with pytest.raises(ToolDefinitionError, match=words):
        FunctionTool(func, name="f", isolation="process")


def test_a_function_in_a_process_is_no_blocking_tool() -> None:
    """It is a coroutine for the runtime, so that calls of one message overlap and a stop interrupts it (F43)."""
    assert not FunctionTool(functions.pid, isolation="process").blocking
    assert FunctionTool(functions.pid).blocking


# --- transport ----------------------------------------------------------------------------------------------------


async def test_a_worker_is_another_process_and_stays_warm(tag: str) -> None:
    """The second call is executed by the same worker; static methods are found too."""
    first = await ask(functions.pid)
    assert first != os.getpid()
    assert await ask(functions.pid) == first
    assert await ask(functions.Methods.twice, number=4) == 8


async def test_arguments_and_results_keep_their_types(tag: str) -> None:
    """What the validator made of the model's arguments arrives, and comes back."""
    tool = FunctionTool(functions.older, isolation="process")
    args = tool.bind({"passenger": {"name": "Ann", "age": 41}})
    assert await tool.run(args, context(Listener())) == functions.Passenger("Ann", 42)


async def test_a_large_result_arrives(tag: str) -> None:
    """100 MB; what is larger than the limit is refused with a clear error."""
    assert len(await ask(functions.large, count=100_000_000)) == 100_000_000
    with pytest.raises(NotTransportableError, match=r"the result of type bytes .* limit is 1000; write it to a file"):
        await ask(functions.large_for_a_small_limit)


async def test_what_cannot_be_sent_is_named(tag: str) -> None:
    """Result and arguments; the worker is as good as before."""
    with pytest.raises(NotTransportableError, match="the result of type lock cannot pass between processes"):
        await ask(functions.unsendable_result)
    with pytest.raises(NotTransportableError, match="the arguments of type dict"):
        await ask(functions.large, count=lambda: 1)
    assert living_with(tag) != []


async def test_printing_does_not_disturb_the_protocol(tag: str) -> None:
    """Whatever is written to stdout and stderr, and read from stdin."""
    assert await ask(functions.chatter) == "said"
    assert await ask(functions.pid)


async def test_calls_work_at_the_same_time_and_few_workers_are_kept(tag: str, tmp_path: Path) -> None:
    """As many workers as calls; afterwards no more than the bound, the others have ended."""
    hosts = [Listener() for _ in range(MAX_IDLE + 2)]
    tasks = [start(functions.polite, host) for host in hosts]
    await asyncio.gather(*(host.heard("waiting") for host in hosts))
    assert len(living_with(tag)) == len(hosts)
    for host in hosts:
        host.stop("deadline")
    assert await asyncio.gather(*tasks) == ["cancelled: True"] * len(hosts)
    assert len(living_with(tag)) == MAX_IDLE
    assert zombies() == []


async def test_what_a_call_leaves_is_not_heard_in_the_next_one(tag: str, tmp_path: Path) -> None:
    """A thread that goes on after its function has returned may put out nothing any more."""
    host = Listener()
    await ask(functions.late_talk, Listener(), path=str(tmp_path / "talk"))
    (tmp_path / "talk").touch()
    assert await ask(functions.wait_for, host, path=str(tmp_path / "talk.refused")) == "there"
    assert (tmp_path / "talk.refused").read_text() in ("RunCancelled", "")
    assert host.pieces == []


def test_workers_serve_one_event_loop_after_another(tag: str) -> None:
    """A warm worker belongs to the process, not to a loop."""
    assert asyncio.run(ask(functions.pid)) == asyncio.run(ask(functions.pid))


# --- the context --------------------------------------------------------------------------------------------------


async def test_the_context_works_in_the_worker(tag: str) -> None:
    """What it knows, output, progress, state, questions, artifacts and what the function sets."""
    host = Listener()
    ctx = context(host, given=1)
    tool = FunctionTool(functions.everything, isolation="process")
    assert "ctx" not in str(tool.declaration().parameters)
    assert await tool.run({}, ctx) == {
        "known": ["c1", "r1:c1", 2, "clerk", "r1", "ann"],
        "progress": {"row": 7},
        "state": {"seen": 1},
        "missing": False,
        "reply": "SURE?",
        "artifact": [0, Blob(mime_type="text/plain; charset=utf-8", content=b"text")],
        "cancelled": False,
    }
    assert host.pieces == ["hello ", {"rows": 3}] and host.values == [{"row": 8}]
    assert dict(ctx.state) == {"seen": 1} and ctx.end_turn


async def test_what_the_context_cannot_do_there_is_an_error(tag: str) -> None:
    """An agent works in the program's own process."""
    with pytest.raises(NotTransportableError, match="run_agent works in the program's own process only"):
        await ask(functions.run_agent)
    with pytest.raises(KeyError, match="given"):
        await ask(functions.everything)


async def test_a_generator_in_a_worker_is_shown_piece_by_piece(tag: str) -> None:
    """As in a thread."""
    host = Listener()
    assert await ask(functions.pieces, host, count=2) == "piece 0. piece 1. "
    assert host.pieces == ["piece 0. ", "piece 1. "]


# --- errors -------------------------------------------------------------------------------------------------------


async def test_an_error_arrives_with_its_type_and_the_workers_traceback(tag: str) -> None:
    """Retries look at the type, people at the traceback; fatal errors stay fatal."""
    with pytest.raises(KeyError, match="seat 12") as caught:
        await ask(functions.fail)
    assert 'process_functions.py", line' in caught.value.__notes__[0] and "in fail" in caught.value.__notes__[0]
    with pytest.raises(ToolFatalError, match="no way on"):
        await ask(functions.fail_fatally)


async def test_an_error_that_cannot_be_sent_is_told_by_name(tag: str) -> None:
    """Name, message and traceback; the same for what would end the worker's interpreter."""
    with pytest.raises(RemoteError, match="this and that") as caught:
        await ask(functions.fail_oddly)
    assert type(caught.value).__name__ == "Unsendable"
    with pytest.raises(RemoteError, match="4") as caught:
        await ask(functions.leave)
    assert type(caught.value).__name__ == "SystemExit"


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("segfault", "the worker process died (signal 11)"),
        ("kill", "the worker process died (signal 9)"),
        ("exit", "the worker process died (exit code 3)"),
        ("with child", "the worker process died (exit code 3)"),
    ],
)
async def test_a_worker_that_dies_is_an_error_and_no_hang(tag: str, how: str, words: str) -> None:
    """Also if a child holds its socket open; the next call gets a fresh worker."""
    with pytest.raises(WorkerDiedError, match=re.escape(words)):
        async with asyncio.timeout(5):
            await ask(functions.die, how=how)
    assert living_with(tag) == [] and zombies() == []
    assert await ask(functions.pid)


async def test_an_idle_worker_that_has_died_is_not_used(tag: str) -> None:
    """The call gets another one."""
    first = await ask(functions.pid)
    os.kill(first, signal.SIGKILL)
    while zombies() != [first]:  # noqa: ASYNC110 - nobody tells of it
        await asyncio.sleep(0)
    assert await ask(functions.pid) != first
    assert zombies() == []


# --- stops --------------------------------------------------------------------------------------------------------


async def test_a_stop_ends_the_function_and_what_it_started(tag: str, tmp_path: Path) -> None:
    """Its clean-up is done, its children are dead, those that left the session and ignore TERM too (F46)."""
    host, file = Listener(), tmp_path / "f"
    task = start(functions.wait, host, path=str(file))
    await host.heard("waiting")
    began = time.monotonic()
    host.stop()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - began < GRACE_SECONDS
    assert living_with(tag) == [] and zombies() == []
    assert file.read_text() == "cleaned up"
    assert await ask(functions.pid)


async def test_a_function_that_takes_no_notice_is_killed(tag: str) -> None:
    """TERM, half a second, KILL; cancelled again and again, the call ends only when the worker is dead."""
    host = Listener()
    task = start(functions.deaf, host)
    await host.heard("deaf")
    began = time.monotonic()
    await cancel_again_and_again(task)
    assert 0.4 < time.monotonic() - began < GRACE_SECONDS
    assert living_with(tag) == [] and zombies() == []


async def test_a_function_hears_of_a_stop_without_being_interrupted(tag: str) -> None:
    """`ctx.on_cancel` hooks and `ctx.raise_if_cancelled` work in the worker: for tools with on_cancel="finish"."""
    host = Listener()
    task = start(functions.polite, host)
    await host.heard("waiting")
    host.stop("deadline")
    assert await task == "cancelled: True"
    host = Listener()
    task = start(functions.stop_by_itself, host)
    await host.heard("waiting")
    host.stop("deadline")
    with pytest.raises(RunCancelled) as caught:
        await task
    assert (caught.value.run_id, caught.value.cause) == ("r1", "deadline")


async def test_a_stop_that_came_before_starts_nothing(tag: str) -> None:
    """No worker for a call that was stopped."""
    host = Listener()
    host.stop()
    with pytest.raises(RunCancelled):
        await ask(functions.pid, host)
    assert living_with(tag) == []


async def test_an_attempt_is_dead_before_the_next_one_begins(tag: str) -> None:
    """Attempts that run into a time limit never work at the same time (F57)."""
    for _ in range(3):
        assert living_with(tag) == []
        host = Listener()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.4):
                await ask(functions.deaf, host)


async def test_fifty_calls_leave_neither_files_nor_zombies_nor_processes(tag: str) -> None:
    """Half of them end, half are stopped (F135)."""
    before, threads = open_files(), len(os.listdir("/proc/self/task"))
    for number in range(50):
        host = Listener()
        task = start(functions.polite, host)
        await host.heard("waiting")
        if number % 2:
            task.cancel()
        else:
            host.stop()
        await asyncio.wait({task})
    end_idle_workers()
    assert living_with(tag) == [] and zombies() == []
    assert open_files() <= before + 1  # the loop's own
    assert len(os.listdir("/proc/self/task")) <= threads + 1


async def test_the_runs_stop_tells_the_truth(tag: str) -> None:
    """The same function is still running in a thread, and is stopped in a process (F43)."""
    tool = FunctionTool(functions.wait_for, isolation="process")
    runner = Runner(LlmAgent("worker", ScriptedModel(call("wait_for", path="/nowhere"), say("ok")), tools=[tool]))
    async with runner:
        run = await runner.start(user_id="ann", session_id="s1", new_message="go")
        while not living_with(tag):  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0)
        report = await run.cancel()
        log = await runner.records(user_id="ann", session_id="s1")
    assert [(operation.name, operation.state) for operation in report.operations] == [("wait_for", "stopped")]
    assert [record.status for record in log if isinstance(record, CallSettled)] == ["cancelled"]
    assert living_with(tag) == []


# --- the parent's end ---------------------------------------------------------------------------------------------

PARENT = """
    import asyncio, os, sys
    from tests.tools import process_functions as functions
    from tests.tools.listener import Listener, context
    from heaveto.tools.function import FunctionTool

    print("main is run")

    async def main(how: str) -> None:
        host = Listener()
        await FunctionTool(functions.pid, isolation="process").run({}, context(Listener()))
        if how != "idle":
            call = FunctionTool(functions.wait, isolation="process").run({"path": sys.argv[2]}, context(host))
            task = asyncio.create_task(call)
            await host.heard("waiting")
        print("ready", flush=True)
        if how == "killed":
            os.kill(os.getpid(), 9)
        if how == "unclean":
            os._exit(0)

    asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.parametrize("how", ["idle", "busy", "killed", "unclean"])
def test_workers_end_with_their_parent(tag: str, tmp_path: Path, how: str) -> None:
    """At the end of the program, in the midst of a call, and after kill -9; the main file is run once."""
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(PARENT), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    # Workers hold the program's stdout: communicate() returns when all of them have ended.
    done = subprocess.run(
        [sys.executable, str(script), how, str(tmp_path / "f")],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    assert done.stdout == "main is run\nready\n"
    assert done.stderr == ""
    assert done.returncode == (-9 if how == "killed" else 0)
    end = time.monotonic() + 5
    while living_with(tag) and time.monotonic() < end:
        time.sleep(0.01)
    assert living_with(tag) == []


async def test_a_forked_process_leaves_the_workers_alone(tag: str) -> None:
    """A child by fork has no idle workers of its own, and its end does not end its parent's."""
    first = await ask(functions.pid)
    child = os.fork()
    if child == 0:
        os._exit(len(pool._idle))  # pyright: ignore[reportPrivateUsage]
    _, status = os.waitpid(child, 0)  # noqa: ASYNC222 - it ends at once
    assert os.waitstatus_to_exitcode(status) == 0
    assert await ask(functions.pid) == first
