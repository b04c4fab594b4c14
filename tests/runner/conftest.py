"""Fixtures of the runner's tests: stores, and desks that are closed at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.runner.desk import Desk, let_all_go

from heaveto import MemoryStore, SqliteStore
from heaveto.stores.base import Store


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Each store in turn; its runner closes it."""
    return MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "heaveto.db")


@pytest.fixture
async def desk() -> AsyncIterator[Callable[..., Desk]]:
    """Makes desks (see `Desk`); behind the test their logs are checked and they are closed."""
    made: list[Desk] = []

    def make(*steps: Any, **options: Any) -> Desk:
        made.append(Desk(*steps, **options))
        return made[-1]

    yield make
    let_all_go()
    for one in made:
        await one.check_promises()
        await one.runner.aclose()
