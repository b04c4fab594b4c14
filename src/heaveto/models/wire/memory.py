"""Remembering the wire form of turns, so that a request costs what is new in it (P9)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from heaveto.core.request import Turn

Form = TypeVar("Form")


class TurnMemory(Generic[Form]):
    """The wire forms of turns, made once each. At its bound it forgets everything; results do not depend on it.

    The form of a turn may depend on nothing but the turn, and must not be changed by who gets it.
    """

    def __init__(self, make: Callable[[Turn], Form], bound: int = 20_000) -> None:
        self._make, self._bound = make, bound
        # Keyed by identity: turns are not hashable. The entry holds the turn, so that its id stays its own.
        self._forms: dict[int, tuple[Turn, Form]] = {}

    def form(self, turn: Turn) -> Form:
        """Return the wire form of a turn."""
        known = self._forms.get(id(turn))
        if known is not None and known[0] is turn:
            return known[1]
        form = self._make(turn)
        if len(self._forms) >= self._bound:
            self._forms.clear()
        self._forms[id(turn)] = (turn, form)
        return form
