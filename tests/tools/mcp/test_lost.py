"""Servers that die, hang or are not there; and that nothing is left of them when they are closed (F135)."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from tests.tools.mcp.conftest import HERE, PLAIN, Servers, call
from tests.tools.mcp.processes import children, is_alive, open_files
from tests.tools.mcp.witness import Host

from heaveto.errors import InDoubtError, ToolsetError
from heaveto.tools.mcp import MCPToolset
from heaveto.tools.mcp.failures import RejectedError
from heaveto.tools.retry import Retry

pytestmark = pytest.mark.usefixtures("swept")

ONCE = Retry(attempts=1)


async def test_a_call_whose_server_dies_is_in_doubt_and_not_sent_again(servers: Servers) -> None:
    """It may have reached the server: it is told as unknown; the next call gets a new server."""
    plain = servers.plain()
    bystander = asyncio.create_task(call(plain, "hang"))
    await servers.witness.called("hang")
    with pytest.raises(InDoubtError, match="'die' of server 'plain' may or may not have taken effect"):
        await call(plain, "die")
    with pytest.raises(InDoubtError):
        await bystander
    assert await call(plain, "echo", text="back") == {"result": "back"}
    assert [m["params"]["name"] for m in servers.witness.heard if m.get("method") == "tools/call"] == [
        "hang",
        "die",
        "echo",
    ]


async def test_a_call_reconnects_without_an_open(servers: Servers) -> None:
    """Tools outlive connections: a call that finds none makes one first."""
    plain = servers.plain()
    await plain.open()
    (process,) = children()
    os.kill(process, signal.SIGKILL)
    await servers.witness.gone()
    echo = next(tool for tool in plain.tools if tool.name == "echo")
    results = []
    for _ in range(2):  # the first may still go to the dead one, and is then told as not executed or in doubt
        try:
            results.append(await echo.run({"text": "x"}, Host().context()))
        except (ToolsetError, InDoubtError):
            continue
    assert results[-1] == {"result": "x"}


async def test_a_command_that_is_not_there_is_told_at_once() -> None:
    """Trying again would not help, and is not done."""
    toolset = MCPToolset.stdio("/no/such/server", name="nowhere")
    with pytest.raises(RejectedError, match="toolset nowhere: cannot be reached: FileNotFoundError"):
        await toolset.open()
    await toolset.aclose()


async def test_a_server_that_leaves_at_once_is_tried_a_few_times(tmp_path: Path) -> None:
    """It may be starting anew; after the last attempt it is told."""
    code = "open('starts', 'a').write('x')"
    retry = Retry(attempts=3, backoff_seconds=0.01)
    toolset = MCPToolset.stdio(sys.executable, ["-S", "-c", code], name="brief", cwd=tmp_path, reconnect=retry)
    with pytest.raises(ToolsetError, match="toolset brief: cannot be reached"):
        await toolset.open()
    assert (tmp_path / "starts").read_text() == "xxx"
    await toolset.aclose()


async def test_a_server_that_does_not_answer_is_given_up_in_time() -> None:
    """The time limit of connecting holds; its process is gone afterwards."""
    code = "import sys\nfor line in sys.stdin: pass"
    toolset = MCPToolset.stdio(
        sys.executable, ["-S", "-c", code], name="mute", connect_timeout_seconds=0.3, reconnect=ONCE
    )
    with pytest.raises(ToolsetError, match=r"no connection within 0\.3 seconds"):
        await toolset.open()
    assert children() == []
    await toolset.aclose()


async def test_a_silent_server_costs_the_time_limit_once(tmp_path: Path) -> None:
    """Attempts and pauses share one limit: a process that reads and never answers is started once, and given up."""
    code = "import sys\nopen('starts', 'a').write('x')\nfor line in sys.stdin: pass"
    retry = Retry(attempts=4, backoff_seconds=0.01)
    toolset = MCPToolset.stdio(
        sys.executable, ["-S", "-c", code], name="mute", cwd=tmp_path, connect_timeout_seconds=1.0, reconnect=retry
    )
    with pytest.raises(ToolsetError, match="no connection within 1 seconds"):
        await toolset.open()
    assert (tmp_path / "starts").read_text() == "x"
    assert children() == []
    await toolset.aclose()


async def test_an_attempt_behind_one_that_failed_has_what_is_left_of_the_time(tmp_path: Path) -> None:
    """A server that dies at its first start and is silent at the second: both within one limit."""
    first = "if not pathlib.Path('was').exists():\n    pathlib.Path('was').touch()\n    sys.exit()"
    code = f"import pathlib, sys\n{first}\nopen('again', 'a').write('x')\nfor line in sys.stdin: pass"
    retry = Retry(attempts=4, backoff_seconds=0.01)
    toolset = MCPToolset.stdio(
        sys.executable, ["-S", "-c", code], name="mute", cwd=tmp_path, connect_timeout_seconds=2.0, reconnect=retry
    )
    with pytest.raises(ToolsetError, match="no connection within 2 seconds"):
        await toolset.open()
    assert (tmp_path / "again").read_text() == "x"
    await toolset.aclose()


async def test_an_http_server_that_does_not_answer_is_given_up_in_time() -> None:
    """The time limit holds in every phase; nothing of the attempt stays behind."""

    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(never, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        toolset = MCPToolset.http(url, name="mute", connect_timeout_seconds=0.3, reconnect=ONCE)
        with pytest.raises(ToolsetError, match=r"no connection within 0\.3 seconds"):
            await toolset.open()
        await toolset.aclose()


async def test_a_close_does_not_wait_for_a_connection_that_is_being_made(servers: Servers) -> None:
    """A server that never answers does not hold up the end of the program."""
    code = "import sys\nfor line in sys.stdin: pass"
    toolset = MCPToolset.stdio(sys.executable, ["-S", "-c", code], name="mute")
    opening = asyncio.create_task(toolset.open())
    while not children():  # noqa: ASYNC110 - of another process there is nothing else to wait for
        await asyncio.sleep(0.01)
    async with asyncio.timeout(10):
        await toolset.aclose()
    with pytest.raises(ToolsetError, match="closed"):
        await opening
    assert children() == []


async def test_an_agent_may_work_without_a_server(caplog: pytest.LogCaptureFixture) -> None:
    """`required=False`: the agent has no tools of it, the log says why, and not at every request."""
    toolset = MCPToolset.stdio("/no/such/server", name="nowhere", required=False)
    await toolset.open()
    await toolset.open()
    assert toolset.tools == ()
    assert sum("works without it" in message for _, _, message in caplog.record_tuples) == 1
    await toolset.aclose()


async def test_a_close_ends_the_whole_process_group(servers: Servers) -> None:
    """What the server started goes with it, though the server itself left politely."""
    plain = servers.plain()
    child = int((await call(plain, "spawn"))["result"])
    assert is_alive(child)
    await plain.aclose()
    async with asyncio.timeout(5):
        while is_alive(child):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert children() == []


async def test_a_server_that_does_not_want_to_leave_is_killed(servers: Servers) -> None:
    """The end of its input, SIGTERM, SIGKILL: one of them helps."""
    code = (
        "import signal, runpy, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"sys.argv = {PLAIN!r}\n"
        f"runpy.run_path({PLAIN[0]!r}, run_name='__main__')\n"
        "time.sleep(600)"
    )
    stubborn = MCPToolset.stdio(sys.executable, ["-S", "-c", code], name="stubborn", exit_grace_seconds=0.1)
    assert await call(stubborn, "echo", text="no") == {"result": "no"}
    await stubborn.aclose()
    assert children() == []


async def test_a_loop_that_ends_takes_the_server_with_it(tmp_path: Path) -> None:
    """Without `aclose` too: the owner is cancelled with the loop, and ends the process group."""
    program = f"""
