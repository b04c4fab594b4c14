"""Transcripts of agents: repair the conversations in them, and keep every line that has no part in that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from heaveto.core.json_values import text
from heaveto.histories.files.align import Out, aligned, woven
from heaveto.histories.files.damage import Damage, decoded, encoded
from heaveto.histories.files.json_text import Object
from heaveto.histories.files.lines import Lines, Record
from heaveto.histories.files.pairing import Paired, paired
from heaveto.histories.files.rechain import Chain, Link, with_parent
from heaveto.histories.files.report import Refusal, Repaired
from heaveto.histories.files.style import written_like
from heaveto.histories.files.thread import Agent, Links, Thread


@dataclass(frozen=True, slots=True)
class _Placed:
    """An entry put behind another: one that is new, or one that stood elsewhere (`moved`: its place)."""

    value: Object
    moved: int | None = None


@dataclass(slots=True)
class _Edits:
    """What becomes of a file's entries, by place."""

    changed: dict[int, Object] = field(default_factory=dict[int, Object])
    dropped: set[int] = field(default_factory=set[int])
    placed: dict[int, list[_Placed]] = field(default_factory=dict[int, "list[_Placed]"])
    orders: list[tuple[list[Link], Thread]] = field(default_factory=list["tuple[list[Link], Thread]"])


def repair_transcript(lines: Lines, agent: Agent, provider: str) -> Repaired:
    """Repair each conversation of a transcript and write the file anew; lines that need no change stay as they are."""
    records, relinked = _linked_again(lines, agent.links)
    entries = [record.value or {} for record in records]
    done = Repaired(damage=(*lines.damage, *relinked))
    edits = _Edits()
    for thread in agent.threads(entries):
        done.messages += len(thread.messages)
        result = paired(thread.messages, provider)
        first = next((records[place].line for place in thread.places if place >= 0), 1)
        done.changes += [replace(change, line=_line(change.index, thread, records)) for change in result.changes]
        done.problems += [f"line {_line(index, thread, records)}: {problem}" for index, problem in result.problems]
        if result.refused is not None:
            done.refused.append(Refusal(first, result.refused))
        if result.changes:
            _plan(edits, agent, thread, entries, result)
    done.output = _written(records, entries, agent, edits, lines.newline)
    return done


def _line(index: int, thread: Thread, records: Sequence[Record]) -> int:
    place = thread.places[min(index, len(thread.places) - 1)]
    return records[place if place >= 0 else -place - 1].line


def _linked_again(lines: Lines, links: Links | None) -> tuple[list[Record], list[Damage]]:
    """Let entries whose parent was lost in a damaged line follow the last entry before it."""
    records = list(lines.records)
    lost = sorted(damage.line for damage in lines.damage if damage.action == "set aside")
    if links is None or not lost:
        return records, []
    known = {text(record.value.get(links.id)) for record in records if record.value is not None}
    damage: list[Damage] = []
    last: dict[object, str] = {}
    for place, record in enumerate(records):
        entry = record.value
        if entry is None or links.parent not in entry:
            continue
        parent, side = text(entry.get(links.parent)), bool(entry.get("isSidechain"))
        if parent and parent not in known and lost[0] <= record.line:
            before = last.get(side)
            raw = with_parent(record.raw, entry, links, before, partial(_line_like, model=record.raw))
            records[place] = replace(record, raw=raw, value={**entry, links.parent: before})
            damage.append(Damage("lost-parent", record.line, record.start, record.stop, "linked again"))
        if text(entry.get(links.id)):
            last[side] = text(entry.get(links.id))
    return records, damage


def _line_like(value: Object, model: bytes) -> bytes:
    return encoded(written_like(value, decoded(model)))


