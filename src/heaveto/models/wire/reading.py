"""Reading JSON that servers send, and that may be anything: what is not of the wanted kind counts as empty."""

from __future__ import annotations

from typing import Any, cast

_BEYOND = 2**63


def as_object(value: object) -> dict[str, Any]:
    """Return an object as it is."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_objects(value: object) -> list[dict[str, Any]]:
    """Return the items of a list as objects."""
    return [as_object(item) for item in cast("list[object]", value)] if isinstance(value, list) else []


def as_text(value: object) -> str:
    """Return a text as it is."""
    return value if isinstance(value, str) else ""


def as_count(value: object) -> int:
    """Return a whole number from 0 to what a log can hold. Some servers write whole numbers as ``12.0``."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 <= value < _BEYOND else 0
