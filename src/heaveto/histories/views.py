"""Objects of SDKs, read as the dicts they dump to; what a repair leaves alone comes back as the object it was."""

from __future__ import annotations

from typing import Any, cast

from heaveto.errors import InvalidHistoryError
from heaveto.histories.work import Body, is_body, is_list

_HOLDERS = ("content", "parts")


def are_dicts(history: list[Any]) -> bool:
    """Whether the messages are dicts; what is within them is not looked at."""
    return set(map(type, history)) <= {dict}


def readable(history: list[Any]) -> list[Body]:
    """Return the messages as dicts, with dicts in them: the same objects where they are.

    Raises:
        InvalidHistoryError: something is no message at all.
    """
    return [message if _is_plain(message) else _dumped(index, message) for index, message in enumerate(history)]


def restored(messages: list[Body], readable: list[Body], history: list[Any]) -> list[Any]:
    """Return the messages, with the original object in the place of each dict that only stood for it."""
    stood_for = {id(view): original for view, original in zip(readable, history, strict=True) if view is not original}
    return [stood_for.get(id(message), message) for message in messages] if stood_for else messages


def _is_plain(message: object) -> bool:
    if type(message) is not dict:
        return False
    held = cast("Body", message)
    blocks = held.get("content")
    if blocks is None:
        blocks = held.get("parts")
    return type(blocks) is not list or all(type(block) is dict for block in cast("list[object]", blocks))


def _dumped(index: int, message: object) -> Body:
    value = dict(message) if is_body(message) else _dump(message)
    if value is None:
        raise InvalidHistoryError(index, f"must be an object, not {type(message).__name__}")
    for key in _HOLDERS:
        held = value.get(key)
        if is_list(held):
            value[key] = [_block(index, block) for block in held]
    return value


def _block(index: int, block: object) -> object:
    if is_body(block):
        return block
    if isinstance(block, str):
        return {"type": "text", "text": block}
    dumped = _dump(block)
    if dumped is None:
        raise InvalidHistoryError(index, f"holds a {type(block).__name__}, which is no object")
    return dumped


def _dump(value: object) -> Body | None:
    """What pydantic models dump to, as requests have it. An edge: the types are those of SDKs that may be absent."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        return None
    dumped: object = dump(mode="json", by_alias=True, exclude_none=True)
    return dumped if is_body(dumped) else None
