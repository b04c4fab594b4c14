"""How long from `cancel()` until the run's end is recorded, for each kind of tool that is at work just then.

    python benchmarks/stop_tools.py [--runs 30] [--only thread]

One run after another, in memory: each starts, its tool says that it is at work, and it is stopped. What a stop may wait
for is the tool itself, so each figure stands beside what that kind of work takes to end without us: a bare task that is
cancelled, a thread that an event wakes, a process that gets TERM.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import stop_kinds
from cancel_latency import quantile
from fakes import BusyModel
from ours import open_runner_for
from turn_cost import align, ratio

from heaveto import AgentTool, FunctionTool, LlmAgent, MemoryStore, Runner
from heaveto.tools.base import Tool
from heaveto.tools.toolset import Toolset

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Kind:
    """A kind of tool, how to make it, and the reference it is measured against."""

    name: str
    make: Callable[[], Tool | Toolset]
    reference: str
    tool: str = ""


def helper() -> Tool:
    """An agent that works as a tool; its model calls a coroutine."""
    inner = FunctionTool(stop_kinds.coroutine)
    return AgentTool(LlmAgent(name="agent", model=BusyModel("coroutine"), tools=[inner]))


def remote() -> Toolset:
    from heaveto.tools.mcp import MCPToolset  # an extra

    return MCPToolset.stdio(sys.executable, [str(HERE / "mcp_server.py")], name="bench")


KINDS = (
    Kind("coroutine", lambda: FunctionTool(stop_kinds.coroutine), "bare task"),
    Kind("coroutine that swallows one interruption", lambda: FunctionTool(stop_kinds.swallows_once), "bare task"),
    Kind("thread with an on_cancel hook", lambda: FunctionTool(stop_kinds.polite_thread), "bare thread"),
    Kind("thread that looks every 10 ms", lambda: FunctionTool(stop_kinds.polling_thread), "bare thread"),
    Kind("agent as a tool, with a coroutine", helper, "bare task", "agent"),
    Kind("process", lambda: FunctionTool(stop_kinds.deaf_process, isolation="process"), "bare process"),
    Kind("command", lambda: FunctionTool(stop_kinds.command), "bare process"),
    Kind("command that ignores TERM for 0.5 s", lambda: FunctionTool(stop_kinds.deaf_command), "bare process"),
    Kind("MCP server's tool", remote, "bare task", "remote"),
)


async def stop_runs(kind: Kind, runs: int) -> tuple[list[float], Counter[str]]:
    """Return the milliseconds of each stop, and what the reports call the work."""
    piece = kind.make()
    tool = kind.tool or (piece.name if isinstance(piece, Tool) else "")
    times: list[float] = []
    states: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="stop-") as directory:
        async with open_runner_for(piece, BusyModel(tool), MemoryStore()) as runner:
            for number in range(-1, runs):
                taken, state = await stop_one(runner, str(number), Path(directory) / f"begun{number}")
                if number >= 0:
                    times.append(taken)
                    states[state] += 1
    return times, states


async def stop_one(runner: Runner, session: str, begun: Path) -> tuple[float, str]:
    """Start a run, and stop it when its tool is at work."""
    run = await runner.start(user_id="u", session_id=session, new_message=str(begun))
    await appears(begun)
    started = time.perf_counter()
    report = await run.cancel(by="bench")
    taken = (time.perf_counter() - started) * 1000
    return taken, next((one.state for one in report.operations if one.kind == "tool"), "nothing")


async def appears(path: Path) -> None:
    """Wait for a file, and a little more, so that whoever made it is where it wants to be."""
    async with asyncio.timeout(20):
        while not path.exists():
            await asyncio.sleep(0.002)
    await asyncio.sleep(0.02)


# --- the same without us: each returns the milliseconds from the stop to the end -----------------------------------


async def stop_task() -> float:
    """Cancel a bare task and await it."""
    task = asyncio.create_task(asyncio.Event().wait())
    await asyncio.sleep(0)
    begun = time.perf_counter()
    task.cancel()
    await asyncio.wait([task])
    return (time.perf_counter() - begun) * 1000


async def stop_thread() -> float:
    """Wake a bare thread by an event and await it."""
    told = threading.Event()
    thread = asyncio.ensure_future(asyncio.to_thread(told.wait))
    await asyncio.sleep(0.02)
    begun = time.perf_counter()
    told.set()
    await thread
    return (time.perf_counter() - begun) * 1000


async def stop_process() -> float:
    """Send TERM to a bare process and await its end."""
    process = await asyncio.create_subprocess_exec("sleep", "3600")
    await asyncio.sleep(0.02)
    begun = time.perf_counter()
    process.terminate()
    await process.wait()
    return (time.perf_counter() - begun) * 1000


REFERENCES: dict[str, Callable[[], Awaitable[float]]] = {
    "bare task": stop_task,
    "bare thread": stop_thread,
    "bare process": stop_process,
}


async def measure(kinds: Sequence[Kind], runs: int) -> list[list[str]]:
    """Return a row for each kind: what was measured, right after its reference."""
    rows = [["tool at work", "p50, ms", "p99, ms", "reference, p50, ms", "to reference", "reported as"]]
    for kind in kinds:
        print(kind.name, file=sys.stderr)
        bare = quantile([await REFERENCES[kind.reference]() for _ in range(runs)], 0.5)
        try:
            times, states = await stop_runs(kind, runs)
        except Exception as error:  # an extra that is missing, a kind that this platform has not
            rows.append([kind.name, f"{type(error).__name__}: {error}", "", "", "", ""])
            continue
        p50, p99 = quantile(times, 0.5), quantile(times, 0.99)
        beside = f"{kind.reference} {bare:.2f}"
        rows.append([kind.name, f"{p50:.2f}", f"{p99:.2f}", beside, ratio(p50, bare), ", ".join(states)])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=30, help="stops of each kind")
    parser.add_argument("--only", default="", help="a word of the kinds to measure, such as thread")
    given = parser.parse_args()
    print(align(asyncio.run(measure([kind for kind in KINDS if given.only in kind.name], given.runs))))


if __name__ == "__main__":
    main()
