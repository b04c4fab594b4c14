"""Endings that come at once and cross each other, while all kinds of tools are in all states: no row is foreseen, the
promises hold all the same."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from tests.stopping.play import descendants, tool_threads, until_gone
from tests.stopping.scene import NEXT, Scene, executions_of
from tests.stopping.table import Row, rows

from heaveto import MemoryStore, Run
from heaveto.errors import DetachError, RunnerClosedError, StoreClosedError, UnknownCallError, UnknownRunError
from heaveto.events.records import Record
from heaveto.stores.memory import MemoryData
from heaveto.testing.promises import check_promises
from heaveto.tools.process.pool import end_idle_workers

pytestmark = [
    pytest.mark.usefixtures("swept"),
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for processes in /proc"),
]

LONGEST_SECONDS = 0.4
REFUSED = (DetachError, UnknownCallError, UnknownRunError, RunnerClosedError, StoreClosedError)


class Storm:
    """Endings at random moments, from a seed."""

    def __init__(self, scene: Scene, chance: random.Random) -> None:
        self._scene, self._chance = scene, chance

    async def rages(self) -> None:
        """Two endings for each run, the deadline of all, and the shutdown."""
        endings = [self._end(run) for run in self._scene.runs.values() for _ in range(2)]
        await asyncio.gather(*endings, self._pass_deadline(), self._close())

    async def _end(self, run: Run) -> None:
        await self._pause()
        calls = [call.call.call_id for call in run.state.calls.values()] or ["none"]
        with suppress(*REFUSED):
            match self._chance.choice(("cancel", "turn", "call", "detach")):
                case "cancel":
                    await run.cancel(by="ann")
                case "turn":
                    await run.cancel(by="ann", scope="turn")
                case "call":
                    await self._scene.runner.cancel_call(run.run_id, self._chance.choice(calls))
                case _:
                    await self._scene.runner.detach(run.run_id, self._chance.choice(calls))

    async def _pass_deadline(self) -> None:
        await self._pause()
        self._scene.clock.move(1001)

    async def _close(self) -> None:
        await self._pause()
        await self._scene.close()

    async def _pause(self) -> None:
        await asyncio.sleep(self._chance.uniform(0, LONGEST_SECONDS))  # real time is the matter of this test


@pytest.mark.parametrize("number", range(2))
async def test_endings_that_cross(tmp_path: Path, number: int) -> None:
    """Whichever comes first: one ending, each call settled once, the next message accepted, nothing left (P1 to P7)."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    everything, before, data = rows("deadline"), asyncio.all_tasks(), MemoryData()
    scene = Scene(tmp_path, MemoryStore(data))
    await scene.bring(everything)
    try:
        await Storm(scene, random.Random(seed)).rages()
    finally:
        scene.world.let_go()
    await until_gone(tool_threads)
    next_scene = Scene(tmp_path, MemoryStore(data), hold=False, clock=scene.clock)
    next_scene.ends.told.extend(scene.ends.told)
    logs = await _go_on(next_scene, everything)
    for log in logs:
        check_promises(log, executions=executions_of(log, scene.world.executions()), told=next_scene.ends.told)
    end_idle_workers()
    await until_gone(lambda: asyncio.all_tasks() - before)
    assert (asyncio.all_tasks() - before, tool_threads(), descendants()) == (set(), [], [])


async def _go_on(scene: Scene, everything: Sequence[Row]) -> list[list[Record]]:
    await scene.runner.recover()
    for row in everything:
        await scene.say(row, NEXT)
    logs = [await scene.log(row) for row in everything]
    await scene.close()
    return logs
