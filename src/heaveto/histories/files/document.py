"""Files of one JSON document that holds a list of messages: where each element stands, also in a damaged one."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, cast

from heaveto.histories.files.damage import Damage, DamageAction, DamageKind, size
from heaveto.histories.files.json_text import Found, Object, corrected, value_at

LIST_KEYS = ("messages", "contents", "input", "history")
_WRAPPERS = ("request", "body", "data", "conversation", "session")
_SPACE = re.compile(r"[ \t\r\n]*")
_BETWEEN = re.compile(r"[ \t\r\n,]*")
_LIST_BEGINS = re.compile(r'"(?:' + "|".join(LIST_KEYS) + r')"\s*:\s*\[')
_LIST_ENDS = re.compile(r'\]\s*(?:,\s*"|\}|$)')
_PARTS = re.compile(r'[{"]')
_GARBAGE = 1000
"""Characters that may stand before an element where no part of another one is among them."""
_MOST_ATTEMPTS = 500
_MOST_MENDED = 1 << 22
"""Characters of an element up to which its strings are mended where that may make it whole."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member of the object that holds the list: its key, and where its value stands."""

    key: str
    start: int
    end: int
    value: Any


@dataclass(slots=True)
class Document:
    """A document taken apart: `elements` of the list that begins at `start` and ends behind `end`.

    `owner` are the members of the object that the list belongs to, as far as they could be read; `closing` is what is
    missing at the end, where the list `is_cut`, or the text is from `cut` on; `gaps` are damage outside of
    the list. `key` is None where the document is the list
    itself.
    """

    text: str
    key: str | None = None
    start: int = 0
    end: int = 0
    owner_start: int = 0
    elements: list[Found] = field(default_factory=list[Found])
    owner: list[Member] = field(default_factory=list[Member])
    damage: list[Damage] = field(default_factory=list[Damage])
    closing: str = ""
    is_cut: bool = False
    cut: int | None = None
    gaps: list[tuple[int, int]] = field(default_factory=list["tuple[int, int]"])

    def body(self) -> Object:
        """The object that holds the list, with the elements that could be read."""
        values = {member.key: member.value for member in self.owner}
        if self.key is not None:
            values[self.key] = [element.value for element in self.elements]
        return values

    def lines(self) -> list[int]:
        """Return the number of the line at which each element begins."""
        found: list[int] = []
        number, position = 1, 0
        for element in self.elements:
            number += self.text.count("\n", position, element.start)
            position = element.start
            found.append(number)
        return found

    def line(self, position: int) -> int:
        """Return the number of the line at this position."""
        return self.text.count("\n", 0, position) + 1


def read_document(text: str) -> Document | None:
    """Take a document apart. None if there is no list of messages in it."""
    document = Document(text)
    start = _space(text, 0)
    if text.startswith("[", start):
        document.start = start
        _read_list(document)
        return document
    if not text.startswith("{", start):
        return None
    return document if _read_owner(document, start, depth=0) else None


