"""Arguments that Gemini streams piece by piece, each with the path of what it belongs to. Pure."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from typing import Any

from heaveto.events.contents import Json

_STEP = re.compile(r"""\.([^.\[\]]+)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""")
_VALUES = ("stringValue", "numberValue", "boolValue", "nullValue")
_LONGEST_LIST = 100_000


class PartialArgs:
    """Collects the pieces of one call. Texts of one path are joined, any other value is set.

    A piece that cannot be placed makes the arguments invalid as a whole: a call without it would be another call.
    """

    def __init__(self, args: dict[str, Json]) -> None:
        self._root: dict[str, Json] = dict(args)
        self._misfit: dict[str, Any] | None = None
        self._seen: set[str] = set()

    @property
    def text(self) -> str:
        """The arguments as JSON; text that is none where a piece could not be placed."""
        if self._misfit is not None:
            return f"{json.dumps(self._root, ensure_ascii=False)} + {json.dumps(self._misfit, ensure_ascii=False)}"
        return json.dumps(self._root, ensure_ascii=False)

    def feed(self, pieces: Sequence[dict[str, Any]]) -> None:
        """Take the next pieces, in order."""
        for piece in pieces:
            try:
                self._place(piece)
            except (AttributeError, LookupError, TypeError, ValueError):
                self._misfit = self._misfit or piece

    def _place(self, piece: dict[str, Any]) -> None:
        path = str(piece["jsonPath"])
        key = next(name for name in (*_VALUES, "") if not name or name in piece)
        value: Any = None if key in ("nullValue", "") else piece[key]
        steps = _steps(path)
        holder: Any = self._root
        for step, following in itertools.pairwise(steps):
            holder = _child(holder, step, [] if isinstance(following, int) else {})
        before = _child(holder, steps[-1], None)
        if key == "stringValue" and path in self._seen and isinstance(before, str):
            value = before + value
        self._seen.add(path)
        holder[steps[-1]] = value


def _steps(path: str) -> list[str | int]:
    """Return the steps of a JSON path such as ``$.stops[0].name``.

    Raises:
        ValueError: the path is none, or selects more than one place.
    """
    if not path.startswith("$"):
        raise ValueError(path)
    steps: list[str | int] = []
    place = 1
    while place < len(path):
        found = _STEP.match(path, place)
        if found is None:
            raise ValueError(path)
        name, index, single, double = found.groups()
        steps.append(int(index) if index is not None else name or _unescaped(single, double))
        place = found.end()
    if not steps:
        raise ValueError(path)
    return steps


def _unescaped(single: str | None, double: str | None) -> str:
    return re.sub(r"\\(.)", r"\1", single if single is not None else double or "")


def _child(holder: Any, step: str | int, new: Json) -> Any:
    """Return what stands at a step, making it first if nothing does.

    Raises:
        AttributeError: nothing can stand there.
        ValueError: it is too far away.
    """
    if isinstance(step, str):
        return holder.setdefault(step, new)
    if step >= _LONGEST_LIST:
        raise ValueError(step)
    holder.extend([None] * (step + 1 - len(holder)))
    if holder[step] is None:
        holder[step] = new
    return holder[step]
