"""How every program of this comparison is timed: the one place, so that all are timed alike.

Runs in each peer's environment and in ours; needs the standard library only.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path


@dataclass(frozen=True)
class Plan:
    """Where to look: after `points` turns, over `rounds` turns around each; on which store; in which directory."""

    store: str
    points: tuple[int, ...]
    rounds: int
    directory: str

    @property
    def turns(self) -> int:
        """How many turns to run so that the last window is full."""
        return max(self.points) + self.rounds // 2

    def fresh_directory(self) -> str:
        """Make an empty directory. Whoever gave `directory` removes it."""
        return tempfile.mkdtemp(prefix="turn-cost-", dir=self.directory)

    def path(self, name: str) -> str:
        """A path for a fresh database file."""
        return str(Path(self.fresh_directory()) / name)


def plan_from_arguments(stores: Sequence[str]) -> Plan:
    """Read the command line that the driver and people use."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", choices=stores, default=stores[0])
    parser.add_argument("--points", default="25,150,300", help="turns after which to look")
    parser.add_argument("--rounds", type=int, default=20, help="turns in the window around each point")
    parser.add_argument("--dir", default=None, help="where database files are made")
    given = parser.parse_args()
    points = tuple(int(point) for point in given.points.split(","))
    return Plan(given.store, points, given.rounds, given.dir or tempfile.gettempdir())


async def time_turns(turns: int, turn: Callable[[], Awaitable[object]]) -> list[float]:
    """Run turns one after another and return the milliseconds of each."""
    times: list[float] = []
    for _ in range(turns):
        begun = time.perf_counter()
        await turn()
        times.append((time.perf_counter() - begun) * 1000)
    return times


def window_median(times: Sequence[float], point: int, rounds: int) -> float:
    """Return the median of `rounds` turns around the turn with number `point`."""
    return statistics.median(times[max(0, point - rounds // 2) : point + rounds // 2])


def report(
    plan: Plan,
    package: str,
    records: int,
    times: Sequence[float],
    beside: Mapping[str, Sequence[float]] | None = None,
) -> None:
    """Print one JSON line per point. `records` is what the session held after all turns: it grows evenly.

    `beside` is what was timed after every single turn, by the name under which it is printed.
    """
    for point in plan.points:
        line: dict[str, object] = {
            "peer": package,
            "version": version(package),
            "store": plan.store,
            "turns": point,
            "records": round(records * point / len(times)),
            "ms_per_turn": round(window_median(times, point, plan.rounds), 4),
        }
        for name, reference in (beside or {}).items():
            line[name] = round(window_median(reference, point, plan.rounds), 4)
        print(json.dumps(line), flush=True)
