"""SQLite alone, doing the durable part of our work and nothing else: the reference for our figures.

A turn with one tool needs four durable points: the run's start, the call before its effect, its result, the end.
So the least that any store could pay for it is four commits of a small row with ``synchronous=FULL``.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
import time
from pathlib import Path

ROW = "x" * 300
COMMITS_PER_TURN = 4


def connect(path: Path) -> sqlite3.Connection:
    """Open a fresh database in WAL mode that syncs at every commit."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("pragma journal_mode=wal")
    connection.execute("pragma synchronous=full")
    connection.execute("create table log (seq integer primary key, value text)")
    return connection


class BareCommits:
    """One commit after another, on the caller's thread."""

    def __init__(self, directory: str) -> None:
        self._connection = connect(Path(directory) / "bare.db")

    def turn(self, commits: int = COMMITS_PER_TURN) -> float:
        """Make `commits` commits and return the milliseconds that they took together."""
        begun = time.perf_counter()
        for _ in range(commits):
            self._connection.execute("begin immediate")
            self._connection.execute("insert into log (value) values (?)", (ROW,))
            self._connection.execute("commit")
        return (time.perf_counter() - begun) * 1000

    def close(self) -> None:
        self._connection.close()


class GroupCommits:
    """A writer thread that puts all rows that wait into one commit: the skeleton of a store for many sessions.

    Made and used on one event loop, which it wakes once for each commit.
    """

    def __init__(self, directory: str) -> None:
        self._connection = connect(Path(directory) / "bare-group.db")
        self._loop = asyncio.get_running_loop()
        self._waiting: queue.SimpleQueue[asyncio.Future[None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="bare-writer")
        self._thread.start()

    async def turn(self) -> None:
        """Append what one turn appends, one row after another; each is durable before the next."""
        for _ in range(COMMITS_PER_TURN):
            durable = self._loop.create_future()
            self._waiting.put(durable)
            await durable

    def close(self) -> None:
        self._waiting.put(None)
        self._thread.join()
        self._connection.close()

    def _write(self) -> None:
        while (first := self._waiting.get()) is not None:
            group = [first, *self._drain()]
            self._connection.execute("begin immediate")
            self._connection.executemany("insert into log (value) values (?)", [(ROW,)] * len(group))
            self._connection.execute("commit")
            self._loop.call_soon_threadsafe(tell, group)

    def _drain(self) -> list[asyncio.Future[None]]:
        """Take what waits now; leave the end mark for the next round."""
        group: list[asyncio.Future[None]] = []
        while not self._waiting.empty():
            durable = self._waiting.get()
            if durable is None:
                self._waiting.put(None)
                break
            group.append(durable)
        return group


def tell(group: list[asyncio.Future[None]]) -> None:
    """Tell everyone whose row is durable now."""
    for durable in group:
        durable.set_result(None)
