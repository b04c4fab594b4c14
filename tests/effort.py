"""How hard property tests try: as hard as each says, or, with the profile `long`, ten times as hard."""

from __future__ import annotations

import os

PROFILE = os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev")


def examples(usual: int) -> int:
    """The number of examples of a test that has a usual number of its own."""
    return 10 * usual if PROFILE == "long" else usual
