"""One tool call of heaveto; see `peers/calls.py`. Beside it the bare function, a bare task, and two bare commits."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bare_sqlite import BareCommits
from fakes import AskingModel, f
from ours import make_store, open_runner, take_turn
from peers.calls import CallPlan, Shape, plan_from_arguments, report, time_calls

COMMITS_PER_CALL = 2
"""A call is durable before its effect, and its result behind it."""


async def main(plan: CallPlan) -> None:
    directory = str(Path(plan.path("x")).parent)
    bare = BareCommits(directory)
    commits: list[float] = []
    model = AskingModel()
    async with open_runner(model, make_store(plan.store, directory)) as runner:

        async def turn(session: str, shape: Shape) -> None:
            model.messages, model.calls = shape
            await take_turn(runner, session)

        cost = await time_calls(plan.rounds, turn, between=lambda: commits.append(bare.turn(COMMITS_PER_CALL) * 1000))
    bare.close()
    beside = {"commits": statistics.median(commits)} if plan.store == "sqlite" else {}
    report(plan, "heaveto", cost, bare=await time_bare(lambda: f(1)), task=await time_bare(in_a_task), **beside)


def in_a_task() -> Awaitable[object]:
    return asyncio.create_task(f(1))


async def time_bare(work: Callable[[], Awaitable[object]], times: int = 20_000) -> float:
    """Return the microseconds of one `await`."""
    begun = time.perf_counter()
    for _ in range(times):
        await work()
    return (time.perf_counter() - begun) * 1_000_000 / times


if __name__ == "__main__":
    asyncio.run(main(plan_from_arguments(["memory", "sqlite"])))