def _space(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    return found.end() if found is not None else position


def _read_owner(document: Document, start: int, depth: int) -> bool:
    """Read the members of an object until its list is found, and then the rest. False: it holds none."""
    members, end, whole = _members(document.text, start)
    holder = next((m for key in LIST_KEYS for m in members if m.key == key and isinstance(m.value, list)), None)
    if holder is not None:
        _hold(document, holder.key, holder.start, members, start)
        _read_list(document)
        _read_rest(document, depth + 1)
        return True
    for member in members:
        inner = member.key in _WRAPPERS and isinstance(member.value, dict)
        if inner and depth == 0 and _read_owner(document, member.start, depth + 1):
            return True
    return False if whole else _read_damaged_owner(document, start, members, end)


def _hold(document: Document, key: str, at: int, members: list[Member], start: int) -> None:
    document.key, document.start, document.owner, document.owner_start = key, at, members, start


def _members(text: str, start: int) -> tuple[list[Member], int, bool]:
    """Return an object's members, where reading ended, and whether that was the object's end."""
    members: list[Member] = []
    position = start + 1
    while True:
        found = _BETWEEN.match(text, position)
        position = found.end() if found is not None else position
        if text.startswith("}", position):
            return members, position + 1, True
        try:
            key, after = value_at(text, position)
            after = _space(text, after)
            if not isinstance(key, str) or not text.startswith(":", after):
                return members, position, False
            first = _space(text, after + 1)
            value, after = value_at(text, first)
        except ValueError:
            return members, position, False
        members.append(Member(key, first, after, value))
        position = after


def _read_damaged_owner(document: Document, start: int, members: list[Member], end: int) -> bool:
    """Look for the list behind what cannot be read, perhaps within a wrapped body."""
    text = document.text
    begins = _LIST_BEGINS.search(text, end)
    if begins is None:
        return False
    wrapped = _WRAPPED.match(text, end)
    if wrapped is not None:
        start = wrapped.end() - 1
        members, end, _ = _members(text, start)
        end = min(end, begins.start())
    if begins.start() > end:
        _damaged(document, end, begins.start(), "unreadable", "set aside")
        document.gaps.append((end, begins.start()))
    _hold(document, begins[0].split('"')[1], begins.end() - 1, members, start)
    _read_list(document)
    _read_rest(document, 2 if wrapped is not None else 1)
    return True


def _read_rest(document: Document, levels: int) -> None:
    """Read what stands behind the list, to the end of the objects around it; set aside what cannot be read."""
    text = document.text
    if document.is_cut:
        document.closing = "}" * levels
        return
    position = document.end
    for level in range(levels):
        _, position, whole = _members(text, position - 1)
        if not whole:
            _cut_behind(document, position, levels - level)
            return
    if text[position:].strip():
        _cut_behind(document, position, 0)


def _cut_behind(document: Document, position: int, levels: int) -> None:
    cut = max(len(document.text.rstrip()), position)
    _damaged(document, position, cut, "truncated" if levels else "unreadable", "set aside")
    document.cut = max(len(document.text[:position].rstrip(" \t\r\n,")), document.end)
    document.closing = "}" * levels


_WRAPPED = re.compile(r'"(?:' + "|".join(_WRAPPERS) + r')"\s*:\s*\{')


def _damaged(document: Document, start: int, end: int, kind: DamageKind, action: DamageAction) -> None:
    text = document.text
    first = size(text[:start])
    document.damage.append(Damage(kind, document.line(start), first, first + size(text[start:end]), action))


def _read_list(document: Document) -> None:
    """Read the elements; where one cannot be read, go on at the next that can."""
    text = document.text
    position = document.start + 1
    first_column: int | None = None
    while True:
        found = _BETWEEN.match(text, position)
        position = found.end() if found is not None else position
        if text.startswith("]", position) and _ends_well(document, position + 1):
            document.end = position + 1
            return
        element = _element(text, position)
        if element is not None:
            first_column = _column(text, position) if first_column is None else first_column
            _keep(document, element)
            position = element.end
            continue
        resumed = _resumed(document, position, first_column)
        if resumed is None:
            return
        position = resumed


def _element(text: str, position: int) -> Found | None:
    try:
        value, end = value_at(text, position)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    return corrected(text[position:end], position)


def _keep(document: Document, element: Found) -> None:
    for kind in element.corrected:
        _damaged(document, element.start, element.end, kind, "replaced")
    document.elements.append(element)


def _ends_well(document: Document, position: int) -> bool:
    """Whether what stands behind the list is the end of the document, as far as can be told."""
    rest = document.text[position:].lstrip()
    if document.key is None:
        return not rest
    return not rest or rest.startswith((",", "}"))


def _column(text: str, position: int) -> int:
    """Return how far into its line a position is; -1 where something else stands before it."""
    begin = text.rfind("\n", 0, position) + 1
    return position - begin if not text[begin:position].strip() else -1


def _resumed(document: Document, position: int, column: int | None) -> int | None:
    """Find where reading can go on behind damage; None: nowhere, and the list was closed there."""
    text = document.text
    for begin in _next_elements(text, position, column):
        piece = text[position:begin].rstrip().rstrip(",").rstrip() if begin - position < _MOST_MENDED else ""
        whole = corrected(piece, position)
        if whole is not None and _is_message(whole.value):
            _keep(document, whole)
            return begin
        element = _element(text, begin)
        if element is not None and _is_message(element.value):
            _damaged(document, position, begin, _kind(text[position:begin]), "set aside")
            return begin
    return _resumed_at_end(document, position)


def _next_elements(text: str, position: int, column: int | None) -> list[int]:
    found: list[int] = []
    for match in _ELEMENT_BEGINS.finditer(text, position + 1):
        begin = match.start()
        is_next = begin - position < _GARBAGE and not _PARTS.search(text, position, begin)
        if is_next or column is None or column < 0 or _column(text, begin) == column:
            found.append(begin)
        if len(found) == _MOST_ATTEMPTS:
            break
    return found


_ELEMENT_BEGINS = re.compile(r'\{\s*"(?:role|type|parts|content|id|timestamp)"\s*:')


def _is_message(value: object) -> bool:
    """Whether an object found behind damage is an element of the list, not a part of the one that is damaged."""
    if not isinstance(value, dict):
        return False
    item = cast("Object", value)
    if isinstance(item.get("role"), str) or isinstance(item.get("parts"), list):
        return True
    return str(item.get("type")).endswith(("_call", "_call_output")) or ("timestamp" in item and "id" in item)


def _resumed_at_end(document: Document, position: int) -> int | None:
    text = document.text
    for _, match in zip(range(_MOST_ATTEMPTS), _LIST_ENDS.finditer(text, position), strict=False):
        end = match.start()
        if not _ends_whole(document, end + 1):
            continue
        whole = corrected(text[position:end].rstrip(), position) if end > position else None
        if whole is not None and isinstance(whole.value, dict):
            _keep(document, whole)
        elif end > position:
            _damaged(document, position, end, _kind(text[position:end]), "set aside")
        document.end = end + 1
        return None
    cut = len(text.rstrip())
    if cut > position:
        whole = corrected(text[position:cut], position)
        if whole is not None and _is_message(whole.value):
            _keep(document, whole)
            position = cut
        else:
            _damaged(
                document, position, cut, "truncated" if "\0" not in text[position:cut] else "nul-bytes", "set aside"
            )
    else:
        _damaged(document, cut, cut, "truncated", "set aside")
    document.end, document.is_cut = len(text), True
    return None


def _ends_whole(document: Document, position: int) -> bool:
    """Whether the document is whole from the list's end on."""
    text = document.text
    if document.key is None:
        return not text[position:].strip()
    members, end, whole = _members(text, position - 1)
    rest = text[end:].strip()
    return whole and all(member.key for member in members) and rest.strip("}\n\r\t ") == ""


def _kind(text: str) -> DamageKind:
    return "nul-bytes" if not text.strip("\0 \t\r\n,") else "unreadable"
