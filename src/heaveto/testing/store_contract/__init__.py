"""What every store promises, as a test suite. Subclass it, say how a store is opened, and run pytest.

    class TestMyStore(StoreContract):
        async def open_store(self) -> Store:
            return await MyStore.open(self.place)

Each test opens its store with `open_store` and closes it. `another_instance` opens a second one on the same content;
`reopen` closes a store and opens its content again. Both return None where the store cannot do that, and their tests
are skipped. The test methods are coroutines: pytest-asyncio in auto mode, or anyio, runs them. Call
``pytest.register_assert_rewrite("heaveto.testing.store_contract")`` before importing this, to see values in failures.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from heaveto.errors import (
    DuplicateRecordError,
    GuardTakenError,
    LeaseHeldError,
    LogMovedError,
    NotSerializableError,
    RunIdTakenError,
    SessionErasedError,
    SessionExistsError,
    StaleLeaseError,
    StoreClosedError,
    UnknownSessionError,
)
from heaveto.events.contents import ArtifactInfo, Blob, Content, Text
from heaveto.events.records import (
    CallProgress,
    CallSettled,
    CancelRequested,
    Draft,
    Message,
    Queued,
    Record,
    RunEnded,
    RunStarted,
    SessionKey,
    StateChanged,
)
from heaveto.ids import SystemIds
from heaveto.stores.base import Guard, Lease, Store, Unfinished

IDS = SystemIds()
KEY = SessionKey("app", "ann", "s1")
OTHER = SessionKey("app", "ann", "s2")
NEWS_SECONDS = 5.0
BIG = bytes(range(256)) * 4096
"""Content of 1 MB, which no store writes in one piece."""


def message(text: str = "hello", *, run_id: str = "run", id: str | None = None) -> Message:
    """Return a model's message."""
    return Message(id=id or IDS.record_id(), time=1.0, run_id=run_id, author="root", parts=(Text(text=text),))


def started(run_id: str) -> RunStarted:
    """Return the start of a run."""
    return RunStarted(id=IDS.record_id(), time=1.0, run_id=run_id, input=Content.of("hi"))


def queued(run_id: str) -> Queued:
    """Return a queued run."""
    return Queued(id=IDS.record_id(), time=1.0, run_id=run_id, input=Content.of("hi"))


def ended(run_id: str) -> RunEnded:
    """Return the end of a run."""
    return RunEnded(id=IDS.record_id(), time=1.0, run_id=run_id, outcome="completed")


def changed(**delta: Any) -> StateChanged:
    """Return a state change; ``app__x`` stands for ``app:x``."""
    return StateChanged(id=IDS.record_id(), time=1.0, delta={k.replace("__", ":"): v for k, v in delta.items()})


def draft(message_id: str, text: str = "so far", *, run_id: str = "run") -> Draft:
    """Return a draft of a message."""
    return Draft(message_id=message_id, run_id=run_id, author="root", parts=(Text(text=text),))


def ids_of(records: list[Record]) -> list[str]:
    """Return the records' ids."""
    return [record.id for record in records]


class News:
    """A subscriber that can be waited for."""

    def __init__(self, store: Store, key: SessionKey) -> None:
        self._event = asyncio.Event()
        self.calls = 0
        self.last_seq = 0
        self.stop = store.subscribe(key, self._call)

    def _call(self, last_seq: int) -> None:
        self.calls += 1
        self.last_seq = last_seq
        self._event.set()

    async def settle(self) -> None:
        """Let what may come although nothing changed come, and forget it."""
        for _ in range(20):
            await asyncio.sleep(0.005)
        self._event.clear()

    async def wait(self) -> None:
        """Wait for the next call."""
        async with asyncio.timeout(NEWS_SECONDS):
            await self._event.wait()
        self._event.clear()


