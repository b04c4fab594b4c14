"""Plays the rows of one ending, and returns what became of each."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from subprocess import PIPE

from tests.stopping.kinds import is_alive
from tests.stopping.scene import AFTERWARDS, APP, NEXT, Facts, Scene
from tests.stopping.table import SHORT, Ending, Row
from tests.stopping.victim import READY, open_store
from tests.tools.mcp.processes import serves_multiprocessing

from heaveto import MemoryStore, Run
from heaveto.events.records import CallSettled, Record, RunEnded, SessionKey
from heaveto.stores.base import Store
from heaveto.stores.memory import MemoryData
from heaveto.tools.process.pool import end_idle_workers

ROOT = Path(__file__).parents[2]
SLOW_SECONDS = 20.0
LEAVING_SECONDS = 5.0
"""How long what a killed process had started may take to notice and to leave."""


@dataclass
class Left:
    """What is left of all rows together, when all that was let go has ended."""

    tasks: list[str]
    threads: list[str]
    processes: list[int]
    files: int


@dataclass
class Played:
    """What became of the rows: facts by row, the runs whose end hooks were called, how often each call was executed."""

    facts: dict[str, Facts]
    told: list[str]
    executions: Counter[str]
    left: Left


def descendants(pid: int | None = None) -> list[int]:
    """Return the processes that this one, or another, has started, and what they have started."""
    tasks = Path(f"/proc/{pid or os.getpid()}/task")
    try:
        found = [int(child) for task in tasks.iterdir() for child in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
    found = [child for child in found if not serves_multiprocessing(child)]
    return found + [grandchild for child in found for grandchild in descendants(child)]


async def until_gone(look: Callable[[], object], seconds: float = SLOW_SECONDS) -> None:
    """Wait until something has ended by itself that was let go: a thread, a process."""
    end = time.monotonic() + seconds
    while look() and time.monotonic() < end:  # noqa: ASYNC110 - they tell nobody
        await asyncio.sleep(SHORT)


def tool_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("heaveto tool")]


async def play_stop(ending: Ending, rows: list[Row], place: Path) -> Played:
    """Stop all rows at once, in this process."""
    descriptors = _open_files()
    before = asyncio.all_tasks()
    data = MemoryData()
    scene = Scene(place, MemoryStore(data))
    await scene.bring(rows)
    facts = {row.id: Facts() for row in rows}
    await _end(ending, scene, facts)
    if ending == "shutdown":
        await _look_at_what_is_left(scene, rows, facts, MemoryStore(data))
        scene.world.let_go()
        await until_gone(tool_threads)
        await asyncio.sleep(0)
        told = scene.ends.told
        scene = Scene(place, MemoryStore(data), hold=False, clock=scene.clock)
        scene.ends.told.extend(told)
    else:
        await _look_at_what_is_left(scene, rows, facts, scene.runner.store)
    await _go_on(scene, rows, facts)
    await scene.close()
    end_idle_workers()
    await asyncio.sleep(0)
    tasks = [task.get_name() for task in asyncio.all_tasks() - before]
    left = Left(tasks, tool_threads(), descendants(), _open_files() - descriptors)
    return Played(facts, scene.ends.told, scene.world.executions(), left)


async def play_kill(ending: Ending, rows: list[Row], place: Path) -> Played:
    """Kill a process in which all rows are in their states, and recover in this one."""
    descriptors = _open_files()
    before = asyncio.all_tasks()
    children = await _die(place, ending)
    scene = Scene(place, open_store(place), hold=False)
    facts = {row.id: Facts() for row in rows}
    await until_gone(lambda: set(filter(is_alive, children)) - set(_lasting(scene, rows)), LEAVING_SECONDS)
    for row in rows:
        facts[row.id].left = "processes" if scene.world.processes(row.id) else ""
    for pid in filter(is_alive, children):
        os.kill(pid, signal.SIGKILL)
    recovered = await scene.runner.recover()
    for row in rows:
        facts[row.id].log = await _until_ended(scene, row)
    await _go_on(scene, rows, facts)
    await scene.close()
    end_idle_workers()
    await asyncio.sleep(0)
    tasks = [task.get_name() for task in asyncio.all_tasks() - before]
    left = Left(tasks, tool_threads(), descendants(), _open_files() - descriptors)
    assert recovered
    return Played(facts, scene.ends.told, scene.world.executions(), left)


async def _die(place: Path, ending: Ending) -> list[int]:
    """Let a process bring the rows to their states, and kill it. Return what it had started."""
    victim = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.stopping.victim", str(place), ending, stdout=PIPE, cwd=ROOT
    )
    assert victim.stdout is not None
    async with asyncio.timeout(60):
        assert await victim.stdout.readline() == READY
    children = descendants(victim.pid)
    victim.kill()
    await victim.wait()
    return children


def _lasting(scene: Scene, rows: list[Row]) -> list[int]:
    """The processes of which a row says that they work on."""
    return [pid for row in rows if row.cell.left == "processes" for pid in scene.world.processes(row.id)]


async def _until_ended(scene: Scene, row: Row) -> list[Record]:
    """Wait until the recovery has brought the row's run to its end; return the log."""
    end = time.monotonic() + SLOW_SECONDS
    while True:
        log = await scene.log(row)
        if any(isinstance(record, RunEnded) for record in log) or time.monotonic() > end:
            return log
        await asyncio.sleep(SHORT)


