"""How answers to waiting calls are timed, in every program alike. Needs the standard library only."""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.metadata import version

WARM_UP = 5


@dataclass(frozen=True)
class PausePlan:
    """On which store, in how many sessions, in which directory."""

    store: str
    rounds: int
    directory: str

    def path(self, name: str) -> str:
        """A path for a fresh database file."""
        return f"{tempfile.mkdtemp(prefix='pause-answer-', dir=self.directory)}/{name}"


def plan_from_arguments() -> PausePlan:
    """Read the command line that the driver and people use."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", choices=("memory", "sqlite"), default="memory")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--dir", default=None, help="where database files are made")
    given = parser.parse_args()
    return PausePlan(given.store, given.rounds, given.dir or tempfile.gettempdir())


async def time_answers(rounds: int, answer: Callable[[str], Awaitable[float]]) -> list[float]:
    """Return the milliseconds from an answer to the next model request, in a fresh session each, in ascending order.

    `answer` pauses a run in a session of the name, answers its call, and returns the seconds in between.
    """
    times = [await answer(f"s{number}") * 1000 for number in range(-WARM_UP, rounds)]
    return sorted(times[WARM_UP:])


def report(plan: PausePlan, package: str, times: list[float], **beside: float) -> None:
    """Print one JSON line: p50 and p99, and what was timed beside it."""
    p50, p99 = statistics.median(times), times[int(len(times) * 0.99)]
    line = {"peer": package, "version": version(package), "store": plan.store, "p50": p50, "p99": p99, **beside}
    print(json.dumps({name: round(value, 3) if isinstance(value, float) else value for name, value in line.items()}))