import asyncio, sys
from heaveto.tools.mcp import MCPToolset
toolset = MCPToolset.stdio(sys.executable, ["-S", {PLAIN[0]!r}])
async def main():
    await toolset.open()
for _ in range(2):
    asyncio.run(main())
sys.path.insert(0, {str(HERE)!r})
import processes
assert processes.children() == []
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", "-c", program, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()
    assert (process.returncode, errors.decode()) == (0, "")


@pytest.mark.skipif(os.name != "posix", reason="kill -9")
async def test_a_killed_owner_leaves_no_server(servers: Servers) -> None:
    """kill -9 of us: the server sees the end of its input, and leaves."""
    port = servers._port  # pyright: ignore[reportPrivateUsage]
    program = f"""
import asyncio, sys
from heaveto.tools.mcp import MCPToolset
async def main():
    toolset = MCPToolset.stdio(sys.executable, ["-S", {PLAIN[0]!r}, "{port}"])
    await toolset.open()
    await asyncio.Event().wait()
asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    await servers.witness.got("tools/list")
    process.send_signal(signal.SIGKILL)
    await process.wait()
    await servers.witness.gone()


async def test_a_toolset_can_be_opened_again_after_its_close(servers: Servers) -> None:
    """Several runners may share one; closing is idempotent, from any task, at any time."""
    plain = servers.plain()
    await plain.aclose()
    await plain.open()
    await asyncio.gather(plain.aclose(), plain.aclose())
    opening = asyncio.create_task(plain.open())
    await asyncio.sleep(0)
    await plain.aclose()
    with pytest.raises(ToolsetError, match="closed"):
        await opening
    assert await call(plain, "echo", text="again") == {"result": "again"}


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_two_hundred_openings_leave_nothing() -> None:
    """F135: open, call, cancel, close; tasks, files and processes are as many as before."""

    async def once() -> None:
        toolset = MCPToolset.stdio(sys.executable, ["-S", *PLAIN], name="plain", cancel_wait_seconds=0)
        assert await call(toolset, "echo", text="x") == {"result": "x"}
        host = Host()
        asking = asyncio.create_task(call(toolset, "ask", host))
        await host.asking.wait()
        asking.cancel()
        with pytest.raises((asyncio.CancelledError, InDoubtError)):
            await asking
        await toolset.aclose()

    await once()
    before = (len(asyncio.all_tasks()), open_files(), len(children()))
    for _ in range(50):
        await asyncio.gather(*(once() for _ in range(4)))
    after = (len(asyncio.all_tasks()), open_files(), len(children()))
    assert after == before
