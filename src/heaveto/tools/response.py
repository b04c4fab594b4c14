"""From a tool's return value to the JSON object that the log holds and the model is told."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import PurePath
from typing import Any, cast

import msgspec

from heaveto.errors import NotSerializableError
from heaveto.events.contents import Json


def to_response(value: Any) -> dict[str, Json]:
    """Return a tool's result as a JSON object: as it is if it is one, ``{}`` for None, else ``{"result": value}``.

    Dataclasses, pydantic models and msgspec structs are objects. The result shares nothing with `value`.

    Raises:
        NotSerializableError: a part of the value cannot be said in JSON; the error names where it stands.
    """
    if value is None:
        return {}
    plain = to_json(value)
    return cast("dict[str, Json]", plain) if isinstance(plain, dict) else {"result": plain}


def to_json(value: Any) -> Json:
    """Return a value as JSON values only: lists, dicts with string keys, strings, finite numbers, booleans, None.

    Dates become ISO strings, decimals and UUIDs strings, bytes base64, enums their values, sets and tuples lists.

    Raises:
        NotSerializableError: as in `to_response`.
    """
    try:
        return _converted(value)
    except Exception as error:  # an edge: the value's own code may raise anything
        raise _explained(value, error) from error


def _converted(value: Any) -> Json:
    plain = msgspec.to_builtins(value, str_keys=True, enc_hook=_foreign)
    # Through text: it refuses NaN, infinity and lone surrogates, which the log cannot hold, and leaves no tuples.
    converted = msgspec.json.decode(json.dumps(plain, allow_nan=False, ensure_ascii=False))
    msgspec.msgpack.encode(converted)  # refuses integers of more than 64 bits, which the log cannot hold either
    return converted


def _foreign(value: Any) -> Any:
    """Convert what msgspec does not know. Called for such values only, so that pydantic stays unimported until then."""
    from pydantic import BaseModel

    match value:
        case BaseModel():
            return value.model_dump(mode="json")
        case PurePath():
            return str(value)
        case _:
            raise TypeError("its type has no JSON form")


# --- saying where -------------------------------------------------------------------------------------------------


def _explained(value: Any, error: Exception) -> NotSerializableError:
    try:
        return _located(value, "result", error)
    except Exception:  # noqa: BLE001 - what cannot be converted may not let itself be looked at either
        return NotSerializableError("result", f"its own code raised {type(error).__name__}")


def _located(value: Any, path: str, error: Exception) -> NotSerializableError:
    """Return the error about the innermost part that cannot be converted by itself."""
    if isinstance(error, RecursionError):
        return NotSerializableError(path, "it is nested too deep, or in itself")
    for step, child in _children(value):
        try:
            _converted(child)
        except Exception as cause:  # noqa: BLE001 - as in `to_json`
            return _located(child, path + step, cause)
    return NotSerializableError(path, f"a {type(value).__qualname__} that JSON cannot say: {error}")


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, child in cast("Mapping[Any, Any]", value).items():
            yield f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r}]", child
    elif isinstance(value, list | tuple | set | frozenset):
        for position, child in enumerate(cast("Iterable[Any]", value)):
            yield f"[{position}]", child
    else:
        yield from _fields(value)


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, msgspec.Struct):
        names = value.__struct_fields__
    elif is_dataclass(value):
        names = tuple(field.name for field in fields(value))
    else:
        return
    for name in names:
        yield f".{name}", object.__getattribute__(value, name)
