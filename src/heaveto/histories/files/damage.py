"""What is wrong with the text of a file, before anything is asked of its messages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

DamageKind: TypeAlias = Literal[
    "truncated", "unreadable", "nul-bytes", "glued", "invalid-utf8", "broken-escape", "lone-surrogate",
    "control-character", "byte-order-mark", "duplicate-line", "no-object", "lost-parent", "no-line-end",
]  # fmt: skip
DamageAction: TypeAlias = Literal["set aside", "replaced", "split", "removed", "linked again", "added"]


@dataclass(frozen=True, slots=True)
class Damage:
    """One damaged place: its line (from 1), its range of bytes in the file as it was read, and what was done about it.

    "set aside" means that these bytes are not in the repaired file. What was read around them is.
    """

    kind: DamageKind
    line: int
    start: int
    end: int
    action: DamageAction


_UNDECODED = re.compile("[\udc80-\udcff]+")
_NULS_OR_CONTROLS = re.compile(r"\x00+|[\x01-\x08\x0b\x0c\x0e-\x1f\t\r\n]")
_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_ESCAPES = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|\\')
_SURROGATES = re.compile(
    r"(?P<kept>\\[^u]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
_REPLACEMENT = "\ufffd"


def decoded(data: bytes) -> str:
    """Return the text; bytes that are no UTF-8 become code points that `encoded` turns back."""
    return data.decode("utf-8", "surrogateescape")


def encoded(text: str) -> bytes:
    """Return the bytes of a text, with those that could not be decoded as they were."""
    return text.encode("utf-8", "surrogateescape")


def size(text: str) -> int:
    """Return how many bytes a decoded text has."""
    return len(text) if text.isascii() else len(encoded(text))


def with_valid_utf8(text: str) -> str:
    """Return the text with U+FFFD for each run of bytes that were no UTF-8."""
    return text if text.isascii() else _UNDECODED.sub(_REPLACEMENT, text)


def with_valid_strings(text: str) -> str:
    """Return a JSON text whose strings have no raw control characters and no escapes that JSON does not know.

    A run of NULs stands for text that was lost: it becomes U+FFFD. An unknown escape is read as the backslash it shows.
    """
    return _STRINGS.sub(lambda found: _ESCAPES.sub(_known_escape, _NULS_OR_CONTROLS.sub(_escaped, found[0])), text)


def _escaped(found: re.Match[str]) -> str:
    return _REPLACEMENT if found[0][0] == "\0" else f"\\u{ord(found[0]):04x}"


def _known_escape(found: re.Match[str]) -> str:
    return found[0] if len(found[0]) > 1 else "\\\\"


def without_lone_surrogates(text: str) -> str:
    r"""Return the JSON text with \ufffd for each escaped half of a surrogate pair that has no other half.

    Python reads them; providers and other parsers refuse the request that carries one.
    """
    if "\\u" not in text:
        return text
    return _SURROGATES.sub(lambda found: found["kept"] or "\\ufffd", text)
