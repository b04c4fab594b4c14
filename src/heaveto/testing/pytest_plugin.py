"""Fixtures for pytest, there as soon as heaveto is installed. Nothing heavy is loaded before one is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from heaveto.testing.emulator import Emulator, EmulatorThread


@pytest.fixture
def emulator() -> Iterator[Callable[..., Emulator]]:
    """Make emulators: ``async with emulator(say("Hi")) as it``, with the arguments of `Emulator`.

    After the test each must have been asked for all of its steps, and have refused nothing; ``check=False`` leaves
    that to the test.
    """
    from heaveto.testing.emulator import Emulator

    made: list[Emulator] = []

    def make(*steps: Any, check: bool = True, **options: Any) -> Emulator:
        one = Emulator(*steps, **options)
        made.extend([one] if check else [])
        return one

    yield make
    for one in made:
        one.assert_done()


@pytest.fixture
def emulator_thread() -> Iterator[Callable[..., EmulatorThread]]:
    """Make emulators for tests that block: ``with emulator_thread(say("Hi")) as it``. Checked likewise."""
    from heaveto.testing.emulator import EmulatorThread

    made: list[EmulatorThread] = []

    def make(*steps: Any, check: bool = True, **options: Any) -> EmulatorThread:
        one = EmulatorThread(*steps, **options)
        made.extend([one] if check else [])
        return one

    yield make
    for one in made:
        one.emulator.assert_done()
