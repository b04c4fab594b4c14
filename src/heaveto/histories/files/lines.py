"""Files of lines, one JSON object each: read line by line, so that damage in one costs no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import cast

from heaveto.histories.files.damage import Damage, DamageAction, DamageKind, decoded, encoded, size
from heaveto.histories.files.json_text import Found, IsEntry, Lost, Object, corrected, object_in, salvaged

_FIRST_KEY = re.compile(rb'\s*\{\s*"([^"\\]{1,60})"')
_USUAL_KEYS = frozenset({"type", "role", "timestamp", "parentUuid"})
BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Record:
    """One line that is kept: what to write for it, its line end, and its object (None: a blank line).

    `line`, `start` and `stop` tell where it was read; what was corrected may be longer or shorter now.
    """

    line: int
    start: int
    stop: int
    raw: bytes
    end: bytes
    value: Object | None


@dataclass(frozen=True, slots=True)
class Lines:
    """A file of lines as far as it could be read. `newline` is what its lines end with."""

    records: tuple[Record, ...]
    damage: tuple[Damage, ...]
    newline: bytes


@dataclass(frozen=True, slots=True)
class RawLine:
    """A line as it stands in the file: `whole` is its object where nothing is wrong with it, the usual case.

    Else `found` is what it says where it is JSON, perhaps corrected. Its text is made when it is asked for: a file may
    be long, and is in memory already.
    """

    number: int
    start: int
    raw: bytes
    end: bytes
    whole: Object | None
    found: Found | None

    @property
    def stop(self) -> int:
        """Where its text ends, before its line end."""
        return self.start + len(self.raw)

    @property
    def text(self) -> str:
        """What stands on it."""
        return decoded(self.raw)

    @property
    def is_blank(self) -> bool:
        """Whether nothing stands on it."""
        return self.whole is None and not self.text.strip()

    @property
    def value(self) -> Object | None:
        """Its object, if it is one."""
        if self.whole is not None:
            return self.whole
        value = self.found.value if self.found is not None else None
        return cast("Object", value) if isinstance(value, dict) else None


def raw_lines(data: bytes) -> list[RawLine]:
    """Split a file and read each line by itself. A byte order mark is not part of the first."""
    return list(_split(data))


def _split(data: bytes) -> Iterator[RawLine]:
    position = len(BOM) if data.startswith(BOM) else 0
    number = 0
    while position < len(data):
        number += 1
        newline = data.find(b"\n", position)
        stop = len(data) if newline < 0 else newline + 1
        raw = data[position:stop]
        body = raw.rstrip(b"\r\n")
        whole = object_in(body)
        text = decoded(body) if whole is None else ""
        yield RawLine(number, position, body, raw[len(body) :], whole, corrected(text) if text.strip() else None)
        position = stop


def read_lines(
    raw: list[RawLine], is_entry: IsEntry, *, bom: bool = False, ids: tuple[str, ...] = (), ended: bool = False
) -> Lines:
    """Keep what can be read. `is_entry` tells the file's own objects; `ids`: fields that make a line unique.

    `ended`: the last line must have a line end, since its writer appends to the file.
    """
    reader = _Reader(raw, is_entry, ids)
    if bom:
        reader.damage.append(Damage("byte-order-mark", 1, 0, len(BOM), "removed"))
    for line in raw:
        reader.read(line)
    if ended:
        reader.end_last()
    return Lines(tuple(reader.records), tuple(reader.damage), reader.newline)


class _Reader:
    def __init__(self, raw: list[RawLine], is_entry: IsEntry, ids: tuple[str, ...]) -> None:
        self.records: list[Record] = []
        self.damage: list[Damage] = []
        self.newline = b"\r\n" if sum(line.end == b"\r\n" for line in raw) * 2 > len(raw) else b"\n"
        self._is_entry, self._ids = is_entry, ids
        self._seen: set[bytes] = set()
        self._last = raw[-1].number if raw else 0
        keys = {match[1] for line in raw if line.value is not None and (match := _FIRST_KEY.match(line.raw))}
        self._first_keys = {*map(decoded, keys), *_USUAL_KEYS}

    def read(self, line: RawLine) -> None:
        if line.whole is not None:
            if self._is_repeated(line, line.whole):
                self._add(line, "duplicate-line", 0, len(line.text))
            else:
                self.records.append(Record(line.number, line.start, line.stop, line.raw, line.end, line.whole))
        elif line.is_blank:
            self.records.append(Record(line.number, line.start, line.stop, line.raw, line.end, None))
        elif line.found is None:
            self._salvage(line)
        elif line.value is None:
            self._add(line, "no-object", 0, len(line.text))
        elif self._is_repeated(line, line.value):
            self._add(line, "duplicate-line", 0, len(line.text))
        else:
            self._keep(line, line.found, line.end)

    def end_last(self) -> None:
        """Give the last line its line end: what is appended next must not be glued to it (F108)."""
        last = self.records[-1] if self.records else None
        if last is not None and not last.end and last.raw:
            self.records[-1] = replace(last, end=self.newline)
            end = last.stop
            self.damage.append(Damage("no-line-end", last.line, end, end, "added"))

    def _is_repeated(self, line: RawLine, value: Object) -> bool:
        if not any(isinstance(value.get(key), str) for key in self._ids):
            return False
        if line.raw in self._seen:
            return True
        self._seen.add(line.raw)
        return False

    def _keep(self, line: RawLine, found: Found, end: bytes) -> None:
        for kind in found.corrected:
            self._add(line, kind, found.start, found.end, "replaced")
        start = line.start + size(line.text[: found.start])
        stop = start + size(line.text[found.start : found.end])
        self.records.append(Record(line.number, start, stop, encoded(found.text), end, cast("Object", found.value)))

    def _salvage(self, line: RawLine) -> None:
        pieces = salvaged(line.text, self._is_entry, self._first_keys)
        found = [piece for piece in pieces if isinstance(piece, Found)]
        for piece in pieces:
            match piece:
                case Found():
                    is_last = piece is found[-1]
                    self._keep(line, piece, line.end if is_last and line.end else self.newline)
                case Lost(start=start, end=end, kind=kind):
                    cut = kind == "unreadable" and line.number == self._last and end == len(line.text) and not line.end
                    self._add(line, "truncated" if cut else kind, start, end)
        if len(found) > 1:
            self._add(line, "glued", found[0].start, found[-1].end, "split")

    def _add(self, line: RawLine, kind: DamageKind, start: int, end: int, action: DamageAction = "set aside") -> None:
        first = line.start + size(line.text[:start])
        self.damage.append(Damage(kind, line.number, first, first + size(line.text[start:end]), action))
