"""Rollouts of Codex CLI: ``~/.codex/sessions/**/rollout-*.jsonl``.

A line has a timestamp, a type and a payload; those of type "response_item" hold the items of the Responses API. A line
"compacted" replaces what stands before it: by its ``replacement_history``, where it has one. Two habits of the agent:
its reasoning items have no ids, so that they are bound to nothing and stay; and the output of a ``local_shell_call`` is
written as that of a function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from heaveto.core.json_values import fields, objects
from heaveto.histories.files.json_text import Object
from heaveto.histories.files.thread import Agent, Thread


def _threads(entries: Sequence[Object]) -> list[Thread]:
    places: list[int] = []
    items: list[Object] = []
    for place, entry in enumerate(entries):
        payload = fields(entry.get("payload"))
        if entry.get("type") == "compacted":
            items = objects(payload.get("replacement_history"))
            places = [-1 - place] * len(items)
        elif entry.get("type") == "response_item" and payload and payload.get("type") != "reasoning":
            places.append(place)
            items.append(_item(payload))
    return [Thread(tuple(places), tuple(items))] if items else []


def _item(payload: Object) -> Object:
    if payload.get("type") != "local_shell_call":
        return payload
    return {"type": "function_call", "call_id": payload.get("call_id"), "name": "local_shell", "arguments": "{}"}


def _changed(entry: Object, message: Object) -> Object:
    payload = fields(entry.get("payload"))
    if payload.get("type") == "local_shell_call":
        message = {**payload, "call_id": message.get("call_id")}
    return {**entry, "payload": message}


def _inserted(message: Object, near: Object, callers: Mapping[str, Object]) -> list[Object]:
    return [{"timestamp": near.get("timestamp"), "type": "response_item", "payload": message}]


CODEX = Agent("openai-responses", _threads, _changed, _inserted)
