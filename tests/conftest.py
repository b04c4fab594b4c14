"""Settings of all tests: Hypothesis profiles. The rest stands in pyproject.toml."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# No deadlines: a shared machine may stall for a second, and the per-test timeout catches what hangs.
settings.register_profile("dev", deadline=None, max_examples=50)
settings.register_profile(
    "ci", deadline=None, max_examples=200, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev"))
