"""google-adk warns of its own experimental and deprecated parts while it is imported and used; only of those."""

from __future__ import annotations

from pathlib import Path

import pytest

_HERE = Path(__file__).parent
_OF_GOOGLE_ADK = (
    r"ignore:\[EXPERIMENTAL\]:UserWarning",
    r"ignore::DeprecationWarning:google\.",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE):
            for spec in _OF_GOOGLE_ADK:
                item.add_marker(pytest.mark.filterwarnings(spec))
