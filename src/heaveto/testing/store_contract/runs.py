"""The index of runs: what is unfinished, and where a run is."""

from __future__ import annotations

import pytest

from heaveto.errors import RunIdTakenError
from heaveto.events.records import SessionKey
from heaveto.stores.base import Unfinished
from heaveto.testing.store_contract.content import KEY, OTHER, ended, queued, started
from heaveto.testing.store_contract.suite import StoreSuite


class RunContract(StoreSuite):
    """What a store promises of runs."""

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
