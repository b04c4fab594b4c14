"""The rules of Chat Completions, O0 to O16 and Q1 to Q5: first the schema, then the sequence, then the tools.

What differs between the servers that speak it is in the dialects.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from heaveto.core.json_values import Body, fields, is_objects, objects, repeated, text
from heaveto.core.validate.chat_dialect import OPENAI, Breach, Dialect
from heaveto.core.validate.violation import Violation
from heaveto.core.wire_marks import Family, foreign_mark

_INSTEAD_OF_CONTENT = ("tool_calls", "function_call", "audio")
_NAME = re.compile(r"[a-zA-Z0-9_-]+", re.ASCII)
_ID_LENGTH, _NAME_LENGTH = 40, 64


def validate(
    body: Body,
    *,
    strict_unconfirmed: bool = False,
    dialect: Dialect = OPENAI,
    long_ids: bool = False,
    images_in_results: bool = False,
    thinking: bool = True,
) -> Violation | None:
    """Return the first rule that a request body breaks, or None.

    Args:
        body: the body of a chat completion.
        strict_unconfirmed: judge what no public report confirms too. For servers other than OpenAI that is every rule
            that nobody has reported of them.
        dialect: the server.
        long_ids: ids of more than 40 characters are taken, which may be so by now (O11).
        images_in_results: the model takes them, or ignores them, as GPT-5.2 and later do (O14).
        thinking: the model thinks where the body does not say it (Q1).
    """
    accepted = {rule for rule, is_accepted in (("O11", long_ids), ("O14", images_in_results)) if is_accepted}
    for breach in _breaches(body, dialect, thinking):
        violation = dialect.told(breach)
        if breach.rule not in accepted and (strict_unconfirmed or not violation.unconfirmed):
            return violation
    return None


def _breaches(body: Body, dialect: Dialect, thinking: bool) -> Iterator[Breach]:
    if not is_objects(body.get("messages", [])):
        yield Breach("O0")
    messages = objects(body.get("messages"))
    if not messages:
        yield Breach("O8")
        return
    for index, message in enumerate(messages):
        yield from _message_breaches(index, message, dialect)
    yield from _sequence_breaches(messages)
    if dialect.reasoning is not None and _thinks(body, thinking):
        yield from _reasoning_breaches(messages, dialect)
    yield from _tools_breaches(body, dialect)


def foreign_breach(index: int, message: Body, family: Family) -> Breach | None:
    """Return what a message has that only other formats have: a role, a key, a block, or the whole of it (O0)."""
    mark = foreign_mark(message, family)
    if mark is None:
        return None
    return Breach(f"O0 {mark.kind}", {"index": index, "block": mark.block, "name": mark.name})


def _message_breaches(index: int, message: Body, dialect: Dialect) -> Iterator[Breach]:
    where = f"messages[{index}]"
    foreign = foreign_breach(index, message, "chat")
    if foreign is not None:
        yield foreign
    if message.get("tool_calls") == []:
        yield Breach("O7", {"index": index})
    calls = objects(message.get("tool_calls"))
    says_else = message.get("role") == "assistant" and any(message.get(key) for key in _INSTEAD_OF_CONTENT)
    if message.get("content") is None and not says_else:
        yield Breach("O9", {"index": index})
    for number, call in enumerate(calls):
        yield from _call_breaches(f"{where}.tool_calls[{number}]", call, dialect)
    if message.get("role") == "tool":
        yield from _id_breaches(f"{where}.tool_call_id", text(message.get("tool_call_id")))
        if any(part.get("type") == "image_url" for part in objects(message.get("content"))):
            yield Breach("O14", {"where": where})


def _call_breaches(where: str, call: Body, dialect: Dialect) -> Iterator[Breach]:
    kind = "custom" if call.get("type") == "custom" else "function"
    call_id, function = text(call.get("id")), fields(call.get(kind))
    if not call_id and dialect.has("Q5"):
        yield Breach("Q5")
    yield from _id_breaches(f"{where}.id", call_id)
    yield from _name_breaches(f"{where}.{kind}.name", text(function.get("name")))
    if dialect.has("Q2") and kind == "function":
        yield from _argument_breaches(call_id, text(function.get("arguments")))


def _id_breaches(where: str, value: str) -> Iterator[Breach]:
    if len(value) > _ID_LENGTH:
        yield Breach("O11", {"where": where, "limit": _ID_LENGTH, "length": len(value)})


def _name_breaches(where: str, name: str) -> Iterator[Breach]:
    if not name:
        yield Breach("O12 empty", {"where": where})
    elif len(name) > _NAME_LENGTH:
        yield Breach("O12 long", {"where": where, "limit": _NAME_LENGTH, "length": len(name)})
    elif not _NAME.fullmatch(name):
        yield Breach("O12", {"where": where})


def _argument_breaches(call_id: str, arguments: str) -> Iterator[Breach]:
    """That they are an object is what repairs see to; only what is no JSON at all has been reported."""
    try:
        value = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        yield Breach("Q2", {"id": call_id})
        return
    if not isinstance(value, dict):
        yield Breach("Q2", {"id": call_id}, confirmed=False)


def _sequence_breaches(messages: list[Body]) -> Iterator[Breach]:
    asked: list[str] = []
    answered: dict[str, int] = {}
    for index, message in enumerate(messages):
        if message.get("role") == "tool":
            yield from _result_breaches(index, text(message.get("tool_call_id")), asked, answered)
            continue
        if message.get("role") in ("system", "developer") and not answered.keys() >= set(asked):
            yield Breach("O18", _missing(index, asked, answered))
            continue
        yield from _unanswered(index, asked, answered, messages)
        asked, answered = [text(call.get("id")) for call in objects(message.get("tool_calls"))], {}
        twice = repeated(asked)
        if twice is not None:
            yield Breach("O5", {"id": twice, "index": index})
    yield from _unanswered(len(messages), asked, answered, messages)


def _result_breaches(index: int, call_id: str, asked: list[str], answered: dict[str, int]) -> Iterator[Breach]:
    if not asked:
        yield Breach("O2", {"index": index})
    elif call_id not in asked:
        yield Breach("O3", {"id": call_id, "index": index})
    elif call_id in answered:
        yield Breach("O4", {"id": call_id, "first": answered[call_id], "index": index})
    else:
        answered[call_id] = index


def _unanswered(index: int, asked: list[str], answered: dict[str, int], messages: list[Body]) -> Iterator[Breach]:
    if answered.keys() >= set(asked):
        return
    later = {text(message.get("tool_call_id")) for message in messages[index:] if message.get("role") == "tool"}
    came_later = not later.isdisjoint(call_id for call_id in asked if call_id not in answered)
    yield Breach("O1 apart" if came_later else "O1", _missing(index, asked, answered))


def _missing(index: int, asked: list[str], answered: dict[str, int]) -> dict[str, str | int]:
    return {"missing": ", ".join(call_id for call_id in asked if call_id not in answered), "index": index}


def _thinks(body: Body, default: bool) -> bool:
    kind = fields(body.get("thinking")).get("type")
    return default if kind is None else kind != "disabled"


def _reasoning_breaches(messages: list[Body], dialect: Dialect) -> Iterator[Breach]:
    users = [index for index, message in enumerate(messages) if message.get("role") == "user"]
    start = users[-1] if users and dialect.reasoning == "current turn" else 0
    for index, message in enumerate(messages[start:], start):
        if objects(message.get("tool_calls")) and not isinstance(message.get("reasoning_content"), str):
            yield Breach("Q1", {"index": index})


def _tools_breaches(body: Body, dialect: Dialect) -> Iterator[Breach]:
    if body.get("tools") == []:
        yield Breach("O16")
    for key in ("tool_choice", "parallel_tool_calls"):
        if key in body and not body.get("tools"):
            yield Breach("O16 alone", {"key": key})
    for index, tool in enumerate(objects(body.get("tools"))):
        if "function" in tool:
            function = fields(tool["function"])
            yield from _name_breaches(f"tools[{index}].function.name", text(function.get("name")))
            if dialect.has("Q4") and not function.get("parameters"):
                yield Breach("Q4")
