"""What a run costs in memory while it waits for its model.

    python benchmarks/waiting_memory.py [--runs 10000]

Two figures each, from processes of their own: what Python allocated (tracemalloc), and what the process grew by (RSS;
Linux). The reference is a bare task that waits inside an asynchronous generator.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from fakes import WaitingModel
from ours import USER, make_store, open_runner

from heaveto.core.request import ModelRequest


def resident_kb() -> float:
    """Return this process's resident set."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024


def allocated_kb() -> float:
    """Return what Python has allocated since tracemalloc began."""
    return tracemalloc.get_traced_memory()[0] / 1024


async def waiting_runs(runs: int, read: Callable[[], float]) -> float:
    """Start one run in each of `runs` sessions and return the kB per run while all wait."""
    model = WaitingModel(runs + 1)
    async with open_runner(model, make_store("memory", "")) as runner:
        handles = [await runner.start(user_id=USER, session_id="warm", new_message="hi")]
        before = settled(read)
        for number in range(runs):
            handles.append(await runner.start(user_id=USER, session_id=f"s{number}", new_message="hi"))
        await model.all_waiting.wait()
        used = settled(read) - before
        model.gate.set()
        for handle in handles:
            await handle.wait()
    return used / runs


async def waiting_tasks(runs: int, read: Callable[[], float]) -> float:
    """The same with bare tasks."""
    model = WaitingModel(runs)

    async def ask() -> None:
        async for _ in model.generate(ModelRequest(turns=())):
            pass

    before = settled(read)
    async with asyncio.TaskGroup() as group:
        for _ in range(runs):
            group.create_task(ask())
        await model.all_waiting.wait()
        used = settled(read) - before
        model.gate.set()
    return used / runs


def settled(read: Callable[[], float]) -> float:
    """Read after a collection, so that garbage does not count."""
    gc.collect()
    return read()


def measure_here(what: str, meter: str, runs: int) -> float:
    if meter == "tracemalloc":
        tracemalloc.start()
    read = allocated_kb if meter == "tracemalloc" else resident_kb
    return asyncio.run((waiting_runs if what == "heaveto" else waiting_tasks)(runs, read))


def measure_apart(what: str, meter: str, runs: int) -> float:
    """Measure in a fresh process."""
    command = [sys.executable, __file__, "--runs", str(runs), "--here", what, meter]
    return float(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--here", nargs=2, default=None, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        what, meter = given.here
        print(json.dumps(measure_here(what, meter, given.runs)))
        return
    print(f"{given.runs} runs that wait for a model")
    for meter in ("tracemalloc", "rss"):
        bare = measure_apart("bare", meter, given.runs)
        print(f"{meter:12} bare task {bare:7.2f} kB each", flush=True)
        ours = measure_apart("heaveto", meter, given.runs)
        print(f"{meter:12} heaveto   {ours:7.2f} kB each  = bare × {ours / bare:.1f}", flush=True)


if __name__ == "__main__":
    main()
