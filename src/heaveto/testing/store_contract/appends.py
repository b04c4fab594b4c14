"""Appending and reading: seqs without gaps, whole batches, repeats that do nothing."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from heaveto.errors import DuplicateRecordError, NotSerializableError, StaleLeaseError, UnknownSessionError
from heaveto.events.contents import Text
from heaveto.events.records import CallProgress, CallSettled, Message, SessionKey
from heaveto.stores.base import Guard
from heaveto.testing.store_contract.content import KEY, OTHER, ids_of, message
from heaveto.testing.store_contract.suite import StoreSuite


class AppendContract(StoreSuite):
    """What a store promises of records."""

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
