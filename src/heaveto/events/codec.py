"""Records as bytes: compact JSON that is read back as it was written, or refused.

Stored formats only grow. A new field has a default. A changed meaning is a new version `v` of that record type, with
an upcaster from the version before it; a record of an older version is lifted step by step when it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast, get_args, get_origin

import msgspec

from heaveto.errors import NotSerializableError, RecordFormatError
from heaveto.events.contents import Json
from heaveto.events.records import Draft, Record

Upcaster: TypeAlias = Callable[[dict[str, Json]], dict[str, Json]]
"""Turns the JSON object of one version of a record type into that of the next. It need not set `v`."""

UPCASTERS: Mapping[tuple[str, int], Upcaster] = {}
"""All upcasters: (record type, version that it reads) to the function. There are none yet."""

_RECORD_TYPES: tuple[type[Record], ...] = get_args(Record)
_REFUSALS = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)

_to_json = msgspec.json.Encoder().encode
_to_msgpack = msgspec.msgpack.Encoder().encode
_from_json = msgspec.json.Decoder().decode
_to_record = msgspec.json.Decoder(Record).decode
_to_draft = msgspec.json.Decoder(Draft).decode


class Codec:
    """Encodes and decodes records, with a set of upcasters. The module's `encode` and `decode` use `UPCASTERS`."""

    def __init__(self, upcasters: Mapping[tuple[str, int], Upcaster] = UPCASTERS) -> None:
        self._upcasters = upcasters
        self._versions: dict[type[Any], int] = {cls: self._version_of(cls.__name__) for cls in _RECORD_TYPES}

    def _version_of(self, record_type: str) -> int:
        return max(
            (read + 1 for name, read in self._upcasters if name == record_type),
            default=1,
        )

    def encode(self, record: Record) -> bytes:
        """Return the record as JSON, from which `decode` makes an equal record.

        Raises:
            NotSerializableError: it holds a value that JSON would lose or change, such as NaN or a tuple.
        """
        version = self._versions[type(record)]
        if record.v < version:
            record = msgspec.structs.replace(record, v=version)
        return _encode_exactly(record, _to_record)

    def decode(self, body: bytes, seq: int | None = None) -> Record:
        """Return the record that was encoded as `body`; `seq` is set on it if given.

        Raises:
            RecordFormatError: its type is unknown, its version is newer than this program, or it is malformed.
        """
        try:
            record = _to_record(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            record = self._decode_old(body)
        if record.v != self._versions[type(record)]:
            record = self._decode_old(body)
        if seq is not None:
            msgspec.structs.force_setattr(record, "seq", seq)  # nobody else has seen this object yet
        return record

    def _decode_old(self, body: bytes) -> Record:
        record_type, raw = _open_envelope(body)
        version = raw.get("v", 1)
        current = self._version_of(record_type)
        if record_type not in _TYPE_NAMES:
            raise RecordFormatError(record_type, "unknown; it was written by a newer version of heaveto")
        if not isinstance(version, int) or version > current:
            raise RecordFormatError(
                record_type,
                f"version {version} is newer than {current}, which this program reads",
            )
        for step in range(version, current):
            raw = self._upcasters[record_type, step](raw)
        try:
            record: Record = msgspec.convert({**raw, "type": record_type, "v": current}, Record)
        except msgspec.ValidationError as error:
            raise RecordFormatError(record_type, f"malformed: {error}") from error
        return record


_TYPE_NAMES = frozenset(cls.__name__ for cls in _RECORD_TYPES)


def _open_envelope(body: bytes) -> tuple[str, dict[str, Json]]:
    try:
        raw: Any = _from_json(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RecordFormatError("?", f"malformed: {error}") from error
    fields = cast("dict[str, Json]", raw) if isinstance(raw, dict) else {}
    record_type = fields.get("type")
    if not isinstance(record_type, str):
        raise RecordFormatError("?", "malformed: not an object with a type")
    return record_type, fields


def encode_draft(draft: Draft) -> bytes:
    """Return the draft as JSON, from which `decode_draft` makes an equal one; errors as in `Codec.encode`."""
    return _encode_exactly(draft, _to_draft)


def decode_draft(body: bytes) -> Draft:
    """Return the draft that was encoded as `body`."""
    try:
        return _to_draft(body)
    except msgspec.MsgspecError as error:
        raise RecordFormatError("Draft", f"malformed: {error}") from error


def encode_value(value: Json, path: str) -> bytes:
    """Return a bare JSON value as bytes; `path` names it in the error."""
    return _encode_exactly(value, _from_json, path)


def decode_value(body: bytes) -> Json:
    """Return the value that `encode_value` made bytes of."""
    return _from_json(body)


def _encode_exactly(value: Any, read: Callable[[bytes], Any], path: str = "") -> bytes:
    """Encode, and prove that reading gives the same back.

    The encoder writes NaN as null, and bytes, dates, tuples and integer keys as something else, without a word.
    Reading back costs less than walking through the value in Python. The binary encoding is made only because it
    refuses integers of more than 64 bits, which other readers of the JSON would round.
    """
    try:
        body = _to_json(value)
        same: bool = read(body) == value
        _to_msgpack(value)
    except _REFUSALS as error:
        raise _explain(value, path, error) from error
    if not same:
        raise _explain(value, path, None)
    return body


def _explain(value: Any, path: str, error: Exception | None) -> NotSerializableError:
    path = path or type(value).__name__
    try:
        defect = _find_defect(value, path, is_json=not isinstance(value, msgspec.Struct))
    except RecursionError:
        defect = (path, "nested too deeply, or it holds itself")
    return NotSerializableError(*(defect or (path, str(error) if error else "it would not be read back the same")))


def _find_defect(value: Any, path: str, *, is_json: bool) -> tuple[str, str] | None:
    """Return the path to the first value that JSON cannot hold, and what is wrong with it."""
    for step, child, child_is_json in _children(value, is_json):
        if isinstance(value, dict) and (problem := _key_problem(step)):
            return path, problem
        name = f".{step}" if isinstance(value, msgspec.Struct) else f"[{step!r}]"
        if defect := _find_defect(child, path + name, is_json=child_is_json):
            return defect
    problem = _leaf_problem(value) if is_json else None
    return (path, problem) if problem else None


def _children(value: Any, is_json: bool) -> list[tuple[Any, Any, bool]]:
    match value:
        case msgspec.Struct() if not is_json:
            fields = msgspec.structs.fields(value)
            return [(field.name, getattr(value, field.name), _is_plain(field.type)) for field in fields]
        case dict():
            return _entries(value)  # pyright: ignore[reportUnknownArgumentType]  # narrowed from Any
        case list() | tuple():
            return [(index, child, is_json) for index, child in enumerate(cast("list[Any]", value))]
        case _:
            return []


def _entries(value: dict[Any, Any]) -> list[tuple[Any, Any, bool]]:
    return [(key, child, True) for key, child in value.items()]


def _is_plain(annotation: Any) -> bool:
    """Whether a field holds plain JSON (a free value, a dict, a string, a float), not parts or bytes of ours."""
    if annotation is Any or annotation in (str, float) or get_origin(annotation) is dict:
        return True
    return any(arm in (float, str) or get_origin(arm) is dict for arm in get_args(annotation))


def _key_problem(key: Any) -> str | None:
    if not isinstance(key, str):
        return f"key {key!r} is not a string"
    return _leaf_problem(key)


def _leaf_problem(value: Any) -> str | None:
    if isinstance(value, dict | list):
        return None
    try:
        if _from_json(_to_json(value)) == value:
            _to_msgpack(value)
            return None
    except _REFUSALS:
        pass
    if isinstance(value, int):
        return "an integer of more than 64 bits cannot be stored"
    shown = repr(value)[:60] if isinstance(value, float | str) else f"a value of type {type(value).__name__}"
    return f"{shown} cannot be stored as JSON"


_codec = Codec()
encode = _codec.encode
decode = _codec.decode
