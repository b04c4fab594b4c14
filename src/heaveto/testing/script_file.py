"""Scripts as files: JSON, or one step per line. Pure.

["Hello.", {"call": "refund", "args": {"order": 7}}, [{"think": "Hm."}, "Done.", {"usage": {"output_tokens": 3}}]]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec

from heaveto.errors import InputError
from heaveto.events.contents import Json
from heaveto.testing.script import Answer, Piece, call, cut, delay, fault, finish, hang, raw_call, say, think, usage

_Fields = dict[str, Any]


def read_steps(text: str) -> list[Answer]:
    """Return the steps of a file's text: a JSON list, or JSON lines.

    A step is a text, an object, or a list of those. An object has one of the keys ``say``, ``think``, ``call``,
    ``raw_call``, ``delay``, ``fault``, ``cut``, ``hang``, ``finish`` and ``usage``; what else it has are the options of
    the function of that name.

    Raises:
        InputError: something is no step; it is named with its number.
    """
    return [_step(number, value) for number, value in enumerate(_values(text), start=1)]


def _values(text: str) -> list[Json]:
    try:
        whole = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return _lines(text)
    return cast("list[object]", whole) if isinstance(whole, list) else [whole]


def _lines(text: str) -> list[Json]:
    values: list[Json] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            try:
                values.append(msgspec.json.decode(line))
            except msgspec.DecodeError as error:
                raise InputError(f"the script is neither JSON nor JSON lines: line {number}: {error}") from None
    return values


def _step(number: int, value: Json) -> Answer:
    if isinstance(value, list):
        return [_piece(number, item) for item in cast("list[object]", value)]
    return _piece(number, value)


def _piece(number: int, value: Json) -> Piece:
    if isinstance(value, str):
        return say(value)
    if not isinstance(value, dict):
        raise InputError(f"step {number} of the script is no text, object or list: {value!r}")
    given = cast("_Fields", value)
    for key, make in _MAKERS.items():
        if key in given:
            more = {name: option for name, option in given.items() if name != key}
            try:
                return make(given[key], more)
            except (TypeError, ValueError) as error:
                raise InputError(f"step {number} of the script: {key}: {error}") from None
    raise InputError(f"step {number} of the script has none of {', '.join(_MAKERS)}: {given!r}")


def _call(name: Any, more: _Fields) -> Piece:
    args = more.pop("args", {})
    if more or not isinstance(args, dict):
        raise ValueError(f"it takes args, an object, and nothing else; not {more or args!r}")
    return call(name, **cast("_Fields", args))


def _cut(how: Any, more: _Fields) -> Piece:
    return cut(**(cast("_Fields", how) if isinstance(how, dict) else more))


_MAKERS: dict[str, Callable[[Any, _Fields], Piece]] = {
    "say": lambda text, more: say(text, **more),
    "think": lambda text, more: think(text, **more),
    "call": _call,
    "raw_call": lambda name, more: raw_call(name, **more),
    "delay": lambda seconds, more: delay(float(seconds), **more),
    "fault": lambda message, more: fault(message, **more),
    "cut": _cut,
    "hang": lambda _, more: hang(**more),
    "finish": lambda reason, more: finish(reason, **more),
    "usage": lambda counts, more: usage(**counts, **more),
}
