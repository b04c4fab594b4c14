"""What servers send, as a log can hold it. Pure.

Providers quote pages and files of others in their data, where half an emoji at the end of a snippet is no rarity. One
such value must not cost the whole answer.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec
from msgspec.structs import replace

from heaveto.errors import NotSerializableError
from heaveto.events.codec import encode_value
from heaveto.events.contents import Json, Part, Thought

_DEEPEST = 100


def well_formed(text: str) -> str:
    """Join surrogate halves that arrived in two fragments, and replace those without a partner: no store takes them."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def storable(value: Json) -> Json:
    """Return a value that JSON and every store can say: as it is, or with what they cannot say replaced.

    Halves of surrogate pairs become U+FFFD, integers of more than 64 bits floats, and infinities, NaN, and what is
    nested more than a hundred levels deep, None.
    """
    try:
        encode_value(value, "")
    except NotSerializableError:
        return _mended(value, 0)
    return value


def storable_part(part: Part) -> Part:
    """Return a part with all of its fields storable. A signature does not outlive a change of what it covers."""
    fields = msgspec.structs.asdict(part)
    changes: dict[str, Any] = {}
    for name, value in fields.items():
        if not isinstance(value, bytes) and (mended := storable(value)) is not value:
            changes[name] = mended
    if not changes:
        return part
    if isinstance(part, Thought):
        changes |= {"signature": None, "data": None}
    return replace(part, **changes)


def _mended(value: Json, depth: int) -> Json:
    match value:
        case str():
            return well_formed(value)
        case int() if not -(2**63) <= value < 2**64:
            return _mended(_as_float(value), depth)
        case float() if not -float("inf") < value < float("inf"):
            return None
        case dict() | list() if depth == _DEEPEST:
            return None
        case dict():
            fields = cast("dict[str, Any]", value)
            return {well_formed(key): _mended(inner, depth + 1) for key, inner in fields.items()}
        case list():
            items = cast("list[Any]", value)  # type: ignore[redundant-cast]  # pyright sees a list of unknown
            return [_mended(inner, depth + 1) for inner in items]
        case _:
            return value


def _as_float(value: int) -> float | None:
    try:
        return float(value)
    except OverflowError:
        return None
