"""How the cost of a tool call is timed, in every program alike. Needs the standard library only.

A turn of the shape (messages, calls) is a model that makes `messages` messages with `calls` calls each, and then says
that it is done. What a turn costs beside its calls is in all shapes, so the difference of two is the calls alone:

    together  (1, 33) less (1, 1), for 32 calls of one message
    chained   (9, 1) less (1, 1), for 8 calls, each with the model call that makes it
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version

Shape = tuple[int, int]

ONE: Shape = (1, 1)
TOGETHER: Shape = (1, 33)
CHAINED: Shape = (9, 1)
COUNTED = {"together": (TOGETHER, 32), "chained": (CHAINED, 8)}


@dataclass(frozen=True)
class CallPlan:
    """On which store, in how many rounds, in which directory."""

    store: str
    rounds: int
    directory: str

    def path(self, name: str) -> str:
        """A path for a fresh database file."""
        return f"{tempfile.mkdtemp(prefix='call-cost-', dir=self.directory)}/{name}"


def plan_from_arguments(stores: Sequence[str]) -> CallPlan:
    """Read the command line that the driver and people use."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", choices=stores, default=stores[0])
    parser.add_argument("--rounds", type=int, default=30, help="how often each shape is timed")
    parser.add_argument("--dir", default=None, help="where database files are made")
    given = parser.parse_args()
    return CallPlan(given.store, given.rounds, given.dir or tempfile.gettempdir())


Turn = Callable[[str, Shape], Awaitable[object]]
"""Runs a whole turn of a shape in a fresh session of the name."""


async def time_calls(rounds: int, turn: Turn, between: Callable[[], object] = lambda: None) -> dict[str, float]:
    """Return the microseconds of one call by shape: the median over rounds in which all shapes are timed in turn.

    `between` is called once in each round: for what is timed beside.
    """
    found: dict[str, list[float]] = {name: [] for name in COUNTED}
    for number in range(-3, rounds):  # three rounds to warm up
        least = await time_turn(turn, f"{number}-one", ONE)
        for name, (shape, calls) in COUNTED.items():
            taken = await time_turn(turn, f"{number}-{name}", shape)
            if number >= 0:
                found[name].append((taken - least) / calls)
        between()
    return {name: statistics.median(values) for name, values in found.items()}


async def time_turn(turn: Turn, session: str, shape: Shape) -> float:
    """Return the microseconds of a turn. The garbage of what came before is not put on its bill."""
    gc.collect()
    begun = time.perf_counter()
    await turn(session, shape)
    return (time.perf_counter() - begun) * 1_000_000


def report(plan: CallPlan, package: str, cost: dict[str, float], **beside: float) -> None:
    """Print one JSON line: what a call costs by shape, and what was timed beside it."""
    line = {"peer": package, "version": version(package), "store": plan.store, **cost, **beside}
    print(json.dumps({name: round(value, 3) if isinstance(value, float) else value for name, value in line.items()}))