async def _end(ending: Ending, scene: Scene, facts: dict[str, Facts]) -> None:
    match ending:
        case "cancel":
            reports = await asyncio.gather(*(run.cancel(by="ann") for run in scene.runs.values()))
            for row_id, report in zip(scene.runs, reports, strict=True):
                facts[row_id].report = report
            return
        case "call":
            scene.world.waits = False
            await asyncio.gather(*(_stop_calls(scene, run) for run in scene.runs.values()))
            return
        case "deadline":
            scene.clock.move(1001)
            await asyncio.gather(*(run.wait() for run in scene.runs.values()))
        case _:
            await scene.close()
    for row_id, run in scene.runs.items():
        facts[row_id].report = run.report


async def _stop_calls(scene: Scene, run: Run) -> None:
    """Stop the open calls of a run, the last one first, and wait for its end."""
    calls = [call.call.call_id for call in run.state.calls.values() if call.settled is None or call.is_in_background]
    await asyncio.gather(*(scene.runner.cancel_call(run.run_id, call_id, by="ann") for call_id in reversed(calls)))
    await run.wait()


async def _look_at_what_is_left(scene: Scene, rows: list[Row], facts: dict[str, Facts], store: Store) -> None:
    """Note what each row's log says and what works for it now; nothing is waited for."""
    for row in rows:
        facts[row.id].log = await store.read(SessionKey(APP, row.id, row.id))
    for row in rows:
        facts[row.id].left = scene.left_of(row, facts[row.id].call_id(row.kind))


async def _go_on(scene: Scene, rows: list[Row], facts: dict[str, Facts]) -> None:
    """Send the next message to each; let go what works on; send another one."""
    scene.world.hold = False
    for row in rows:
        facts[row.id].next_request = await scene.say(row, NEXT)
    scene.world.let_go()
    for row in rows:
        if row.cell.late is not None:
            await _late(scene, row)
        await until_gone(partial(scene.left_of, row, facts[row.id].call_id(row.kind)))
    for row in rows:
        facts[row.id].left_in_the_end = scene.left_of(row, facts[row.id].call_id(row.kind))
        facts[row.id].later_request = await scene.say(row, AFTERWARDS)
        facts[row.id].log = await scene.log(row)


async def _late(scene: Scene, row: Row) -> None:
    """Wait for the late result of a row's call."""

    async def come() -> bool:
        log = await scene.log(row)
        return any(isinstance(record, CallSettled) and record.late and record.name == row.kind for record in log)

    end = time.monotonic() + SLOW_SECONDS
    while not await come() and time.monotonic() < end:  # noqa: ASYNC110 - of many, one after another
        await asyncio.sleep(SHORT)


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))
