"""The histories of `shapes` as the request bodies of three APIs, unrepaired."""

from __future__ import annotations

import json
from typing import Any

from shapes import Item, Model, Results, User

Body = dict[str, Any]
ARGS = {"bill": 1}
DECLARED = {"type": "object", "properties": {"bill": {"type": "integer"}}}


def chat_messages(items: tuple[Item, ...]) -> list[Body]:
    """Return messages of OpenAI Chat Completions."""
    messages: list[Body] = []
    for item in items:
        match item:
            case User(text=text):
                messages.append({"role": "user", "content": text})
            case Model(text=text, calls=calls):
                made = [_chat_call(call_id, name) for call_id, name in calls]
                messages.append(
                    {"role": "assistant", "content": text or None, **({"tool_calls": made} if made else {})}
                )
            case Results(results=results):
                messages += [
                    {"role": "tool", "tool_call_id": call_id, "content": value} for call_id, _, value in results
                ]
    return messages


def _chat_call(call_id: str | None, name: str) -> Body:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(ARGS)}}


def anthropic_messages(items: tuple[Item, ...]) -> list[Body]:
    """Return messages of Anthropic Messages."""
    messages: list[Body] = []
    for item in items:
        match item:
            case User(text=text):
                messages.append({"role": "user", "content": text})
            case Model(text=text, calls=calls):
                said: list[Body] = [{"type": "text", "text": text}] if text else []
                made = [{"type": "tool_use", "id": call_id, "name": name, "input": ARGS} for call_id, name in calls]
                messages.append({"role": "assistant", "content": said + made})
            case Results(results=results):
                blocks = [
                    {"type": "tool_result", "tool_use_id": call_id, "content": value} for call_id, _, value in results
                ]
                messages.append({"role": "user", "content": blocks})
    return messages


def responses_items(items: tuple[Item, ...]) -> list[Body]:
    """Return input items of OpenAI Responses."""
    found: list[Body] = []
    for item in items:
        match item:
            case User(text=text):
                found.append({"role": "user", "content": text})
            case Model(text=text, calls=calls):
                found += [{"role": "assistant", "content": text}] if text else []
                found += [
                    {"type": "function_call", "call_id": call_id, "name": name, "arguments": json.dumps(ARGS)}
                    for call_id, name in calls
                ]
            case Results(results=results):
                found += [
                    {"type": "function_call_output", "call_id": call_id, "output": value}
                    for call_id, _, value in results
                ]
    return found


def gemini_contents(items: tuple[Item, ...]) -> list[Body]:
    """Return contents of Gemini generateContent."""
    contents: list[Body] = []
    for item in items:
        match item:
            case User(text=text):
                contents.append({"role": "user", "parts": [{"text": text}]})
            case Model(text=text, calls=calls):
                said: list[Body] = [{"text": text}] if text else []
                made = [{"functionCall": {**_id(call_id), "name": name, "args": ARGS}} for call_id, name in calls]
                contents.append({"role": "model", "parts": said + made})
            case Results(results=results):
                parts = [
                    {"functionResponse": {**_id(call_id), "name": name, "response": {"result": value}}}
                    for call_id, name, value in results
                ]
                contents.append({"role": "user", "parts": parts})
    return contents


def _id(call_id: str | None) -> Body:
    return {} if call_id is None else {"id": call_id}
