"""Answers of OpenAI Chat Completions, streamed or whole, as chunks. Pure, and total on what servers send."""

from __future__ import annotations

from typing import Any, cast

from heaveto.events.contents import Json
from heaveto.events.records import Usage
from heaveto.models.base import CallChunk, Chunk, EndChunk, TextChunk, ThoughtChunk, UsageChunk
from heaveto.models.wire.reading import as_count, as_object, as_objects, as_text

_CUT = ("length", "content_filter")
_SPOKEN = ("content", "refusal")
_REASONING = ("reasoning_content", "reasoning")
_CALL_FIELDS = ("index", "id", "type", "function")
_MESSAGE_FIELDS = (*_SPOKEN, *_REASONING, "tool_calls", "role", "function_call")


class ChatAnswerReader:
    """Reads one answer. Feed it every event, then ask for the end.

    The end is known only after the last event, because the usage follows the finish reason. Fields that this reader
    does not know are kept in the data of the end, and those of a call in the data of the call.
    """

    def __init__(self) -> None:
        self._reason, self._model = "", ""
        self._data: dict[str, Json] = {}
        self._calls = 0

    @property
    def is_finished(self) -> bool:
        """Whether the provider has given its finish reason: nothing of the answer is missing then."""
        return bool(self._reason)

    def feed(self, event: object) -> list[Chunk]:
        """Return the chunks of one streamed event, or of a whole completion."""
        body = as_object(event)
        self._model = as_text(body.get("model")) or self._model
        if body.get("id"):
            self._data["id"] = body["id"]
        chunks: list[Chunk] = []
        for choice in as_objects(body.get("choices"))[:1]:
            chunks += self._message(as_object(choice.get("delta") or choice.get("message")))
            self._reason = as_text(choice.get("finish_reason")) or self._reason
        usage = body.get("usage")
        return [*chunks, UsageChunk(_usage(as_object(usage)))] if usage else chunks

    def end(self) -> list[Chunk]:
        """Return the closing chunk; nothing if the provider never closed the answer (F30)."""
        if not self._reason:
            return []
        data = self._data or None
        return [EndChunk(reason=self._reason, cut=self._reason in _CUT, model=self._model, data=data)]

    def _message(self, message: dict[str, Any]) -> list[Chunk]:
        chunks: list[Chunk] = []
        thought = next((words for key in _REASONING if (words := as_text(message.get(key)))), "")
        if thought:
            chunks.append(ThoughtChunk(thought))
        chunks += [TextChunk(words) for key in _SPOKEN if (words := as_text(message.get(key)))]
        chunks += [self._call(call) for call in as_objects(message.get("tool_calls"))]
        for key, value in message.items():
            if key not in _MESSAGE_FIELDS and value is not None:
                self._data[key] = _joined(self._data.get(key), value)
        return chunks

    def _call(self, call: dict[str, Any]) -> CallChunk:
        function = as_object(call.get("function"))
        extra = {key: value for key, value in call.items() if key not in _CALL_FIELDS}
        return CallChunk(
            index=self._index(call),
            name=as_text(function.get("name")),
            provider_id=as_text(call.get("id")),
            args=as_text(function.get("arguments")),
            data=extra or None,
        )

    def _index(self, call: dict[str, Any]) -> int:
        """Whole answers and some hosts give no index: then a call with an id is the next one."""
        index = call.get("index")
        if not isinstance(index, int):
            index = self._calls if call.get("id") else max(0, self._calls - 1)
        self._calls = max(self._calls, index + 1)
        return index


def _usage(usage: dict[str, Any]) -> Usage:
    prompt = as_object(usage.get("prompt_tokens_details"))
    completion = as_object(usage.get("completion_tokens_details"))
    return Usage(
        input_tokens=as_count(usage.get("prompt_tokens")),
        output_tokens=as_count(usage.get("completion_tokens")),
        cached_tokens=as_count(prompt.get("cached_tokens")),
        reasoning_tokens=as_count(completion.get("reasoning_tokens")),
    )


def _joined(before: Json, value: Json) -> Json:
    """Unknown fields are streamed as others are: lists and texts grow, anything else is replaced."""
    if isinstance(before, str) and isinstance(value, str):
        return before + value
    if isinstance(before, list) and isinstance(value, list):
        return [*cast("list[object]", before), *cast("list[object]", value)]
    return value
