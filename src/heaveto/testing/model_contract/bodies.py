"""What is in a request's body."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from heaveto.events.contents import Json


def objects_in(value: Json) -> Iterator[dict[str, Json]]:
    """Return every object within a JSON value."""
    match value:
        case dict():
            found = cast("dict[str, Json]", value)
            yield found
            for inner in found.values():
                yield from objects_in(inner)
        case list():
            for inner in cast("list[object]", value):
                yield from objects_in(inner)
        case _:
            pass


def texts_in(value: Json) -> list[str]:
    """Return every text among the fields of a JSON value; texts in lists of texts are left out."""
    return [text for found in objects_in(value) for text in found.values() if isinstance(text, str)]
