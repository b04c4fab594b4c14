"""Sessions: made once, found, listed, and told apart by every part of their keys."""

from __future__ import annotations

import pytest

from heaveto.errors import SessionExistsError, UnknownSessionError
from heaveto.events.contents import Text
from heaveto.events.records import Message, SessionKey, StateChanged
from heaveto.testing.store_contract.content import KEY, OTHER, ended, message, started
from heaveto.testing.store_contract.suite import StoreSuite, uses_of


class SessionContract(StoreSuite):
    """What a store promises of sessions."""

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
            for attempt in uses_of(store, KEY):
                with pytest.raises(UnknownSessionError):
                    await attempt()
            with pytest.raises(UnknownSessionError):
                await store.erase_session(KEY, by="ann")
            assert await store.tombstone(KEY) is None
