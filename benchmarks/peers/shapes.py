"""Broken histories, as a small language: what users, models and tools said, in an order that no provider accepts.

Every history ends with a new text of the user, which names it. Results have values of their own, so that one can see
what became of each. Ids of None are for formats whose ids are optional.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class User:
    """The user says something."""

    text: str


@dataclass(frozen=True)
class Model:
    """The model says something, calls tools, or both; calls by id and name."""

    text: str = ""
    calls: tuple[tuple[str | None, str], ...] = ()


@dataclass(frozen=True)
class Results:
    """Results that came together: of which call, by which tool, with which value."""

    results: tuple[tuple[str | None, str, str], ...]


Item: TypeAlias = User | Model | Results


@dataclass(frozen=True)
class Shape:
    """One history.

    `lost` names what may be missing afterwards without blame: the earlier copies of a repeated result, and results
    that belong to no call.
    """

    name: str
    what: str
    before: tuple[Item, ...]
    lost: tuple[str, ...] = ()
    ids: bool = True

    @property
    def new(self) -> str:
        """The new text of the user."""
        return f"Go on: {self.name}."

    @property
    def items(self) -> tuple[Item, ...]:
        """The whole of it."""
        return (*self.before, User(self.new))


def _call(*ids: str | None) -> Model:
    return Model("", tuple((call_id, "pay") for call_id in ids))


def _got(*results: tuple[str | None, str]) -> Results:
    return Results(tuple((call_id, "pay", value) for call_id, value in results))


START = User("Pay the bills.")

SHAPES: tuple[Shape, ...] = (
    Shape("S1", "a call without a result, then text", (START, _call("c1"))),
    Shape("S2", "two calls, one result", (START, _call("c1", "c2"), _got(("c1", "paid-one")))),
    Shape("S3", "a result without a call", (START, Model("Done."), _got(("c9", "paid-nine"))), ("paid-nine",)),
    Shape(
        "S4", "two results of one call", (START, _call("c1"), _got(("c1", "paid-old")), _got(("c1", "paid-new"))),
        ("paid-old",),
    ),
    Shape("S5", "text between call and result", (START, _call("c1"), User("Wait."), _got(("c1", "paid-one")))),
    Shape(
        "S6", "the result behind a later answer",
        (START, _call("c1"), User("Well?"), Model("I am waiting."), _got(("c1", "paid-one"))),
    ),
    Shape(
        "S7", "an id again, the second call unanswered",
        (START, _call("c1"), _got(("c1", "paid-one")), Model("Done."), User("Again."), _call("c1")),
    ),
    Shape(
        "S7b", "an id again, the first call unanswered",
        (START, _call("c1"), User("Again."), _call("c1"), _got(("c1", "paid-two"))),
    ),
    Shape(
        "S7c", "an id again, both answered",
        (START, _call("c1"), _got(("c1", "paid-one")), Model("Done."), User("Again."), _call("c1"),
         _got(("c1", "paid-two"))),
    ),
    Shape(
        "S8", "one id twice in one message",
        (START, _call("c1", "c1"), _got(("c1", "paid-one"), ("c1", "paid-two"))),
    ),
    Shape("S9", "an id on one of two calls", (START, _call("c1", None), _got(("c1", "paid-one"))), ids=False),
    Shape("S10", "two calls without ids, one result", (START, _call(None, None), _got((None, "paid-one"))),
          ids=False),
    Shape(
        "S10c", "a call without id, its result two later",
        (START, _call(None), User("Wait."), _got((None, "paid-one"))), ids=False,
    ),
    Shape("S11", "a result before its call", (START, _got(("c1", "paid-one")), _call("c1"))),
    Shape("S15", "a result with a wrong id", (START, _call("c1"), _got(("c9", "paid-one")))),
    Shape(
        "S16", "a second result, a turn later",
        (START, _call("c1"), _got(("c1", "paid-old")), Model("Pending."), User("And?"), _got(("c1", "paid-new"))),
        ("paid-old",),
    ),
    Shape("S17", "the history begins with a call", (_call("c1"), _got(("c1", "paid-one")))),
    Shape(
        "S18", "two messages of calls, then both results",
        (START, _call("c1"), _call("c2"), _got(("c1", "paid-one"), ("c2", "paid-two"))),
    ),
    Shape(
        "S19", "text, then the result of one of two calls",
        (START, _call("c1", "c2"), User("WAIT"), _got(("c1", "paid-one"))),
    ),
)  # fmt: skip


def texts_of(shape: Shape) -> list[str]:
    """Return what the user said."""
    return [item.text for item in shape.items if isinstance(item, User)]


def values_of(shape: Shape) -> list[str]:
    """Return the values of all results that must not get lost."""
    found = [value for item in shape.items if isinstance(item, Results) for _, _, value in item.results]
    return [value for value in found if value not in shape.lost]


def calls_of(shape: Shape) -> int:
    """Return how many calls the model made."""
    return sum(len(item.calls) for item in shape.items if isinstance(item, Model))