class StoreContract:
    """The suite. Every test's docstring is a sentence of the contract."""

    # --- what a subclass says

    async def open_store(self) -> Store:
        """Return a new store without sessions."""
        raise NotImplementedError

    async def another_instance(self, store: Store) -> Store | None:
        """Return a second instance on the content of `store`, as another process would have it."""
        return None

    async def reopen(self, store: Store) -> Store | None:
        """Close `store` and return a new instance on its content."""
        return None

    @asynccontextmanager
    async def opened(self, *keys: SessionKey) -> AsyncGenerator[Store]:
        """Open a store that has these sessions, and close it at the end."""
        store = await self.open_store()
        try:
            for key in keys:
                await store.create_session(key)
            yield store
        finally:
            await store.aclose()

    @asynccontextmanager
    async def two_instances(self) -> AsyncGenerator[tuple[Store, Store]]:
        """Open two instances on one content, which has `KEY`."""
        async with self.opened(KEY) as first:
            second = await self.another_instance(first)
            if second is None:
                pytest.skip("this store has no second instance")
            try:
                yield first, second
            finally:
                await second.aclose()

    # --- sessions

    async def test_a_session_is_created_once(self) -> None:
        """Creating an existing session is an error that changes nothing."""
        async with self.opened() as store:
            info = await store.create_session(KEY)
            assert (info.key, info.last_seq, info.open_run) == (KEY, 0, None)
            with pytest.raises(SessionExistsError):
                await store.create_session(KEY, {"a": 1})
            assert await store.read(KEY) == []

    async def test_the_initial_state_is_the_first_record(self) -> None:
        """A session starts with its state as a `StateChanged`, which also feeds the shared states."""
        async with self.opened() as store:
            info = await store.create_session(KEY, {"a": 1, "user:lang": "de"})
            (first,) = await store.read(KEY)
            assert info.last_seq == first.seq == 1
            assert isinstance(first, StateChanged) and first.delta == {"a": 1, "user:lang": "de"}
            assert await store.shared_state("app", "ann") == {"user:lang": "de"}

    async def test_a_session_can_be_looked_up(self) -> None:
        """`get_session` tells the last seq and the open run, and None for an unknown session."""
        async with self.opened(KEY) as store:
            await store.append(KEY, [started("r1"), message()], token=None)
            info = await store.get_session(KEY)
            assert info is not None and (info.last_seq, info.open_run) == (2, "r1")
            await store.append(KEY, [ended("r1")], token=None)
            info = await store.get_session(KEY)
            assert info is not None and (info.last_seq, info.open_run) == (3, None)
            assert await store.get_session(OTHER) is None

    async def test_parts_of_a_key_do_not_run_into_each_other(self) -> None:
        """(a, b/c, d) and (a/b, c, d) are two sessions; any Unicode text is a name."""
        keys = [SessionKey("a", "b/c", "d"), SessionKey("a/b", "c", "d"), SessionKey("ä\x00", "", "\U0001f600 '\"%_")]
        async with self.opened(*keys) as store:
            for key in keys:
                await store.append(key, [message(str(key))], token=None)
            for key in keys:
                (record,) = await store.read(key)
                assert isinstance(record, Message) and record.parts == (Text(text=str(key)),)
            assert {info.key for info in await store.list_sessions()} == set(keys)

    async def test_sessions_are_listed_latest_first_and_in_pages(self) -> None:
        """Pages that are continued with `before` hold every session exactly once, the last updated one first."""
        keys = [SessionKey("app", f"u{number % 2}", f"s{number}") for number in range(7)]
        async with self.opened(*keys) as store:
            await store.append(keys[2], [message()], token=None)
            expected = [keys[2], *reversed([*keys[:2], *keys[3:]])]
            listed: list[SessionKey] = []
            before: float | None = None
            while page := await store.list_sessions("app", limit=3, before=before):
                listed += [info.key for info in page]
                before = page[-1].updated
            assert listed == expected
            of_one = await store.list_sessions("app", "u1")
            assert [info.key for info in of_one] == [key for key in expected if key.user == "u1"]
            assert await store.list_sessions("nobody") == []
            assert await store.list_sessions(limit=0) == []

    async def test_an_unknown_session_is_an_error_everywhere(self) -> None:
        """No method invents a session."""
        async with self.opened() as store:
            for attempt in _uses_of(store, KEY):
                with pytest.raises(UnknownSessionError):
                    await attempt()
            with pytest.raises(UnknownSessionError):
                await store.erase_session(KEY, by="ann")
            assert await store.tombstone(KEY) is None

    # --- appending

    async def test_seqs_are_consecutive(self) -> None:
        """Records get 1, 2, 3, … in order, whatever times and seqs they carry (F74)."""
        async with self.opened(KEY) as store:
            first, second, third = message("1"), message("2"), message("3")
            assert await store.append(KEY, [first, second], token=None) == 2
            assert await store.append(KEY, [third], token=None) == 3
            records = await store.read(KEY)
            assert [record.seq for record in records] == [1, 2, 3]
            assert ids_of(records) == ids_of([first, second, third])

    async def test_reading_goes_on_where_it_stopped(self) -> None:
        """`after` and `limit` cut the log without gaps."""
        async with self.opened(KEY) as store:
            await store.append(KEY, [message(str(number)) for number in range(10)], token=None)
            assert [record.seq for record in await store.read(KEY, after=4, limit=3)] == [5, 6, 7]
            assert [record.seq for record in await store.read(KEY, after=8)] == [9, 10]
            assert await store.read(KEY, after=10) == []
            assert await store.read(KEY, limit=0) == []

    async def test_a_record_is_read_as_it_was_written(self) -> None:
        """Unicode, nested values and numbers survive, and the writer's object is no part of the log."""
        response: dict[str, list[Any]] = {
            "ключ": ["\u2028", "\x00", "🚢", 1, 1.5, -0.0, 2**63, None, True, {"deep": []}]
        }
        record = CallSettled(id="c", time=1.5, run_id="r", call_id="c1", status="succeeded", response=response)
        async with self.opened(KEY) as store:
            await store.append(KEY, [record], token=None)
            (read,) = await store.read(KEY)
            assert isinstance(read, CallSettled) and read.response == response
            response["ключ"].clear()
            (again,) = await store.read(KEY)
            assert isinstance(again, CallSettled) and again.response == read.response != response

    async def test_big_records_are_stored_whole(self) -> None:
        """A record of 5 MB is an ordinary record."""
        async with self.opened(KEY) as store:
            text = "0123456789abcdef" * (5 * 2**16)
            await store.append(KEY, [message(text), message("after")], token=None)
            first, second = await store.read(KEY)
            assert isinstance(first, Message) and first.parts == (Text(text=text),)
            assert second.seq == 2

    async def test_a_value_that_cannot_be_stored_refuses_the_whole_batch(self) -> None:
        """NaN in the second record keeps the first one out, too."""
        bad = CallProgress(id="p", time=1.0, call_id="c", value={"x": math.nan})
        async with self.opened(KEY) as store:
            with pytest.raises(NotSerializableError):
                await store.append(KEY, [message(), bad], token=None)
            assert await store.read(KEY) == []

    async def test_a_repeated_append_is_a_no_op(self) -> None:
        """The same record ids give the same seq and no new records, also after later appends (F117)."""
        async with self.opened(KEY) as store:
            batch = [message("1"), message("2")]
            assert await store.append(KEY, batch, token=None) == 2
            await store.append(KEY, [message("3")], token=None)
            assert await store.append(KEY, batch, token=None) == 2
            assert len(await store.read(KEY)) == 3

    async def test_a_repeated_append_is_a_no_op_whatever_it_demands(self) -> None:
        """A repeat succeeds with a stale token, an old condition and its own guard: it has happened (F117)."""
        async with self.opened(KEY) as store:
            lease = await store.claim(KEY)
            batch = [message("1")]
            guard = Guard("g", "v")
            assert await store.append(KEY, batch, token=lease.token, expect=0, guard=guard) == 1
            await store.release(lease)
            await store.claim(KEY)
            assert await store.append(KEY, batch, token=lease.token, expect=0, guard=guard) == 1
            assert await store.append(KEY, await store.read(KEY), token=None) == 1
            assert len(await store.read(KEY)) == 1

    async def test_a_known_id_in_another_batch_is_an_error(self) -> None:
        """A batch that is neither new nor a repeat is refused whole, and the next one gets the next seq."""
        async with self.opened(KEY) as store:
            old, new = message("old"), message("new")
            await store.append(KEY, [old], token=None)
            for batch in ([new, old], [old, new], [new, new]):
                with pytest.raises(DuplicateRecordError):
                    await store.append(KEY, batch, token=None)
            assert await store.append(KEY, [new], token=None) == 2
            assert ids_of(await store.read(KEY)) == [old.id, new.id]

    async def test_the_same_id_may_be_in_two_sessions(self) -> None:
        """Record ids are unique per session."""
        async with self.opened(KEY, OTHER) as store:
            record = message()
            assert await store.append(KEY, [record], token=None) == 1
            assert await store.append(OTHER, [record], token=None) == 1

    async def test_a_condition_is_checked(self) -> None:
        """An append that expects another last seq writes nothing; the loser is told (F82)."""
        async with self.opened(KEY) as store:
            await store.append(KEY, [message()], token=None, expect=0)
            with pytest.raises(LogMovedError) as caught:
                await store.append(KEY, [message()], token=None, expect=0)
            assert (caught.value.expected, caught.value.current) == (0, 1)
            assert len(await store.read(KEY)) == 1

    async def test_a_guard_is_taken_once(self) -> None:
        """The second taker of a unique key writes nothing and is shown the first one's value."""
        async with self.opened(KEY, OTHER) as store:
            assert await store.find_guard(KEY, "answer:c1") is None
            await store.append(KEY, [message()], token=None, guard=Guard("answer:c1", "yes"))
            with pytest.raises(GuardTakenError) as caught:
                await store.append(KEY, [message()], token=None, guard=Guard("answer:c1", "no"))
            assert caught.value.value == "yes"
            assert await store.find_guard(KEY, "answer:c1") == "yes"
            assert len(await store.read(KEY)) == 1
            await store.append(OTHER, [message()], token=None, guard=Guard("answer:c1", "no"))

    async def test_a_refused_append_does_not_take_its_guard(self) -> None:
        """Guard and records are one write."""
        async with self.opened(KEY) as store:
            with pytest.raises(LogMovedError):
                await store.append(KEY, [message()], token=None, expect=7, guard=Guard("g", "v"))
            assert await store.find_guard(KEY, "g") is None

    async def test_one_of_many_guard_takers_wins(self) -> None:
        """Of twenty answers at once exactly one is recorded."""
        async with self.opened(KEY) as store:
            attempts = [
                store.append(KEY, [message()], token=None, guard=Guard("g", str(number))) for number in range(20)
            ]
            results = await asyncio.gather(*attempts, return_exceptions=True)
            assert [type(result) for result in results].count(GuardTakenError) == 19
            assert len(await store.read(KEY)) == 1

    async def test_concurrent_appends_are_atomic_and_in_one_order(self) -> None:
        """Batches from all sides never interleave and never share a seq (F72, F74)."""
        async with self.opened(KEY) as store:
            batches = [[message(f"{number}/{part}") for part in range(3)] for number in range(40)]
            lasts = await asyncio.gather(*(store.append(KEY, batch, token=None) for batch in batches))
            records = await store.read(KEY)
            assert [record.seq for record in records] == list(range(1, 121))
            for batch, last in zip(batches, lasts, strict=True):
                assert ids_of(records[last - 3 : last]) == ids_of(list(batch))

    async def test_one_bad_append_does_not_hurt_others_at_the_same_moment(self) -> None:
        """Appends that are stored together succeed and fail each for itself."""
        async with self.opened(KEY, OTHER) as store:
            results = await asyncio.gather(
                store.append(KEY, [message()], token=None),
                store.append(KEY, [message()], token=99),
                store.append(SessionKey("no", "such", "one"), [message()], token=None),
                store.append(KEY, [message(id="twice"), message(id="twice")], token=None),
                store.append(OTHER, [message()], token=None),
                store.append(KEY, [message()], token=None),
                return_exceptions=True,
            )
            assert [type(result) for result in results[1:4]] == [
                StaleLeaseError,
                UnknownSessionError,
                DuplicateRecordError,
            ]
            assert (results[0], results[4], results[5]) == (1, 1, 2)

    # --- the lease

    async def test_a_lease_excludes_others(self) -> None:
        """A held session cannot be claimed, not even by the same instance (F72, F111)."""
        async with self.opened(KEY, OTHER) as store:
            assert await store.holder(KEY) is None
            lease = await store.claim(KEY)
            assert (lease.key, lease.owner, lease.last_seq) == (KEY, store.owner, 0)
            with pytest.raises(LeaseHeldError) as caught:
                await store.claim(KEY)
            assert caught.value.owner == store.owner
            holder = await store.holder(KEY)
            assert holder is not None and holder.alive and holder.owner == store.owner
            await store.claim(OTHER)

    async def test_the_token_grows_with_each_claim(self) -> None:
        """A later lease has a greater token, and tells the last seq."""
        async with self.opened(KEY) as store:
            first = await store.claim(KEY)
            await store.append(KEY, [message()], token=first.token)
            await store.release(first)
            second = await store.claim(KEY)
            assert second.token > first.token and second.last_seq == 1

    async def test_a_stale_token_cannot_append(self) -> None:
        """Whoever lost the lease writes nothing (F73)."""
        async with self.opened(KEY) as store:
            first = await store.claim(KEY)
            await store.release(first)
            with pytest.raises(StaleLeaseError):
                await store.append(KEY, [message()], token=first.token)
            second = await store.claim(KEY)
            with pytest.raises(StaleLeaseError) as caught:
                await store.append(KEY, [message()], token=first.token)
            assert (caught.value.held, caught.value.current) == (first.token, second.token)
            assert await store.append(KEY, [message()], token=second.token) == 1

    async def test_releasing_a_stale_lease_does_nothing(self) -> None:
        """A second release, or a late one, does not take the session from its new holder."""
        async with self.opened(KEY) as store:
            first = await store.claim(KEY)
            await store.release(first)
            await store.release(first)
            second = await store.claim(KEY)
            await store.append(KEY, [started("r"), ended("r")], token=second.token)
            await store.release(first, settled=["r"])
            assert await store.unfinished(KEY) == [Unfinished(KEY, "r", ended=True)]
            assert await store.append(KEY, [message()], token=second.token) == 3

    async def test_side_appends_do_not_disturb_the_holder(self) -> None:
        """An answer that arrives while a run works takes its own seq; the holder's next append succeeds (F75)."""
        async with self.opened(KEY) as store:
            lease = await store.claim(KEY)
            await store.append(KEY, [message("held")], token=lease.token)
            side = CancelRequested(id=IDS.record_id(), time=1.0, run_id="run", cause="user")
            assert await store.append(KEY, [side], token=None) == 2
            assert await store.append(KEY, [message("held")], token=lease.token) == 3

    async def test_one_of_many_claimers_gets_the_lease(self) -> None:
        """Of twenty claims at once exactly one succeeds."""
        async with self.opened(KEY) as store:
            results = await asyncio.gather(*(store.claim(KEY) for _ in range(20)), return_exceptions=True)
            assert sum(isinstance(result, Lease) for result in results) == 1
            assert sum(isinstance(result, LeaseHeldError) for result in results) == 19

    async def test_closing_an_instance_frees_its_leases(self) -> None:
        """`aclose` gives everything back; the next claimer need not wait (F78)."""
        async with self.two_instances() as (first, second):
            lease = await first.claim(KEY)
            with pytest.raises(LeaseHeldError) as caught:
                await second.claim(KEY)
            assert caught.value.owner == first.owner != second.owner
            holder = await second.holder(KEY)
            assert holder is not None and holder.alive and holder.owner == first.owner
            await first.aclose()
            taken = await second.claim(KEY)
            assert taken.token > lease.token

    async def test_two_instances_write_one_log(self) -> None:
        """Appends through two instances are one order, and a lease holds in both (F72)."""
        async with self.two_instances() as (first, second):
            lease = await first.claim(KEY)
            for number in range(10):
                assert await first.append(KEY, [message()], token=lease.token) == 2 * number + 1
                assert await second.append(KEY, [message()], token=None) == 2 * number + 2
            await first.release(lease)
            other = await second.claim(KEY)
            with pytest.raises(StaleLeaseError):
                await first.append(KEY, [message()], token=lease.token)
            await second.append(KEY, [message()], token=other.token)
            assert await first.read(KEY) == await second.read(KEY)

    # --- news

    async def test_a_subscriber_hears_of_every_append_and_release(self) -> None:
        """Calls may be merged and may come in excess; they are never left out."""
        async with self.opened(KEY, OTHER) as store:
            news = News(store, KEY)
            await news.settle()
            lease = await store.claim(KEY)
            for _ in range(3):
                last = await store.append(KEY, [message()], token=lease.token)
                await news.wait()
                assert news.last_seq == last
            await news.settle()
            await store.release(lease)
            await news.wait()
            await news.settle()
            calls = news.calls
            news.stop()
            news.stop()
            await store.append(KEY, [message()], token=None)
            await news.settle()
            assert news.calls == calls

    async def test_a_subscriber_hears_of_other_instances(self) -> None:
        """An append and a release by another instance are heard, also when claim and release follow at once."""
        async with self.two_instances() as (first, second):
            news = News(first, KEY)
            await news.settle()
            last = await second.append(KEY, [message()], token=None)
            await news.wait()
            assert news.last_seq == last
            await news.settle()
            for _ in range(3):
                lease = await second.claim(KEY)
                await second.release(lease)
                await news.wait()
                await news.settle()

    # --- runs

    async def test_unfinished_runs_are_listed_oldest_first(self) -> None:
        """Queued and started runs are listed until they are ended and settled."""
        async with self.opened(KEY, OTHER) as store:
            lease = await store.claim(KEY)
            await store.append(KEY, [started("r2")], token=lease.token)
            await store.append(OTHER, [queued("r1")], token=None)
            await store.append(KEY, [queued("r3")], token=None)
            await store.append(KEY, [ended("r2")], token=lease.token)
            assert await store.unfinished() == [
                Unfinished(KEY, "r2", ended=True),
                Unfinished(OTHER, "r1", ended=False),
                Unfinished(KEY, "r3", ended=False),
            ]
            assert [row.run_id for row in await store.unfinished(OTHER)] == ["r1"]
            await store.release(lease, settled=["r2", "r3"])
            assert [row.run_id for row in await store.unfinished()] == ["r1", "r3"], "r3 has not ended"
            assert await store.unfinished(SessionKey("no", "such", "one")) == []

    async def test_a_further_attempt_does_not_reopen_a_run(self) -> None:
        """A run is one row of the index, however often it is queued and started."""
        async with self.opened(KEY) as store:
            await store.append(KEY, [queued("r"), started("r"), started("r")], token=None)
            assert await store.unfinished(KEY) == [Unfinished(KEY, "r", ended=False)]
            await store.append(KEY, [ended("r")], token=None)
            assert await store.unfinished(KEY) == [Unfinished(KEY, "r", ended=True)]

    async def test_a_run_id_is_of_one_session(self) -> None:
        """A run that has the id of another session's run is refused, so that nobody stops a stranger's."""
        other = SessionKey("app", "eve", "s2")
        async with self.opened(KEY, other) as store:
            await store.append(KEY, [queued("r")], token=None)
            with pytest.raises(RunIdTakenError):
                await store.append(other, [queued("r")], token=None)
            assert await store.read(other) == []
            assert await store.find_run("r") == KEY

    async def test_a_run_is_found_for_ever(self) -> None:
        """`find_run` tells the session of a queued, a running and a settled run."""
        async with self.opened(KEY) as store:
            lease = await store.claim(KEY)
            await store.append(KEY, [queued("r1"), started("r2")], token=lease.token)
            assert await store.find_run("r1") == await store.find_run("r2") == KEY
            await store.append(KEY, [ended("r2")], token=lease.token)
            await store.release(lease, settled=["r2"])
            assert await store.find_run("r2") == KEY
            assert await store.find_run("r3") is None

    # --- state, drafts

    async def test_shared_state_is_shared_by_prefix(self) -> None:
        """``app:`` reaches all users of the app, ``user:`` all sessions of the user; other keys stay in the session."""
        async with self.opened(KEY, OTHER, SessionKey("app", "", "s")) as store:
            await store.append(KEY, [changed(app__theme="dark", user__lang="de", mine=1)], token=None)
            await store.append(OTHER, [changed(app__theme="light", app__n={"a": [1, None]})], token=None)
            assert await store.shared_state("app", "ann") == {
                "app:theme": "light",
                "app:n": {"a": [1, None]},
                "user:lang": "de",
            }
            assert await store.shared_state("app", "bob") == {"app:theme": "light", "app:n": {"a": [1, None]}}
            assert await store.shared_state("app", "") == await store.shared_state("app", "bob")
            assert await store.shared_state("zoo", "ann") == {}

    async def test_a_claim_tells_the_shared_state(self) -> None:
        """The lease carries the shared state as it is at the claim, so that a run need not ask for it."""
        async with self.opened(KEY, OTHER) as store:
            lease = await store.claim(KEY)
            assert lease.shared == {}
            await store.append(OTHER, [changed(app__a=1, user__b=[2], mine=3)], token=None)
            await store.release(lease)
            for _ in range(2):
                lease = await store.claim(KEY)
                assert lease.shared == {"app:a": 1, "user:b": [2]}
                lease.shared["user:b"].append("not stored")
                await store.release(lease)

    async def test_none_deletes_shared_state(self) -> None:
        """A None value takes the key out; the last value of a batch counts."""
        async with self.opened(KEY, SessionKey("app", "", "s")) as store:
            await store.append(SessionKey("app", "", "s"), [changed(user__x=1)], token=None)
            await store.append(KEY, [changed(app__a=1, user__x=2), changed(app__a=None, user__y=3)], token=None)
            assert await store.shared_state("app", "ann") == {"user:x": 2, "user:y": 3}
            await store.append(KEY, [changed(user__x=None)], token=None)
            assert await store.shared_state("app", "ann") == {"user:y": 3}
            assert await store.shared_state("app", "") == {"user:x": 1}

    async def test_a_repeat_does_not_touch_shared_state(self) -> None:
        """The repeat of an old append must not bring its old value back (F82, F158)."""
        async with self.opened(KEY) as store:
            old = changed(app__a=1)
            await store.append(KEY, [old], token=None)
            await store.append(KEY, [changed(app__a=2)], token=None)
            await store.append(KEY, [old], token=None)
            assert await store.shared_state("app", "ann") == {"app:a": 2}

    async def test_a_draft_is_replaced_by_the_next_one(self) -> None:
        """The last saved draft of each message of a run is kept."""
        async with self.opened(KEY) as store:
            await store.save_drafts(KEY, [draft("m1", "a"), draft("m2", "b"), draft("m3", "c", run_id="other")])
            await store.save_drafts(KEY, [draft("m1", "aa")])
            drafts = await store.drafts(KEY, "run")
            assert {item.message_id: item for item in drafts} == {"m1": draft("m1", "aa"), "m2": draft("m2", "b")}
            assert await store.read(KEY) == []

    async def test_a_draft_goes_with_its_message(self) -> None:
        """The final message replaces its draft, and no later draft brings it back."""
        async with self.opened(KEY) as store:
            await store.save_drafts(KEY, [draft("m1"), draft("m2")])
            await store.append(KEY, [message(id="m1")], token=None)
            await store.save_drafts(KEY, [draft("m1", "late")])
            assert await store.drafts(KEY, "run") == [draft("m2")]

    async def test_drafts_go_with_their_run(self) -> None:
        """The end of a run drops its drafts only, and no later draft brings them back."""
        async with self.opened(KEY) as store:
            await store.append(KEY, [started("run"), started("other")], token=None)
            await store.save_drafts(KEY, [draft("m1"), draft("m2", run_id="other")])
            await store.append(KEY, [ended("run")], token=None)
            await store.save_drafts(KEY, [draft("m1", "late")])
            assert await store.drafts(KEY, "run") == []
            assert await store.drafts(KEY, "other") == [draft("m2", run_id="other")]

    # --- blobs

    async def test_a_blob_has_versions(self) -> None:
        """Each save is a new version from 0; the newest is loaded unless one is named."""
        async with self.opened(KEY) as store:
            for version, content in enumerate((b"", b"\x00\xff", BIG, b"x")):
                assert await store.save_blob(KEY, "a/b.bin", content, mime_type=f"x/{version}") == version
            assert await store.load_blob(KEY, "a/b.bin") == Blob(mime_type="x/3", content=b"x")
            assert await store.load_blob(KEY, "a/b.bin", 2) == Blob(mime_type="x/2", content=BIG)
            assert await store.load_blob(KEY, "a/b.bin", 0) == Blob(mime_type="x/0", content=b"")
            assert await store.load_blob(KEY, "a/b.bin", 4) is await store.load_blob(KEY, "a/b.bin", -1) is None
            assert await store.blob_versions(KEY, "a/b.bin") == [0, 1, 2, 3]
            assert await store.read(KEY) == []

    async def test_blobs_are_listed_by_name(self) -> None:
        """A listing has the newest version of each blob, with its type and size."""
        async with self.opened(KEY, OTHER) as store:
            assert await store.list_blobs(KEY) == []
            await store.save_blob(KEY, "ä \U0001f600", b"123", mime_type="text/plain")
            await store.save_blob(KEY, "b", b"1", mime_type="x/old")
            await store.save_blob(KEY, "b", b"22", mime_type="x/new")
            await store.save_blob(OTHER, "c", b"", mime_type="x/y")
            assert await store.list_blobs(KEY) == [
                ArtifactInfo("b", 1, "x/new", 2),
                ArtifactInfo("ä \U0001f600", 0, "text/plain", 3),
            ]

    async def test_a_blob_belongs_to_its_session_or_to_its_user(self) -> None:
        """``user:`` names are seen in all sessions of the user in the app, and need none; others in one only."""
        elsewhere = [SessionKey("app", "bob", "s1"), SessionKey("zoo", "ann", "s1"), SessionKey("", "", "")]
        async with self.opened(KEY, OTHER, *elsewhere) as store:
            await store.save_blob(KEY, "user:photo", b"ann", mime_type="x/y")
            await store.save_blob(KEY, "note", b"s1", mime_type="x/y")
            assert await store.save_blob(OTHER, "user:photo", b"ann again", mime_type="x/y") == 1
            assert await store.save_blob(OTHER, "note", b"s2", mime_type="x/y") == 0
            assert [info.name for info in await store.list_blobs(OTHER)] == ["note", "user:photo"]
            assert await store.load_blob(OTHER, "note") == Blob(mime_type="x/y", content=b"s2")
            assert await store.load_blob(KEY, "user:photo", 0) == Blob(mime_type="x/y", content=b"ann")
            for key in elsewhere:
                assert await store.list_blobs(key) == []
                assert await store.blob_versions(key, "user:photo") == []
                assert await store.load_blob(key, "user:photo") is await store.load_blob(key, "note") is None
            nowhere = SessionKey("app", "ann", "never made")
            assert [info.name for info in await store.list_blobs(nowhere)] == ["user:photo"]
            assert await store.save_blob(nowhere, "user:photo", b"3", mime_type="x/y") == 2
            assert await store.load_blob(nowhere, "note") is None

    async def test_a_repeated_save_makes_no_second_version(self) -> None:
        """An attempt that is repeated with its id gets the version of the first one, whose content stands (F117)."""
        async with self.opened(KEY) as store:
            for content in (b"first", BIG):
                name = f"of {len(content)}"
                assert await store.save_blob(KEY, name, content, mime_type="x/y", id="call-1") == 0
                assert await store.save_blob(KEY, name, b"other", mime_type="x/z", id="call-2") == 1
                assert await store.save_blob(KEY, name, content + b"again", mime_type="x/y", id="call-1") == 0
                assert await store.load_blob(KEY, name, 0) == Blob(mime_type="x/y", content=content)
                assert await store.blob_versions(KEY, name) == [0, 1]
            assert await store.save_blob(KEY, "another name", b"", mime_type="x/y", id="call-1") == 0

    async def test_saves_at_the_same_moment_get_versions_of_their_own(self) -> None:
        """No version is given twice and none is lost; of saves with one id one counts."""
        async with self.opened(KEY) as store:
            contents = [BIG + b"1", b"2", BIG + b"3", b"4"]
            saves = [store.save_blob(KEY, "n", content, mime_type="x/y") for content in contents]
            versions = await asyncio.gather(*saves)
            assert sorted(versions) == [0, 1, 2, 3]
            for version, content in zip(versions, contents, strict=True):
                assert await store.load_blob(KEY, "n", version) == Blob(mime_type="x/y", content=content)
            twins = [store.save_blob(KEY, "twins", BIG, mime_type="x/y", id="same") for _ in range(4)]
            assert await asyncio.gather(*twins) == [0, 0, 0, 0]
            assert await store.blob_versions(KEY, "twins") == [0]

    async def test_a_deleted_blob_is_gone(self) -> None:
        """All versions go; the name is free; deleting what is not there does nothing."""
        async with self.opened(KEY, OTHER) as store:
            for name in ("a", "user:a"):
                await store.save_blob(KEY, name, BIG, mime_type="x/y", id="i")
                await store.save_blob(KEY, name, b"1", mime_type="x/y")
                await store.save_blob(KEY, name + "b", b"kept", mime_type="x/y")
                await store.delete_blob(OTHER if name == "user:a" else KEY, name)
                await store.delete_blob(KEY, name)
                assert await store.load_blob(KEY, name) is await store.load_blob(KEY, name, 0) is None
                assert await store.blob_versions(KEY, name) == []
            assert [info.name for info in await store.list_blobs(KEY)] == ["ab", "user:ab"]
            assert await store.save_blob(KEY, "a", b"new", mime_type="x/y", id="i") == 0
            await store.delete_blob(SessionKey("no", "such", "one"), "a")

    async def test_erasing_a_session_erases_its_blobs(self) -> None:
        """The session's own go with it; those of its user stay, and can be deleted without it."""
        async with self.opened(KEY, OTHER) as store:
            for key, name in ((KEY, "a"), (KEY, "user:a"), (OTHER, "a")):
                await store.save_blob(key, name, BIG, mime_type="x/y")
            await store.erase_session(KEY, by="ann")
            assert [info.name for info in await store.list_blobs(KEY)] == ["user:a"]
            assert await store.load_blob(KEY, "a") is None
            for content in (b"late", BIG):
                with pytest.raises(SessionErasedError):
                    await store.save_blob(KEY, "a", content, mime_type="x/y")
                with pytest.raises(UnknownSessionError):
                    await store.save_blob(SessionKey("no", "such", "one"), "a", content, mime_type="x/y")
            await store.delete_blob(KEY, "user:a")
            assert [info.name for info in await store.list_blobs(OTHER)] == ["a"]

    async def test_a_cancelled_save_happened_whole_or_not_at_all(self) -> None:
        """Cancelled at any moment, a save has left its version or nothing, and can be repeated with its id (F158)."""
        async with self.opened(KEY) as store:
            for yields in range(0, 24, 3):
                name = str(yields)
                await _cancel_after(yields, store.save_blob(KEY, name, BIG, mime_type="x/y", id="i"))
                assert await store.blob_versions(KEY, name) in ([], [0])
                assert await store.save_blob(KEY, name, BIG, mime_type="x/y", id="i") == 0
                assert await store.load_blob(KEY, name) == Blob(mime_type="x/y", content=BIG)
            assert len(await store.list_blobs(KEY)) == 8

    async def test_blobs_are_there_after_reopening(self) -> None:
        """Blobs and their ids outlive the instance."""
        store = await self.open_store()
        await store.create_session(KEY)
        await store.save_blob(KEY, "a", BIG, mime_type="x/y", id="i")
        await store.save_blob(KEY, "user:a", b"1", mime_type="x/y")
        again = await self.reopen(store)
        if again is None:
            pytest.skip("this store does not outlive its instance")
        try:
            assert await again.load_blob(KEY, "a") == Blob(mime_type="x/y", content=BIG)
            assert await again.save_blob(KEY, "a", BIG, mime_type="x/y", id="i") == 0
            assert [info.name for info in await again.list_blobs(KEY)] == ["a", "user:a"]
        finally:
            await again.aclose()

    # --- signs of life

    async def test_an_instance_is_alive_until_it_is_closed(self) -> None:
        """It says so of itself and of others, whether they hold a lease or have given it back (F78)."""
        async with self.two_instances() as (first, second):
            assert await second.is_alive(second.owner)
            lease = await first.claim(KEY)
            assert await second.is_alive(first.owner) and await first.is_alive(first.owner)
            await first.release(lease)
            assert await second.is_alive(first.owner)
            await first.aclose()
            assert not await second.is_alive(first.owner)
            assert not await second.is_alive("nobody")

    # --- erasing

    async def test_erasing_leaves_a_tombstone_and_nothing_else(self) -> None:
        """Who, when, why and how much are kept; content, runs, guards and drafts are not."""
        async with self.opened() as store:
            info = await store.create_session(KEY, {"a": 1})
            await store.append(KEY, [started("r"), message()], token=None, guard=Guard("g", "v"))
            await store.save_drafts(KEY, [draft("m", run_id="r")])
            stone = await store.erase_session(KEY, by="ann", reason="asked")
            assert (stone.key, stone.records, stone.by, stone.reason) == (KEY, 3, "ann", "asked")
            assert stone.created == info.created <= stone.erased
            assert await store.tombstone(KEY) == stone
            assert await store.erase_session(KEY, by="bob") == stone, "idempotent"
            assert await store.get_session(KEY) is None
            assert await store.list_sessions() == []
            assert await store.unfinished() == []
            assert await store.find_run("r") is None

    async def test_an_erased_session_cannot_be_used(self) -> None:
        """Every use says that it was erased; the key is never given to another session."""
        async with self.opened(KEY) as store:
            await store.erase_session(KEY, by="ann")
            for attempt in _uses_of(store, KEY):
                with pytest.raises(SessionErasedError):
                    await attempt()
            with pytest.raises(SessionErasedError):
                await store.create_session(KEY)

    async def test_the_holder_of_an_erased_session_is_refused(self) -> None:
        """Erasing does not wait for the holder; its next append writes nothing, its release is harmless."""
        async with self.opened(KEY) as store:
            news = News(store, KEY)
            lease = await store.claim(KEY)
            await news.settle()
            await store.erase_session(KEY, by="ann")
            await news.wait()
            with pytest.raises(SessionErasedError):
                await store.append(KEY, [message()], token=lease.token)
            await store.release(lease)

    # --- cancelling, closing, reopening

    async def test_a_cancelled_append_happened_whole_or_not_at_all(self) -> None:
        """Cancelled at any moment, an append leaves all of its records or none, and can be repeated (F158)."""
        async with self.opened(KEY) as store:
            for yields in range(12):
                batch = [message(str(yields)), message(str(yields))]
                before = len(await store.read(KEY))
                await _cancel_after(yields, store.append(KEY, batch, token=None))
                last = await store.append(KEY, batch, token=None)
                assert last == before + 2 == len(await store.read(KEY))

    async def test_a_cancelled_claim_leaves_no_lease(self) -> None:
        """Nobody would release it: a claim whose caller is gone has not happened."""
        async with self.opened(KEY) as store:
            for yields in range(12):
                lease = await _cancel_after(yields, store.claim(KEY))
                if lease is None:
                    lease = await _claim_soon(store)
                await store.release(lease)

    async def test_any_method_can_be_cancelled(self) -> None:
        """After a cancelled call of any kind the store works on."""
        async with self.opened(KEY) as store:
            for yields in range(6):
                for attempt in _uses_of(store, KEY):
                    await _cancel_after(yields, attempt())
                await _cancel_after(yields, store.list_sessions())
                await _cancel_after(yields, store.create_session(SessionKey("app", "ann", f"new{yields}")))
                await _cancel_after(yields, store.erase_session(SessionKey("app", "ann", f"new{yields}"), by="ann"))
            last = await store.append(KEY, [message()], token=None)
            assert [record.seq for record in await store.read(KEY)] == list(range(1, last + 1))

    async def test_a_closed_store_takes_no_calls(self) -> None:
        """Closing twice is harmless; everything else is a typed error."""
        async with self.opened(KEY) as store:
            await store.aclose()
            await store.aclose()
            for attempt in _uses_of(store, KEY):
                with pytest.raises(StoreClosedError):
                    await attempt()
            with pytest.raises(StoreClosedError):
                store.subscribe(KEY, lambda _: None)

    async def test_closing_finishes_what_was_begun(self) -> None:
        """Appends that were called before `aclose` are stored and answered."""
        async with self.opened(KEY) as store:
            tasks = [asyncio.ensure_future(store.append(KEY, [message()], token=None)) for _ in range(5)]
            await asyncio.sleep(0)
            await store.aclose()
            assert sorted(await asyncio.gather(*tasks)) == [1, 2, 3, 4, 5]

    async def test_everything_is_there_after_reopening(self) -> None:
        """Records, runs, guards, states, drafts and tombstones outlive the instance; leases do not."""
        store = await self.open_store()
        await store.create_session(KEY, {"app:a": 1})
        await store.create_session(OTHER)
        await store.erase_session(OTHER, by="ann")
        lease = await store.claim(KEY)
        await store.append(KEY, [started("r"), message()], token=lease.token, guard=Guard("g", "v"))
        await store.save_drafts(KEY, [draft("m", run_id="r")])
        records, info = await store.read(KEY), await store.get_session(KEY)
        again = await self.reopen(store)
        if again is None:
            pytest.skip("this store does not outlive its instance")
        try:
            assert await again.read(KEY) == records
            assert await again.get_session(KEY) == info
            assert await again.find_guard(KEY, "g") == "v"
            assert await again.unfinished() == [Unfinished(KEY, "r", ended=False)]
            assert await again.shared_state("app", "ann") == {"app:a": 1}
            assert await again.drafts(KEY, "r") == [draft("m", run_id="r")]
            assert await again.tombstone(OTHER) is not None
            assert await again.holder(KEY) is None
            assert (await again.claim(KEY)).token > lease.token
        finally:
            await again.aclose()


def _uses_of(store: Store, key: SessionKey) -> list[Callable[[], Awaitable[object]]]:
    """Return every method that needs the session to exist."""
    return [
        lambda: store.read(key),
        lambda: store.append(key, [message()], token=None),
        lambda: store.claim(key),
        lambda: store.holder(key),
        lambda: store.find_guard(key, "g"),
        lambda: store.save_drafts(key, [draft("m-use")]),
        lambda: store.drafts(key, "run"),
        lambda: store.save_blob(key, "use", b"1", mime_type="x/y"),
    ]


async def _cancel_after(yields: int, work: Awaitable[Any]) -> Any:
    """Cancel a call after so many turns of the loop; return its result, or None if it was cancelled or refused."""
    task = asyncio.ensure_future(work)
    for _ in range(yields):
        await asyncio.sleep(0)
    task.cancel()
    result: Any = (await asyncio.gather(task, return_exceptions=True))[0]
    return None if isinstance(result, BaseException) else result


async def _claim_soon(store: Store) -> Lease:
    """Claim a session whose cancelled claimer may be about to give it back."""
    async with asyncio.timeout(NEWS_SECONDS):
        while True:
            try:
                return await store.claim(KEY)
            except LeaseHeldError:
                await asyncio.sleep(0.001)
