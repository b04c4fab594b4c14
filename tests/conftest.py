"""Settings of all tests: Hypothesis profiles. The rest stands in pyproject.toml."""

from __future__ import annotations

import gc

import pytest
from hypothesis import HealthCheck, settings
from tests.effort import PROFILE

# Before anything imports them: their assertions tell values, as those of tests do.
pytest.register_assert_rewrite(
    "heaveto.testing.artifact_contract", "heaveto.testing.model_contract", "heaveto.testing.store_contract"
)

# No deadlines: a shared machine may stall for a second, and the per-test timeout catches what hangs.
# What must pass before a merge is the same each time, so that it fails because of the change.
# The other profiles look for new examples.
settings.register_profile("dev", deadline=None, max_examples=50)
settings.register_profile("long", deadline=None, max_examples=1_500, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "ci", deadline=None, max_examples=200, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(PROFILE)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Property tests get minutes: one that found a failure must be able to shrink it, and to show it."""
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False) and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture
def swept() -> None:
    """Garbage of earlier tests is gone, before a loop runs in which clients that nobody closed could start tasks."""
    gc.collect()
