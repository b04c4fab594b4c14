"""Reading JSON texts that may be damaged: what can be read is, and the rest is named."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import msgspec

from heaveto.histories.files.damage import (
    DamageKind,
    encoded,
    with_valid_strings,
    with_valid_utf8,
    without_lone_surrogates,
)

Object: TypeAlias = dict[str, Any]
IsEntry: TypeAlias = Callable[[Object], bool]

_DECODER = json.JSONDecoder()
_NULS = re.compile("\0+")
_MOST_ATTEMPTS = 200
"""Places in one damaged line at which a whole entry is looked for: each may cost a look at the rest of the line."""


@dataclass(frozen=True, slots=True)
class Found:
    """A value in a text, from `start` to `end`; `text` is what to write for it: the same, or corrected."""

    value: object
    start: int
    end: int
    text: str
    corrected: tuple[DamageKind, ...] = ()


@dataclass(frozen=True, slots=True)
class Lost:
    """A stretch of text in which nothing could be read."""

    start: int
    end: int
    kind: DamageKind


def object_in(data: bytes) -> Object | None:
    """Return the object that these bytes are, if they are one in valid UTF-8, and nothing in them is to be corrected.

    msgspec is stricter than Python's reader, and says the same where it says something; but for lines it is faster,
    and keeps the names of members once for all of them.
    """
    try:
        value: object = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        return None
    return cast("Object", value) if isinstance(value, dict) else None


def parsed(text: str) -> object:
    """Return the value of a JSON text.

    Raises:
        ValueError: it is none, or is nested too deeply to be read.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def value_at(text: str, position: int) -> tuple[object, int]:
    """Return the value that begins at this position, and where it ends.

    Raises:
        ValueError: none does.
    """
    try:
        value, end = cast("tuple[object, int]", _DECODER.raw_decode(text, position))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return value, end


def corrected(text: str, offset: int = 0) -> Found | None:
    """Read a text whose strings may hold bytes that are no UTF-8, wrong escapes and control characters.

    None if it is more than that. The text of what is found is valid JSON and valid UTF-8.
    """
    whole = object_in(encoded(text))
    if whole is not None:
        return Found(whole, offset, offset + len(text), text)
    kinds: list[DamageKind] = []
    valid = with_valid_utf8(text)
    if valid is not text and valid != text:
        kinds.append("invalid-utf8")
    try:
        value = parsed(valid)
    except ValueError:
        strings = with_valid_strings(valid)
        try:
            value = parsed(strings)
        except ValueError:
            return None
        kinds.append(_string_damage(valid))
        valid = strings
    paired = without_lone_surrogates(valid)
    if paired != valid:
        kinds.append("lone-surrogate")
        value, valid = parsed(paired), paired
    return Found(value, offset, offset + len(text), valid, tuple(kinds))


def _string_damage(text: str) -> DamageKind:
    if "\0" in text:
        return "nul-bytes"
    return "control-character" if re.search(r"[\x00-\x1f]", text) else "broken-escape"


def salvaged(text: str, is_entry: IsEntry, first_keys: Iterable[str]) -> list[Found | Lost]:
    """Read what is whole in a line that is no JSON: entries behind a torn one, before one, or around NULs.

    Only objects that `is_entry` knows count, so that a part of a torn entry is not taken for an entry. `first_keys`:
    what the file's entries begin with.
    """
    begins = re.compile(r'\{\s*"(?:' + "|".join(re.escape(key) for key in sorted(first_keys)) + r')"\s*:')
    pieces: list[Found | Lost] = []
    position = 0
    for nuls in [*_NULS.finditer(text), None]:
        end = nuls.start() if nuls is not None else len(text)
        pieces += _entries(text[position:end], position, is_entry, begins)
        if nuls is not None:
            pieces.append(Lost(nuls.start(), nuls.end(), "nul-bytes"))
            position = nuls.end()
    return pieces


def _entries(text: str, offset: int, is_entry: IsEntry, begins: re.Pattern[str]) -> list[Found | Lost]:
    """Return the whole entries of a text, and what stands between them."""
    pieces: list[Found | Lost] = []
    rest = 0
    for start in _candidates(text, begins):
        if start < rest:
            continue
        found = _entry_at(text, start, offset, is_entry)
        if found is None:
            continue
        pieces += _lost(text, rest, start, offset)
        pieces.append(found)
        rest = found.end - offset
    return [*pieces, *_lost(text, rest, len(text), offset)]


def _candidates(text: str, begins: re.Pattern[str]) -> list[int]:
    first = len(text) - len(text.lstrip())
    found = [match.start() for _, match in zip(range(_MOST_ATTEMPTS), begins.finditer(text), strict=False)]
    return found if found[:1] == [first] else [first, *found]


def _entry_at(text: str, start: int, offset: int, is_entry: IsEntry) -> Found | None:
    try:
        value, end = value_at(text, start)
    except ValueError:
        whole = corrected(text[start:].rstrip())
        if whole is None or not _is_whole(whole.value, is_entry):
            return None
        return Found(whole.value, offset + start, offset + start + whole.end, whole.text, whole.corrected)
    whole = corrected(text[start:end]) if _is_whole(value, is_entry) else None
    if whole is None:
        return None
    return Found(whole.value, offset + start, offset + end, whole.text, whole.corrected)


def _is_whole(value: object, is_entry: IsEntry) -> bool:
    return isinstance(value, dict) and is_entry(cast("Object", value))


def _lost(text: str, start: int, end: int, offset: int) -> list[Lost]:
    part = text[start:end]
    if not part.strip():
        return []
    return [Lost(offset + end - len(part.lstrip()), offset + start + len(part.rstrip()), "unreadable")]
