"""What a repair looks at, and what it decides: neutral steps, and a plan for them.

A place is where something stands: the index of the message in the input, and of the block within it. Places are ordered
as the history is.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from heaveto.events.contents import Json

Place: TypeAlias = tuple[int, int]
# Structs without garbage collection: they form no cycles, and a long history makes tens of thousands of them.
LAST: Final = 1 << 30
"""As a block: behind all of its message."""


class Call(msgspec.Struct, frozen=True, gc=False):
    """A call of a client's tool. `raw_args` are arguments that were no JSON object; the wire has ``{}`` instead."""

    place: Place
    id: str
    name: str
    raw_args: str | None = None


class Result(msgspec.Struct, frozen=True, gc=False):
    """A result. Id and name are empty where the history gives none; `value` is compared, and not looked into."""

    place: Place
    id: str
    name: str
    value: object


class Turn(msgspec.Struct, frozen=True, gc=False):
    """What the model asked for at once, at least one call; `end` is the last place of all that it said there."""

    calls: tuple[Call, ...]
    end: Place


class Block(msgspec.Struct, frozen=True, gc=False):
    """Results in a row. Blocks directly behind a turn are its home."""

    results: tuple[Result, ...]


Gap: TypeAlias = Literal["gap"]
GAP: Final = "gap"
"""Anything else that somebody said: it parts a turn from the results behind it."""
Step: TypeAlias = Turn | Block | Gap


class Made(msgspec.Struct, frozen=True):
    """A result to be made: a stand-in, or one that the caller of the repair knows."""

    call: Call
    id: str
    value: Json
    is_error: bool


class Moved(msgspec.Struct, frozen=True):
    """A real result to be taken from where it stands and put here."""

    result: Result
    call: Call
    id: str


class Quoted(msgspec.Struct, frozen=True):
    """A result without a call, to be kept as words of the user."""

    result: Result


Insert: TypeAlias = Made | Moved | Quoted


class Plan(msgspec.Struct):
    """What is to be done. Everything that it does not name stays.

    Attributes:
        removed: results that leave their place; the moved ones among them stand in `inserts` again.
        inserts: what is put behind a place: results first, real ones before made ones, then quotations.
        ids: the new id of a call or of a result, by its place.
        names: the call's name for a result whose format must name it, by the result's place.
        left_open: the places of calls that stay without a result, because the next input brings it.
        reaches_back: the continuation of a history refers to what was repaired before; repair all of it anew.
    """

    removed: set[Place] = msgspec.field(default_factory=set[Place])
    inserts: dict[Place, list[Insert]] = msgspec.field(default_factory=dict[Place, list[Insert]])
    ids: dict[Place, str] = msgspec.field(default_factory=dict[Place, str])
    names: dict[Place, str] = msgspec.field(default_factory=dict[Place, str])
    left_open: set[Place] = msgspec.field(default_factory=set[Place])
    reaches_back: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether everything stays as it is."""
        return not (self.removed or self.inserts or self.ids or self.names)
