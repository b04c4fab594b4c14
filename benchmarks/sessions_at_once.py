"""Many sessions at once on one SQLite file: turns per second, beside a bare writer that groups its commits.

    python benchmarks/sessions_at_once.py [--sessions 200] [--turns 10]

Every session takes its turns one after another, all sessions at once. A turn is as in turn_cost.py: two model calls,
one tool, four durable points. The bare writer makes four commits a turn for as many tasks, and nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from bare_sqlite import GroupCommits
from fakes import InstantModel
from ours import make_store, open_runner, take_turn


async def turns_per_second(sessions: int, turns: int, turn: Callable[[str], Awaitable[None]]) -> float:
    """Let `sessions` tasks take `turns` turns each, at once."""

    async def one(session: str) -> None:
        for _ in range(turns):
            await turn(session)

    begun = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(sessions):
            group.create_task(one(f"s{number}"))
    return sessions * turns / (time.perf_counter() - begun)


async def measure_ours(store: str, sessions: int, turns: int, directory: str) -> float:
    async with open_runner(InstantModel(), make_store(store, directory)) as runner:
        await take_turn(runner, "warm")
        return await turns_per_second(sessions, turns, lambda session: take_turn(runner, session))


async def measure_bare(sessions: int, turns: int, directory: str) -> float:
    bare = GroupCommits(directory)
    try:
        return await turns_per_second(sessions, turns, lambda _: bare.turn())
    finally:
        bare.close()


def repeat(measure: Callable[[str], Coroutine[Any, Any, float]], repeats: int, directory: str | None) -> float:
    """Return the median rate over `repeats` fresh directories."""
    rates: list[float] = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory(prefix="sessions-", dir=directory) as fresh:
            rates.append(asyncio.run(measure(fresh)))
    return statistics.median(rates)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--turns", type=int, default=10, help="turns of each session")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--dir", default=None, help="where database files are made: the disk that is measured")
    given = parser.parse_args()
    size = (given.sessions, given.turns)
    bare = repeat(partial(measure_bare, *size), given.repeats, given.dir)
    print(f"{given.sessions} sessions at once, {given.turns} turns each, median of {given.repeats}")
    print(f"bare group commit  {bare:9.0f} turns/s")
    for store in ("sqlite", "memory"):
        rate = repeat(partial(measure_ours, store, *size), given.repeats, given.dir)
        print(f"heaveto {store:10} {rate:9.0f} turns/s  = bare × {rate / bare:.2f}")


if __name__ == "__main__":
    main()
