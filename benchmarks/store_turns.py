"""What a turn costs the SQLite store: claim, four appends (1-2 records each), release.

    python benchmarks/store_turns.py [directory]

Prints a sequential turn against four bare `BEGIN; INSERT; COMMIT` with synchronous=FULL, 200 sessions at once, and a
turn on top of 10,000 records. Run it on the disk that matters: a commit is an fsync.
"""

from __future__ import annotations

import asyncio
import sqlite3
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from heaveto.events.contents import Content, FunctionCall, Text
from heaveto.events.records import CallSettled, CallStarted, Message, Record, RunEnded, RunStarted, SessionKey, Usage
from heaveto.ids import SystemIds
from heaveto.stores.sqlite import SqliteStore

IDS = SystemIds()
USAGE = Usage(input_tokens=900, output_tokens=120)


def bare_database(directory: Path) -> sqlite3.Connection:
    """Return a connection as a program would open it without further thought."""
    connection = sqlite3.connect(directory / "bare.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b)")
    return connection


def bare_commits(connection: sqlite3.Connection, turns: int) -> list[float]:
    """Return the seconds that four bare commits take, each time."""
    times: list[float] = []
    for _ in range(turns):
        start = time.perf_counter()
        for _ in range(4):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO t (b) VALUES (?)", ("x" * 300,))
            connection.execute("COMMIT")
        times.append(time.perf_counter() - start)
    return times


async def turn(store: SqliteStore, key: SessionKey) -> None:
    """A turn with one tool call: a question, a call, its result, an answer."""
    lease = await store.claim(key)
    run, call, now = IDS.record_id(), IDS.call_id(), time.time()

    def base() -> dict[str, Any]:
        return {"id": IDS.record_id(), "time": now, "run_id": run}

    asked = RunStarted(**base(), input=Content.of("What is the weather in Kiel?"), agent="root")
    said = Message(
        **base(), author="root", parts=(FunctionCall(call_id=call, name="weather", args={"city": "Kiel"}),), usage=USAGE
    )
    started = CallStarted(**base(), call_id=call, name="weather", idempotency_key=call)
    settled = CallSettled(**base(), call_id=call, status="succeeded", response={"sky": "clear", "t": 4.5})
    answer = Message(**base(), author="root", parts=(Text(text="Clear. " * 40),), usage=USAGE)
    ended = RunEnded(**base(), outcome="completed", usage=USAGE, llm_calls=2)
    batches: list[list[Record]] = [[asked], [said, started], [settled], [answer, ended]]
    for records in batches:
        await store.append(key, records, token=lease.token)
    await store.release(lease, settled=[run])


async def sequential(store: SqliteStore, key: SessionKey, turns: int) -> list[float]:
    """Return the seconds of each turn in an otherwise idle store."""
    times: list[float] = []
    for _ in range(turns):
        start = time.perf_counter()
        await turn(store, key)
        times.append(time.perf_counter() - start)
    return times


async def at_once(store: SqliteStore, sessions: int = 200, turns: int = 20) -> float:
    """Return the turns per second of many sessions at once."""
    keys = [SessionKey("app", "user", f"many{number}") for number in range(sessions)]
    await asyncio.gather(*(store.create_session(key) for key in keys))

    async def converse(key: SessionKey) -> None:
        for _ in range(turns):
            await turn(store, key)

    start = time.perf_counter()
    await asyncio.gather(*(converse(key) for key in keys))
    return sessions * turns / (time.perf_counter() - start)


async def fill(store: SqliteStore, key: SessionKey, records: int) -> None:
    """Put records into a session."""
    for _ in range(0, records, 500):
        batch = [
            Message(id=IDS.record_id(), time=1.0, run_id="r", author="root", parts=(Text(text="x" * 300),))
            for _ in range(500)
        ]
        await store.append(key, batch, token=None)


async def measure(directory: Path) -> None:
    """Measure and print. The three kinds take turns, so that what else the machine does hits all of them."""
    times: dict[str, list[float]] = {"bare": [], "short": [], "long": []}
    connection = bare_database(directory)
    async with SqliteStore(directory / "store.db") as store:
        short, long = SessionKey("app", "user", "short"), SessionKey("app", "user", "long")
        await store.create_session(short)
        await store.create_session(long)
        await fill(store, long, 10_000)
        for _ in range(20):
            times["bare"] += bare_commits(connection, 10)
            times["short"] += await sequential(store, short, 10)
            times["long"] += await sequential(store, long, 10)
        rate = await at_once(store)
    connection.close()
    bare, alone, alone_long = (statistics.median(times[kind]) for kind in ("bare", "short", "long"))
    print(f"four bare commits       {bare * 1e6:6.0f} us")
    print(f"sequential turn         {alone * 1e6:6.0f} us       {alone / bare:5.2f} x four bare commits (target 1.6)")
    print(f"  on 10,000 records     {alone_long * 1e6:6.0f} us       {alone_long / alone:5.2f} x the short session")
    print(f"200 sessions at once    {rate:6.0f} turns/s  {rate * bare:5.2f} x the rate of bare commits (target 3000/s)")


def main() -> None:
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as directory:
        asyncio.run(measure(Path(directory)))


if __name__ == "__main__":
    main()
