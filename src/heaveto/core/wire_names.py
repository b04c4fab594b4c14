"""Ids and names within what providers take, and what stands in where they want something and nothing is there.

Pure and deterministic: the same original gives the same replacement in every request, on the call and on its result,
because caches and signed thinking bind to the exact prefix.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Container
from typing import Literal

import msgspec

UNKNOWN_TOOL = "unknown_tool"
NOTHING = "."
"""What stands for a turn that must be there and has nothing to say (A9, A24, G3, G6, B6)."""
NO_SIGNATURE = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="
"""The documented stand-in ``skip_thought_signature_validator`` in base64, as the field's type wants it (G10)."""

_GENERATION = re.compile(r"gemini-(\d+)")


class IdRule(msgspec.Struct, frozen=True):
    """Which ids of calls a format takes, and the form of those that replace others."""

    valid: re.Pattern[str]
    form: Literal["hex", "alphanumeric"] = "hex"

    def fit(self, call_id: str) -> str:
        """Return the id as it is if the format takes it, else a hash of it."""
        if self.valid.fullmatch(call_id):
            return call_id
        return _alphanumeric(call_id, 9) if self.form == "alphanumeric" else f"h{digest(call_id)[:24]}"


COMMON_IDS = IdRule(re.compile(r"[A-Za-z0-9_-]{1,40}", re.ASCII))
"""Ids that every provider takes but Mistral's older tokenizers (O11, A6, R10, B8)."""


class NameRule(msgspec.Struct, frozen=True):
    """Which names of tools a format takes. `refused` matches what is replaced by an underscore."""

    refused: re.Pattern[str]
    limit: int
    starts_with_letter: bool = False

    def fit(self, name: str) -> str:
        """Return the name within charset and length. A valid one is unchanged; a long one keeps a hash."""
        clean = self.refused.sub("_", name)
        if self.starts_with_letter and clean and not (clean[0].isalpha() or clean[0] == "_"):
            clean = f"_{clean}"
        if len(clean) > self.limit:
            clean = f"{clean[: self.limit - 9]}_{digest(name)[:8]}"
        return clean or UNKNOWN_TOOL


COMMON_NAMES = NameRule(re.compile(r"[^A-Za-z0-9_-]", re.ASCII), 64)
"""Names that every provider takes (O12, A7, B8, M7); Gemini besides wants a letter first."""
GEMINI_NAMES = NameRule(re.compile(r"[^A-Za-z0-9_-]", re.ASCII), 64, starts_with_letter=True)


def wire_id(call_id: str) -> str:
    """Return the id of a call for the wire: as it is if every provider takes it, else a hash of it (O11, A6, R10)."""
    return COMMON_IDS.fit(call_id)


def wire_name(name: str) -> str:
    """Return a tool's name within the charset and length that providers take (O12, A7)."""
    return COMMON_NAMES.fit(name)


def gemini_name(name: str) -> str:
    """Return a tool's name as Gemini takes it: it begins with a letter or an underscore (G18)."""
    return GEMINI_NAMES.fit(name)


def wants_signatures(model: str) -> bool:
    """Whether a Gemini insists on thought signatures, by its name: from 3 on, and what is always the latest (G10)."""
    found = _GENERATION.search(model)
    return int(found[1]) >= 3 if found else "gemini-" in model and model.endswith("-latest")


def unique(
    wanted: str,
    taken: Container[str],
    *,
    then: str = "",
    fit: Callable[[str], str] = str,
    counts: dict[str, int] | None = None,
) -> str:
    """Return the first free one of: `wanted`, `then`, and the latter with ``_2``, ``_3`` and so on (F20).

    What is made is put through `fit`, so that it stays within what a format takes. `counts` remembers where to go on,
    for many calls with one id.
    """
    if wanted not in taken:
        return wanted
    if then and then not in taken:
        return then
    base = then or wanted
    count = 2 if counts is None else counts.get(base, 2)
    while (free := fit(f"{base}_{count}")) in taken:
        count += 1
    if counts is not None:
        counts[base] = count + 1
    return free


def digest(text: str) -> str:
    """Return the SHA-256 of a text in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def _alphanumeric(text: str, length: int) -> str:
    number, digits = int(digest(text), 16), ""
    for _ in range(length):
        number, digit = divmod(number, len(_DIGITS))
        digits += _DIGITS[digit]
    return digits
