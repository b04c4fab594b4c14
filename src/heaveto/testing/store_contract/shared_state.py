"""The states that sessions share: those of an app and of a user."""

from __future__ import annotations

from heaveto.events.records import SessionKey
from heaveto.testing.store_contract.content import KEY, OTHER, changed
from heaveto.testing.store_contract.suite import StoreSuite


class SharedStateContract(StoreSuite):
    """What a store promises of shared state."""

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
