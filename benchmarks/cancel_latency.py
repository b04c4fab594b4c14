"""How long `cancel` takes until the run's end is durable, one run after another while all the others stream text.

    python benchmarks/cancel_latency.py [--runs 1000]

The reference in memory is to cancel a bare task that iterates the same stream; on SQLite it is two bare commits, the
least that a durable intent and a durable end cost, made beside each cancel on the same disk.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import tempfile
import time
from collections.abc import Sequence

from bare_sqlite import BareCommits
from fakes import EndlessModel, PacedModel
from ours import USER, is_delta, make_store, open_runner

from heaveto import Run, Runner
from heaveto.core.request import ModelRequest

COMMITS_OF_A_CANCEL = 2


async def start_streaming(runner: Runner, session: str) -> Run:
    """Start a run and return it once its first text has been streamed."""
    run = await runner.start(user_id=USER, session_id=session, new_message="hi")
    async for record in run.stream():
        if is_delta(record):
            break
    return run


async def cancel_one(run: Run) -> float:
    """Cancel a run and return the milliseconds until its end was durable."""
    begun = time.perf_counter()
    await run.cancel(by="bench")
    return (time.perf_counter() - begun) * 1000


async def cancel_bare_task() -> float:
    """Cancel a task that iterates the same stream and nothing else."""
    first = asyncio.Event()

    async def read() -> None:
        async for _ in EndlessModel().generate(ModelRequest(turns=())):
            first.set()

    task = asyncio.create_task(read())
    await first.wait()
    begun = time.perf_counter()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return (time.perf_counter() - begun) * 1000


async def measure(store: str, runs: int, directory: str) -> tuple[list[float], list[float]]:
    """Return the milliseconds of each cancel while the others stream on, and of the reference beside it."""
    ours: list[float] = []
    reference: list[float] = []
    bare = BareCommits(directory)
    async with open_runner(PacedModel(), make_store(store, directory)) as runner:
        streaming = [await start_streaming(runner, f"s{number}") for number in range(runs)]
        for run in streaming:
            ours.append(await cancel_one(run))
            reference.append(bare.turn(COMMITS_OF_A_CANCEL) if store == "sqlite" else await cancel_bare_task())
    bare.close()
    return ours, reference


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` of all values do not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def line(name: str, values: Sequence[float], reference: Sequence[float]) -> str:
    p50, p99 = quantile(values, 0.5), quantile(values, 0.99)
    times = p50 / quantile(reference, 0.5), p99 / quantile(reference, 0.99)
    return f"{name:34} p50 {p50:8.3f} ms  p99 {p99:8.3f} ms  = reference × {times[0]:.1f} / {times[1]:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--dir", default=None, help="where database files are made: the disk that is measured")
    given = parser.parse_args()
    for store, reference_name in (("memory", "bare task cancel"), ("sqlite", "two bare commits")):
        with tempfile.TemporaryDirectory(prefix="cancel-", dir=given.dir) as fresh:
            ours, reference = asyncio.run(measure(store, given.runs, fresh))
        print(line(f"{store}: {reference_name}", reference, reference))
        print(line(f"{store}: heaveto, {given.runs} runs", ours, reference))


if __name__ == "__main__":
    main()
