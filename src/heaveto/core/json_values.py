"""Reading JSON that may be anything: what is not of the wanted kind counts as empty."""

from __future__ import annotations

from typing import Any, cast

Body = dict[str, Any]


def objects(value: object) -> list[Body]:
    """Return the objects of a JSON list; nothing where it is not a list."""
    if not isinstance(value, list):
        return []
    return [cast("Body", item) for item in cast("list[object]", value) if isinstance(item, dict)]


def is_objects(value: object) -> bool:
    """Whether a JSON value is a list with nothing but objects in it."""
    return isinstance(value, list) and all(isinstance(item, dict) for item in cast("list[object]", value))


def fields(value: object) -> Body:
    """Return a JSON object, or an empty one where it is not an object."""
    return cast("Body", value) if isinstance(value, dict) else {}


def text(value: object) -> str:
    """Return a JSON string, or an empty one where it is not a string."""
    return value if isinstance(value, str) else ""


def repeated(values: list[str]) -> str | None:
    """Return the first value that stands twice in the list."""
    seen: set[str] = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None
