"""SQLite alone, doing the durable part of our work and nothing else: the reference for our figures.

A turn with one tool needs four durable points: the run's start, the call before its effect, its result, the end.
So the least that any store could pay for it is four commits of a small row with ``synchronous=FULL``.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
import time
from itertools import count
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


_TABLES = """
create table sessions (
    id integer primary key, app, user, session, created, updated, last_seq, token, owner, since,
    unique (app, user, session)
);
create index sessions_updated on sessions (updated);
create table records (session, seq, id, body, primary key (session, seq), unique (session, id)) without rowid;
create table runs (run_id, session, primary key (run_id, session)) without rowid;
create table unfinished (session, run_id, opened, ended, primary key (session, run_id)) without rowid;
insert into sessions values (1, 'bench', 'u', 's', 0, 0, 0, 0, null, null);
"""
_BODIES = (("x" * 257,), ("x" * 338, "x" * 259), ("x" * 213,), ("x" * 258, "x" * 175, "x" * 184))
"""A start; a message and the start of its call; the call's result; an answer, the agent's end and the run's."""
_WAL_BYTES = 4 * 1024 * 1024


class SameRows:
    """What a turn makes our store write, done by the least program that keeps its promises.

    The same rows in the same tables with the same indexes; a thread that commits into a log file that is long already,
    and wakes the event loop. The lease is claimed and given back without a sync. Nothing is checked, encoded or
    remembered.
    """

    def __init__(self, directory: str) -> None:
        path = Path(directory) / "same-rows.db"
        self._connection = connect(path)
        self._connection.executescript(_TABLES)
        with path.with_name(f"{path.name}-wal").open("ab") as log:
            log.write(bytes(_WAL_BYTES))
            os.fsync(log.fileno())
        self._loop = asyncio.get_running_loop()
        self._waiting: queue.SimpleQueue[tuple[int, asyncio.Future[None]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="bare-writer")
        self._thread.start()
        self._seqs, self._turns, self._run = count(1), count(1), ""

    async def turn(self) -> float:
        """Write what a turn writes and return the milliseconds that it took."""
        begun = time.perf_counter()
        self._run = f"{next(self._turns):036}"
        self._lease("me")
        for number in range(COMMITS_PER_TURN):
            durable = self._loop.create_future()
            self._waiting.put((number, durable))
            await durable
        self._lease(None)
        return (time.perf_counter() - begun) * 1000

    def close(self) -> None:
        self._waiting.put(None)
        self._thread.join()
        self._connection.close()

    def _lease(self, owner: str | None) -> None:
        execute = self._connection.execute
        execute("pragma synchronous=normal")
        execute("begin immediate")
        execute("update sessions set token=token+1, owner=?, since=? where id=1", (owner, time.time()))
        if owner is None:
            execute("delete from unfinished where session=1 and run_id=? and ended", (self._run,))
        execute("commit")
        execute("pragma synchronous=full")

    def _write(self) -> None:
        while (first := self._waiting.get()) is not None:
            number, durable = first
            self._connection.execute("begin immediate")
            self._commit(number)
            self._loop.call_soon_threadsafe(durable.set_result, None)

    def _commit(self, number: int) -> None:
        execute = self._connection.execute
        rows = [(seq := next(self._seqs), f"{seq:036}", body) for body in _BODIES[number]]
        self._connection.executemany("insert into records values (1, ?, ?, ?)", rows)
        if number == 0:
            execute("insert into runs values (?, 1)", (self._run,))
            execute("insert into unfinished values (1, ?, ?, 0)", (self._run, time.time()))
        elif number == COMMITS_PER_TURN - 1:
            execute("update unfinished set ended=1 where session=1 and run_id=?", (self._run,))
        execute("update sessions set last_seq=?, updated=? where id=1", (rows[-1][0], time.time()))
        execute("commit")
