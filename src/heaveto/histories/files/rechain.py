"""Trees of entries: the links between them after entries were put in, moved or taken out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from heaveto.core.validate.violation import text
from heaveto.histories.files.damage import encoded
from heaveto.histories.files.json_text import Object
from heaveto.histories.files.thread import Links


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

    def take_out(self, name: str) -> None:
        """Let what came after an entry follow what came before it."""
        if name not in self._parents:
            return
        parent = self._parents.pop(name)
        for other, its_parent in self._parents.items():
            if its_parent == name:
                self._parents[other] = parent

    def follow(self, order: Sequence[Link], within: frozenset[str]) -> None:
        """Link the new entries of a conversation in; `within`: the entries that lead through it."""
        if not any(link.is_placed for link in order):
            return
        chain = set(within)
        for place, link in enumerate(order):
            if not link.is_placed:
                continue
            self.take_out(link.id)
            if place and self._parents.get(order[place - 1].id, link.id) != link.id:
                self._straighten(order[:place])
            before = order[place - 1].id if place else None
            for other in chain:
                if other in self._parents and self._parents[other] == before and other != link.id:
                    self._parents[other] = link.id
            self._parents[link.id] = before
            chain.add(link.id)

    def _straighten(self, order: Sequence[Link]) -> None:
        """Put the results of one turn, each of which may hang below its own call, behind each other."""
        first = len(order)
        while first and order[first - 1].holds_result:
            first -= 1
        names = {link.id for link in order}
        for place in range(max(first, 1), len(order)):
            name = order[place].id
            if self._parents.get(name) in names:
                self._parents[name] = order[place - 1].id

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
