"""Trees of entries: the links between them after entries were put in, moved or taken out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from heaveto.core.json_values import text
from heaveto.histories.files.damage import encoded
from heaveto.histories.files.json_text import Object
from heaveto.histories.files.thread import Links

_MOST_CALLS = 100
"""Lines before the results of a turn among which their calls are looked for."""


@dataclass(frozen=True, slots=True)
class Link:
    """An entry in the order of its conversation; `is_placed`: it is new here."""

    id: str
    is_placed: bool
    holds_result: bool


class Chain:
    """The parents of a file's entries while they are changed."""

    def __init__(self, entries: Sequence[Object], links: Links) -> None:
        self._links = links
        self._before = {
            text(entry.get(links.id)): text(entry.get(links.parent)) or None
            for entry in entries
            if links.parent in entry
        }
        self._parents = dict(self._before)
        self._children: dict[str | None, list[str]] = {}
        for name, parent in self._parents.items():
            self._children.setdefault(parent, []).append(name)

    def _hang(self, name: str, parent: str | None) -> None:
        """Let an entry follow another."""
        if name in self._parents:
            self._children[self._parents[name]].remove(name)
        self._parents[name] = parent
        self._children.setdefault(parent, []).append(name)

    def take_out(self, name: str) -> None:
        """Let what came after an entry follow what came before it."""
        if name not in self._parents:
            return
        parent = self._parents[name]
        for other in list(self._children.get(name, ())):
            self._hang(other, parent)
        self._children[self._parents.pop(name)].remove(name)

    def follow(self, order: Sequence[Link], within: frozenset[str]) -> None:
        """Link the new entries of a conversation in; `within`: the entries that lead through it."""
        chain = set(within)
        for place, link in enumerate(order):
            if not link.is_placed:
                continue
            self.take_out(link.id)
            if place:
                self._straighten(order, place)
            before = order[place - 1].id if place else None
            for other in list(self._children.get(before, ())):
                if other in chain:
                    self._hang(other, link.id)
            self._hang(link.id, before)
            chain.add(link.id)

    def _straighten(self, order: Sequence[Link], end: int) -> None:
        """Put the results before a place, each of which may hang below its own call, behind each other."""
        first = end
        while first and order[first - 1].holds_result:
            first -= 1
        calls = first
        while calls and not order[calls - 1].holds_result and first - calls < _MOST_CALLS:
            calls -= 1
        names = {link.id for link in order[calls:end]}
        for place in range(max(first, 1), end):
            name, before = order[place].id, order[place - 1].id
            if self._parents.get(name) in names and self._parents[name] != before:
                self._hang(name, before)

    def parent(self, entry: Object) -> str | None:
        """Return the parent that an entry shall have."""
        name = text(entry.get(self._links.id))
        return self._parents.get(name)

    def is_moved(self, entry: Object) -> bool:
        """Whether an entry's link must be written anew."""
        name = text(entry.get(self._links.id))
        return name in self._parents and self._links.parent in entry and self._parents[name] != self._before.get(name)


def with_parent(raw: bytes, value: Object, links: Links, parent: str | None, write: Callable[[Object], bytes]) -> bytes:
    """Return an entry's line with another parent, the rest of it as it was."""
    key = re.escape(links.parent.encode())
    pattern = re.compile(rb'("' + key + rb'"\s*:\s*)(?:null|"[^"\\]*")')
    if len(pattern.findall(raw)) == 1:
        new = encoded(json.dumps(parent, ensure_ascii=False))
        return pattern.sub(lambda found: found[1] + new, raw)
    return write({**value, links.parent: parent})
