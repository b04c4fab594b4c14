"""What every program that repairs histories measures alike: the median over fresh histories of one size.

A history is turns of a user's message, a call, its result and an answer. In the broken one every fifth call
has no result.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

STEPS = ("user", "call", "result", "answer")


def steps(messages: int, *, broken: bool) -> Iterator[tuple[str, str]]:
    """Yield what each message is, with its call's id, and a user's message at the end."""
    for number in range(messages - 1):
        turn, kind = divmod(number, len(STEPS))
        if not (broken and turn % 5 == 0 and STEPS[kind] == "result"):
            yield STEPS[kind], f"call_{turn:06}"
    yield "user", ""


def report(
    name: str,
    make: Callable[[str, str], Any],
    repair: Callable[[list[Any]], object],
    *,
    prepare: Callable[[list[Any]], list[Any]] = list,
) -> None:
    """Time `repair` on lists that `make` filled, and print milliseconds for valid and broken ones."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    found = {}
    for kind in ("valid", "broken"):
        times = []
        for _ in range(options.repeats):
            history = prepare([make(*step) for step in steps(options.messages, broken=kind == "broken")])
            begun = time.perf_counter()
            repair(history)
            times.append((time.perf_counter() - begun) * 1000)
        found[kind] = statistics.median(times)
    print(json.dumps({"name": name, **found}))
