"""What the transcripts of agents have in common: lines around messages, of which some are what the model is sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from heaveto.histories.files.json_text import Object


@dataclass(frozen=True, slots=True)
class Thread:
    """One conversation in a file: its messages in the order in which the model sees them.

    `places` are their indices in the file's entries; -1 - n for a message that is a part of entry n, which stays as it
    is. `chain` names the entries that link the messages, where the file is a tree.
    """

    places: tuple[int, ...]
    messages: tuple[Object, ...]
    chain: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Links:
    """The fields that make a file a tree: an entry's own id, and that of the entry before it."""

    id: str
    parent: str


@dataclass(frozen=True, slots=True)
class Agent:
    """How one agent writes its transcripts.

    `format` is the format of the messages in a `Thread`. `changed` puts a changed message into its entry. `inserted`
    makes the entries for a new message behind the entry `near`; it is given the entries of calls, by their id, as
    `calls` finds them.
    `parted` tells of a changed message what was only added to it, if that can be a message of its own.
    """

    format: str
    threads: Callable[[Sequence[Object]], list[Thread]]
    changed: Callable[[Object, Object], Object]
    inserted: Callable[[Object, Object, Mapping[str, Object]], list[Object]]
    links: Links | None = None
    ids: tuple[str, ...] = ()
    calls: Callable[[Object], list[str]] = lambda entry: []
    holds_results: Callable[[Object], bool] = lambda entry: False
    parted: Callable[[Object, Object], Object | None] = lambda before, after: None


def walk_back(parents: dict[str, str | None], leaf: str | None) -> list[str]:
    """Return the ids from an entry back to its root, the root first. A circle is cut where it closes."""
    found: dict[str, None] = {}
    while leaf is not None and leaf not in found:
        found[leaf] = None
        leaf = parents.get(leaf)
    return list(reversed(found))
