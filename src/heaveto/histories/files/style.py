"""Writing a JSON value the way its neighbours in the file are written."""

from __future__ import annotations

import json
import re

from heaveto.histories.files.damage import with_valid_utf8

_FIRST_MEMBER = re.compile(r'\{(\s*)"(?:[^"\\]|\\.)*"(\s*):(\s*)')
_NEXT_MEMBER = re.compile(r',(\s*)"(?:[^"\\]|\\.)*"\s*:')
_INDENTED = re.compile(r"\n([ \t]*)")


def written_like(value: object, model: str, column: str = "") -> str:
    """Return the JSON text of a value in the style of another: its spaces, its line breaks, its escapes.

    `column`: the white space before the place where it will stand, if that is at the start of a line.
    """
    first = _FIRST_MEMBER.search(model)
    colon = f"{first[2]}:{first[3]}" if first is not None else ": "
    ascii_only = model.isascii() and "\\u" in model
    indented = _INDENTED.match(first[1]) if first is not None else None
    if indented is None:
        comma = _NEXT_MEMBER.search(model)
        separators = ("," + comma[1] if comma is not None and "\n" not in comma[1] else _comma(colon), colon)
        text = json.dumps(value, ensure_ascii=ascii_only, separators=separators)
    else:
        unit = indented[1].removeprefix(column) or "  "
        text = json.dumps(value, ensure_ascii=ascii_only, separators=(",", colon), indent=unit)
        newline = "\r\n" if first is not None and "\r\n" in first[1] else "\n"
        text = text.replace("\n", newline + column)
    return with_valid_utf8(text)


def _comma(colon: str) -> str:
    return ", " if colon.endswith(" ") else ","
