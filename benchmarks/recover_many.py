"""How long the recovery of many runs takes after kill -9, on one SQLite file.

    python benchmarks/recover_many.py [--runs 1000]

A process starts one run in each of so many sessions; all wait for their model when it is killed. Another process calls
`recover`; its model answers at once: a tool call, then "done". The clock runs until all have ended. Beside it as many
runs that nobody interrupted, started at once on the same store.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import subprocess
import sys
import tempfile
import time

from fakes import InstantModel, WaitingModel
from ours import make_store, open_runner, start_run


async def be_killed(runs: int, directory: str) -> None:
    """Start the runs, say so, and wait for death."""
    model = WaitingModel(runs)
    async with open_runner(model, make_store("sqlite", directory)) as runner:
        await asyncio.gather(*(start_run(runner, f"s{number}") for number in range(runs)))
        await model.all_waiting.wait()
        print("ready", flush=True)
        await asyncio.Event().wait()


async def recover(runs: int, directory: str) -> float:
    """Return the seconds until all runs have ended."""
    async with open_runner(InstantModel(), make_store("sqlite", directory)) as runner:
        begun = time.perf_counter()
        found = await runner.recover()
        taken = time.perf_counter() - begun
        ended = [await (await runner.attach(run_id)).wait() for run_id in found]
    if [end.outcome for end in ended] != ["completed"] * runs:
        raise RuntimeError(f"{len(ended)} of {runs} runs have ended")
    return taken


async def run_afresh(runs: int, directory: str) -> float:
    """Return the seconds for as many runs that are not interrupted."""
    async with open_runner(InstantModel(), make_store("sqlite", directory)) as runner:
        begun = time.perf_counter()
        started = await asyncio.gather(*(start_run(runner, f"fresh{number}") for number in range(runs)))
        await asyncio.gather(*(run.wait() for run in started))
        return time.perf_counter() - begun


def kill_one(runs: int, directory: str) -> None:
    command = [sys.executable, __file__, "--runs", str(runs), "--victim", directory]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None
        if victim.stdout.readline() != "ready\n":
            raise RuntimeError("the process died by itself")
        victim.send_signal(signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--dir", default=None, help="where the database is made: the disk that is measured")
    parser.add_argument("--victim", default=None, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.victim:
        asyncio.run(be_killed(given.runs, given.victim))
        return
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory(prefix="recover-many-", dir=given.dir) as directory:
        kill_one(given.runs, directory)
        taken = asyncio.run(recover(given.runs, directory))
        fresh = asyncio.run(run_afresh(given.runs, directory))
    each = 1000 / given.runs
    print(f"{given.runs} runs recovered {taken:8.2f} s, {taken * each:.2f} ms each = fresh × {taken / fresh:.1f}")
    print(f"as many fresh ones  {fresh:8.2f} s, {fresh * each:.2f} ms each")


if __name__ == "__main__":
    main()
