"""Finding out that an owner is dead, while another one is taking its leases over."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from heaveto.clock import SystemClock
from heaveto.stores.sqlite import schema, sql
from heaveto.stores.sqlite.ledger import Ledger

DEAD = "host:1:dead"


def file_of(store: Path) -> Path:
    return store.with_name(f"{store.name}-owner-dead")


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_the_file_of_a_dead_owner_stays_until_its_beat_is_seen_to_be_gone(tmp_path: Path, ending: str) -> None:
    """Without file but with a fresh beat a killed process counts as alive, and recovery would pass its sessions over.

    So the file goes after the commit that deletes the beat, and stays if there is none.
    """
    store = tmp_path / "store.db"
    connection = schema.open_file(store, 1.0)
    ledger = Ledger(connection, store, "me", ttl_seconds=10, busy_timeout_seconds=1, clock=SystemClock())
    with closing(ledger):
        file_of(store).touch()
        connection.execute(sql.UPSERT_OWNER, (DEAD, time.monotonic(), 10.0))
        ledger.begin(durable=False)
        assert not ledger.leases.is_alive(DEAD)
        assert file_of(store).exists()
        getattr(ledger, ending)()
        assert file_of(store).exists() is (ending == "rollback")