def _plan(edits: _Edits, agent: Agent, thread: Thread, entries: Sequence[Object], result: Paired) -> None:
    """Turn a repaired conversation into edits of the entries around its messages."""
    outs = [part for out in aligned(thread.messages, result.history) for part in _parts(agent, thread, out)]
    weave = woven(outs)
    own = [entries[place] for place in thread.places if place >= 0]
    callers = {call: entry for entry in own for call in agent.calls(entry)}
    order: list[Link] = []
    near, at = (own[0] if own else {}), _start(thread)
    kept = {id(out) for out in weave.kept.values()}
    for out in outs:
        place = thread.places[out.origin] if out.origin is not None else None
        if place is not None and place < 0:
            at = -place - 1
            continue
        new = [_Placed(value) for value in agent.inserted(out.value, near, callers)] if place is None else []
        if place is not None:
            value = _value(agent, entries[place], out)
            if value is not entries[place]:
                edits.changed[place] = value
            near = value
            if id(out) in kept:
                at = place
            else:
                new = [_Placed(value, place)]
        edits.placed.setdefault(at, []).extend(new) if new else None
        order += _links(agent, [placed.value for placed in new] or [near], is_placed=bool(new))
        near = new[-1].value if new else near
    edits.dropped |= {place for index, place in enumerate(thread.places) if place >= 0 and index not in weave.kept}
    edits.orders.append((order, thread))


def _parts(agent: Agent, thread: Thread, out: Out) -> list[Out]:
    """Part what was added to a message from the message, where the agent would write it by itself."""
    before = thread.messages[out.origin] if out.origin is not None and out.is_changed else None
    added = agent.parted(before, out.value) if before is not None else None
    if before is None or added is None:
        return [out]
    return [Out(before, out.origin, is_changed=False), Out(added, None, is_changed=True)]


def _start(thread: Thread) -> int:
    first = thread.places[0]
    return first - 1 if first >= 0 else -first - 1


def _value(agent: Agent, entry: Object, out: Out) -> Object:
    return agent.changed(entry, out.value) if out.is_changed else entry


def _links(agent: Agent, values: Sequence[Object], *, is_placed: bool) -> list[Link]:
    if agent.links is None:
        return []
    return [Link(text(value.get(agent.links.id)), is_placed, agent.holds_results(value)) for value in values]


def _written(
    records: Sequence[Record], entries: Sequence[Object], agent: Agent, edits: _Edits, newline: bytes
) -> bytes:
    chain = Chain(entries, agent.links) if agent.links is not None else None
    moved = {placed.moved for group in edits.placed.values() for placed in group}
    if chain is not None and agent.links is not None:
        for place in edits.dropped - moved:
            chain.take_out(text(entries[place].get(agent.links.id)))
        for order, thread in edits.orders:
            chain.follow(order, thread.chain)
    writer = _Writer(agent, chain, newline)
    for placed in edits.placed.get(-1, ()):
        writer.add(placed.value, records[0].raw, records[placed.moved].raw if placed.moved is not None else None)
    for place, record in enumerate(records):
        if place not in edits.dropped:
            writer.keep(record, edits.changed.get(place))
        for placed in edits.placed.get(place, ()):
            own = records[placed.moved] if placed.moved is not None else None
            is_same = own is not None and placed.moved not in edits.changed
            writer.add(placed.value, record.raw, own.raw if own is not None and is_same else None)
    return b"".join(writer.parts)


class _Writer:
    def __init__(self, agent: Agent, chain: Chain | None, newline: bytes) -> None:
        self.parts: list[bytes] = []
        self._agent, self._chain, self._newline = agent, chain, newline

    def keep(self, record: Record, changed: Object | None) -> None:
        """Write a line at its place."""
        raw = record.raw if changed is None else _line_like(changed, record.raw)
        value = changed if changed is not None else record.value
        self._write(self._relinked(raw, value or {}), record.end)

    def add(self, value: Object, model: bytes, raw: bytes | None) -> None:
        """Write a line that did not stand here: `raw` as it was elsewhere, or else in the style of another."""
        if self._chain is not None and self._agent.links is not None and self._agent.links.parent in value:
            value = {**value, self._agent.links.parent: self._chain.parent(value)} if raw is None else value
        written = raw if raw is not None else _line_like(value, model)
        self._write(self._relinked(written, value) if raw is not None else written, self._newline)

    def _write(self, raw: bytes, end: bytes) -> None:
        if self.parts and not self.parts[-1].endswith(b"\n"):
            self.parts.append(self._newline)
        self.parts += [raw, end]

    def _relinked(self, raw: bytes, value: Object) -> bytes:
        links = self._agent.links
        if self._chain is None or links is None or not self._chain.is_moved(value):
            return raw
        return with_parent(raw, value, links, self._chain.parent(value), lambda new: _line_like(new, raw))
