"""Any sequence of calls has the same results on the SQLite store and on the memory store."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from tests.effort import examples

from heaveto.clock import SystemClock
from heaveto.errors import HeavetoError
from heaveto.events.contents import Content, Text
from heaveto.events.records import Draft, Message, Record, RunEnded, RunStarted, SessionKey, StateChanged
from heaveto.stores.base import Guard, Lease, Store
from heaveto.stores.memory import MemoryData, MemoryStore
from heaveto.stores.sqlite import SqliteStore

KEYS = st.sampled_from([SessionKey("app", user, name) for user in ("ann", "bob") for name in ("1", "2")])
RUNS = st.sampled_from(["r1", "r2"])
IDS = st.sampled_from([f"id{number}" for number in range(8)])
VALUES = st.none() | st.integers(0, 3)


def started(id: str, run: str) -> Record:
    return RunStarted(id=id, time=1.0, run_id=run, input=Content(()))


def ended(id: str, run: str) -> Record:
    return RunEnded(id=id, time=1.0, run_id=run, outcome="completed")


def message(id: str, run: str) -> Record:
    return Message(id=id, time=1.0, run_id=run, author="a", parts=(Text(text=id),))


def changed(id: str, app: int | None, user: int | None) -> Record:
    return StateChanged(id=id, time=1.0, delta={"app:k": app, "user:k": user, "k": 1})


RECORDS = st.one_of(
    st.builds(started, IDS, RUNS),
    st.builds(ended, IDS, RUNS),
    st.builds(message, IDS, RUNS),
    st.builds(changed, IDS, VALUES, VALUES),
)
PLACES = st.integers(0, 1)


class StandingClock(SystemClock):
    """Wall-clock time that stands still: the stores must tell the order of updates without it."""

    def time(self) -> float:
        return 1000.0


class CountingIds:
    """The same ids each time."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def record_id(self) -> str:
        return f"made{next(self._numbers)}"

    def call_id(self) -> str:
        return "123456789"


class StoreModel(RuleBasedStateMachine):
    """Two instances on each kind of store; every call is made on both kinds and must end the same way."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.runner = asyncio.Runner()
        self.leases: list[tuple[Lease, Lease]] = []
        clock, data = StandingClock(), MemoryData()
        memory_ids, sqlite_ids = CountingIds(), CountingIds()
        path = self.directory / "store.db"
        self.memory = [MemoryStore(data, clock=clock, ids=memory_ids) for _ in range(2)]
        self.sqlite = [SqliteStore(path, clock=clock, ids=sqlite_ids) for _ in range(2)]

    def both(self, place: int, call: Callable[[Store], Awaitable[Any]]) -> tuple[Any, Any]:
        """Make a call on both kinds; return both results after comparing how it ended."""
        expected = self.runner.run(_ending(call(self.memory[place])))
        actual = self.runner.run(_ending(call(self.sqlite[place])))
        assert type(actual) is type(expected), (actual, expected)
        return expected, actual

    def same(self, place: int, call: Callable[[Store], Awaitable[Any]]) -> None:
        expected, actual = self.both(place, call)
        assert isinstance(expected, HeavetoError) or actual == expected

    @initialize()
    def begin(self) -> None:
        self.create(0, SessionKey("app", "ann", "1"), None)

    @rule(place=PLACES, key=KEYS, state=st.none() | st.just({"user:k": 7}))
    def create(self, place: int, key: SessionKey, state: dict[str, Any] | None) -> None:
        expected, actual = self.both(place, lambda store: store.create_session(key, state))
        assert isinstance(expected, HeavetoError) or actual.last_seq == expected.last_seq

    @rule(
        place=PLACES,
        key=KEYS,
        records=st.lists(RECORDS, min_size=1, max_size=3),
        token=st.none() | st.integers(1, 4),
        expect=st.none() | st.integers(0, 6),
        guard=st.none() | st.sampled_from(["g1", "g2"]),
    )
    def append(
        self,
        place: int,
        key: SessionKey,
        records: list[Record],
        token: int | None,
        expect: int | None,
        guard: str | None,
    ) -> None:
        taken = Guard(guard, records[0].id) if guard else None
        self.same(place, lambda store: store.append(key, records, token=token, expect=expect, guard=taken))
        self.same(1 - place, lambda store: store.read(key))

    @rule(place=PLACES, key=KEYS)
    def claim(self, place: int, key: SessionKey) -> None:
        expected, actual = self.both(place, lambda store: store.claim(key))
        if isinstance(expected, Lease):
            assert (expected.token, expected.last_seq, expected.shared) == (
                actual.token,
                actual.last_seq,
                actual.shared,
            )
            self.leases.append((expected, actual))

    @rule(place=PLACES, which=st.integers(0, 20), settled=st.lists(RUNS, max_size=2))
    def release(self, place: int, which: int, settled: list[str]) -> None:
        if self.leases:
            expected, actual = self.leases[which % len(self.leases)]
            self.runner.run(self.memory[place].release(expected, settled=settled))
            self.runner.run(self.sqlite[place].release(actual, settled=settled))

    @rule(place=PLACES, key=KEYS, id=IDS, run=RUNS)
    def save_draft(self, place: int, key: SessionKey, id: str, run: str) -> None:
        draft = Draft(message_id=id, run_id=run, author="a", parts=())
        self.same(place, lambda store: store.save_drafts(key, [draft]))

    @rule(place=PLACES, key=KEYS)
    def erase(self, place: int, key: SessionKey) -> None:
        _, stone = self.both(place, lambda store: store.erase_session(key, by="ann"))
        assert isinstance(stone, HeavetoError) or stone.erased == 1000.0

    @rule(place=PLACES, key=KEYS, run=RUNS)
    def look(self, place: int, key: SessionKey, run: str) -> None:
        self.same(place, lambda store: store.read(key, after=1, limit=2))
        self.same(place, lambda store: store.unfinished(key))
        self.same(place, lambda store: store.find_guard(key, "g1"))
        self.same(place, lambda store: store.shared_state(key.app, key.user))
        self.same(place, lambda store: _by_id(store, key, run))
        self.same(place, lambda store: _listing(store))
        self.same(place, lambda store: store.unfinished())

    def teardown(self) -> None:
        stores: list[Store] = [*self.memory, *self.sqlite]
        for store in stores:
            self.runner.run(store.aclose())
        self.runner.close()
        shutil.rmtree(self.directory)


async def _ending(work: Awaitable[Any]) -> Any:
    try:
        return await work
    except HeavetoError as error:
        return error


async def _by_id(store: Store, key: SessionKey, run: str) -> dict[str, Draft]:
    return {draft.message_id: draft for draft in await store.drafts(key, run)}


async def _listing(store: Store) -> list[tuple[SessionKey, int, str | None]]:
    return [(info.key, info.last_seq, info.open_run) for info in await store.list_sessions()]


TestStoreModel = StoreModel.TestCase
TestStoreModel.settings = settings(max_examples=examples(25), stateful_step_count=25, deadline=None)
