"""Lists of messages, request bodies and chats, in one document or in lines: only what changed is written anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import cast

from heaveto.histories.files import gemini_cli
from heaveto.histories.files.align import aligned
from heaveto.histories.files.damage import decoded, encoded
from heaveto.histories.files.document import Document, read_document
from heaveto.histories.files.json_text import Object
from heaveto.histories.files.lines import Lines, Record
from heaveto.histories.files.pairing import paired, paired_body
from heaveto.histories.files.report import Refusal, Repaired
from heaveto.histories.files.shape import format_of
from heaveto.histories.files.style import written_like


def repair_message_lines(lines: Lines, provider: str, places: Sequence[int]) -> Repaired:
    """Repair a file with one message in each line. `places`: the records that are messages; the others stay."""
    records = lines.records
    messages = [records[place].value or {} for place in places]
    done = Repaired(messages=len(messages), damage=lines.damage)
    result = paired(messages, provider)
    done.changes += [replace(change, line=_line(records, places, change.index)) for change in result.changes]
    done.problems += [f"line {_line(records, places, index)}: {problem}" for index, problem in result.problems]
    if result.refused is not None:
        done.refused.append(Refusal(records[places[0]].line if places else 1, result.refused))
    if not result.changes:
        done.output = b"".join(record.raw + _end(record, lines) for record in records)
        return done
    parts: list[bytes] = []
    rest = iter([place for place in range(len(records)) if place not in set(places)])
    following = next(rest, None)
    model = decoded(records[places[0]].raw) if places else ""
    for out in aligned(messages, result.history):
        place = places[out.origin] if out.origin is not None else None
        while following is not None and place is not None and following < place:
            parts += [records[following].raw, records[following].end or lines.newline]
            following = next(rest, None)
        if place is None or out.is_changed:
            like = model if place is None else decoded(records[place].raw)
            parts += [encoded(written_like(out.value, like)), lines.newline]
        else:
            parts += [records[place].raw, records[place].end or lines.newline]
    while following is not None:
        parts += [records[following].raw, records[following].end or lines.newline]
        following = next(rest, None)
    done.output = b"".join(parts)
    return done


def _line(records: Sequence[Record], places: Sequence[int], index: int) -> int:
    return records[places[min(index, len(places) - 1)]].line if places else 1


def _end(record: Record, lines: Lines) -> bytes:
    """Return what ends a line: every line but the last must have an end."""
    return record.end or (b"" if record is lines.records[-1] else lines.newline)


def repair_body_lines(lines: Lines, provider: str | None) -> Repaired:
    """Repair a file with one request body in each line: each by itself."""
    done = Repaired(damage=lines.damage)
    parts: list[bytes] = []
    for record in lines.records:
        raw = record.raw
        document = read_document(decoded(raw)) if record.value is not None else None
        if document is not None and document.key is not None:
            text = repair_document(document, provider, done, line=record.line)
            raw = encoded(text)
        parts += [raw, _end(record, lines)]
    done.output = b"".join(parts)
    return done


def repair_document(document: Document, provider: str | None, done: Repaired, line: int | None = None) -> str:
    """Repair the list of a document and return its new text. `line`: where it stands, in a file of lines."""
    messages = [cast("Object", element.value) for element in document.elements]
    body = document.body() if document.key is not None else {"messages": messages}
    name = provider or format_of(body)
    whole = document.key is not None and not document.damage
    result = paired_body(body, messages, document.key, name) if whole else paired(messages, name)
    lines = document.lines() if line is None else [line] * len(messages)
    first = line if line is not None else document.line(document.start)
    done.messages += len(messages)
    done.changes += [replace(change, line=_nth(lines, change.index, first)) for change in result.changes]
    done.problems += [f"line {_nth(lines, index, first)}: {problem}" for index, problem in result.problems]
    if result.refused is not None:
        done.refused.append(Refusal(first, result.refused))
    if not result.changes and not document.damage:
        return document.text
    written = _List(document).written(messages, result.history)
    return _spliced(document, written, result.body)


def repair_chat_document(document: Document, done: Repaired) -> str:
    """Repair a Gemini CLI chat in one document."""
    records = [cast("Object", element.value) for element in document.elements]
    done.messages += len(records)
    answered = gemini_cli.answered_elsewhere(records)
    history: list[Object] = []
    for index, (line, record) in enumerate(zip(document.lines(), records, strict=True)):
        mended = gemini_cli.with_results(record, answered)
        done.changes += [replace(change, line=line, index=index) for change in mended.changes]
        history.append(mended.record)
    if not done.changes and not document.damage:
        return document.text
    return _spliced(document, _List(document).written(records, history), None)


def repair_chat_lines(lines: Lines) -> Repaired:
    """Repair a Gemini CLI chat of lines: in the last line of each record."""
    entries = [record.value or {} for record in lines.records]
    current = gemini_cli.current(entries)
    answered = gemini_cli.answered_elsewhere(entries)
    done = Repaired(damage=lines.damage, messages=sum("content" in entry for entry in current.values()))
    parts: list[bytes] = []
    for place, record in enumerate(lines.records):
        raw = record.raw
        if place in current:
            mended = gemini_cli.with_results(entries[place], answered)
            if mended.changes:
                raw = encoded(written_like(mended.record, decoded(raw)))
                done.changes += [replace(change, line=record.line, index=place) for change in mended.changes]
        parts += [raw, _end(record, lines)]
    done.output = b"".join(parts)
    return done


def _nth(lines: Sequence[int], index: int, first: int) -> int:
    return lines[min(index, len(lines) - 1)] if lines else first


class _List:
    """Writes the list of a document anew: the elements that stay as they were, with the space that was between them."""

    def __init__(self, document: Document) -> None:
        self._document, self._text = document, document.text
        elements = document.elements
        self._opening = self._text[document.start + 1 : elements[0].start] if elements else ""
        if self._opening.strip():  # damage stood there
            self._opening = ""
        self._comma = self._usual_comma()

    def _usual_comma(self) -> str:
        elements = self._document.elements
        for one, two in pairwise(elements):
            between = self._text[one.end : two.start]
            if between.strip() == ",":
                return between
        return "," + (self._opening or " ")

    def written(self, before: Sequence[Object], after: Sequence[Object]) -> str:
        parts = ["[", self._opening]
        last: int | None = None
        for place, out in enumerate(aligned(before, after)):
            origin = out.origin
            if place:
                parts.append(self._between(last, origin))
            parts.append(self._element(out.value, origin, is_changed=out.is_changed))
            last = origin
        return "".join([*parts, self._ending(), "]"])

    def _between(self, last: int | None, origin: int | None) -> str:
        if last is None or origin is None or origin != last + 1:
            return self._comma
        elements = self._document.elements
        between = self._text[elements[last].end : elements[origin].start]
        return between if between.strip() == "," else self._comma

    def _element(self, value: Object, origin: int | None, *, is_changed: bool) -> str:
        elements = self._document.elements
        if origin is not None and not is_changed:
            return elements[origin].text
        model = elements[origin].text if origin is not None else elements[0].text if elements else ""
        column = self._comma.rsplit("\n", 1)[-1] if "\n" in self._comma else ""
        return written_like(value, model, column)

    def _ending(self) -> str:
        document = self._document
        last = document.elements[-1].end if document.elements else document.start + 1
        ending = self._text[last : document.end - 1] if not document.is_cut else ""
        if ending.strip() or document.is_cut:  # damage stood there
            newline = "\n" in self._opening
            return "\n" + self._outer_column() if newline else ""
        return ending

    def _outer_column(self) -> str:
        begin = self._text.rfind("\n", 0, self._document.start) + 1
        line = self._text[begin : self._document.start]
        return line[: len(line) - len(line.lstrip())]


def _spliced(document: Document, written: str, body: Object | None) -> str:
    """Put the list, and what else of the body changed, in place of what stood there; leave damage out."""
    edits = [(document.start, document.end, written)]
    if body is not None:
        edits += [
            (member.start, member.end, written_like(body[member.key], document.text[member.start : member.end]))
            for member in document.owner
            if member.key != document.key and member.key in body and body[member.key] is not member.value
        ]
        new = {key: value for key, value in body.items() if key not in {m.key for m in document.owner} | {document.key}}
        if new:
            first = document.owner_start + 1
            space = document.text[first:][: len(document.text[first:]) - len(document.text[first:].lstrip())]
            members = (f"{written_like(key, '')}: {written_like(value, '')}," for key, value in new.items())
            edits.append((first, first, "".join(space + member for member in members)))
    edits += [(start, end, "") for start, end in document.gaps]
    if document.cut is not None:
        edits.append((document.cut, len(document.text), ""))
    parts: list[str] = []
    position = 0
    for start, end, new_text in sorted(edits, key=lambda edit: edit[:2]):
        parts += [document.text[position:start], new_text]
        position = end
    return "".join([*parts, document.text[position:], _closing(document)])


def _closing(document: Document) -> str:
    """Return the ends of the objects that a document cut short lacks."""
    if not document.is_cut and document.cut is None:
        return ""
    newline = "\n" if "\n" in document.text else ""
    return "".join(newline + brace for brace in document.closing) + newline
