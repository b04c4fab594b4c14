"""Answers of OpenAI Responses, streamed or whole, as chunks. Pure, and total on what servers send."""

from __future__ import annotations

import json
from typing import Any, Literal

from heaveto.errors import ModelError
from heaveto.events.contents import Json, Opaque, Text, Thought
from heaveto.events.records import Usage
from heaveto.models.base import CallChunk, Chunk, EndChunk, PartChunk, TextChunk, ThoughtChunk, UsageChunk
from heaveto.models.wire.reading import as_count, as_object, as_objects, as_text

_ENDS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
_BEGINNINGS = ("response.created", "response.queued", "response.in_progress")
_CALLS = ("function_call", "custom_tool_call")
_CALL_FIELDS = ("id", "type", "status", "call_id", "name", "arguments", "input")
_PASSING = ("server_error", "rate_limit_exceeded", "slow_down", "vector_store_timeout", "internal_error")
_BETWEEN_SUMMARIES = "\n\n"

_State = Literal["head", "streamed", "done"]


class ResponsesAnswerReader:
    """Reads one answer. Feed it every event, then ask for the end.

    Calls of functions and of custom tools become calls: a custom tool's text is the argument ``input``. Reasoning
    becomes a `Thought` with the item in its data, signed by its encrypted content. What the provider executed itself,
    and items that this reader does not know, stay whole in an `Opaque` part: nobody executes or repairs them (F23).

    Args:
        provider: the family under which items are kept.
        held: whether the provider was asked to store the answer. Then the data of the end says so once it is complete:
            an answer that failed or was cut is nothing to go on from.
    """

    def __init__(self, *, provider: str = "openai-responses", held: bool = False) -> None:
        self._provider, self._held = provider, held
        self._items: dict[int, _State] = {}
        self._sent: dict[int, str] = {}
        self._id = self._model = self._status = self._reason = ""
        self._failure: ModelError | None = None

    @property
    def is_finished(self) -> bool:
        """Whether the provider has said how the response ended: nothing of the answer is missing then."""
        return bool(self._status)

    @property
    def failure(self) -> ModelError | None:
        """What the provider says went wrong, within an answer that it had begun."""
        return self._failure

    def feed(self, event: object) -> list[Chunk]:
        """Return the chunks of one streamed event, or of a whole response."""
        body = as_object(event)
        kind = as_text(body.get("type"))
        if body.get("object") == "response":
            return self._response(body)
        if kind in _ENDS:
            return self._response(as_object(body.get("response")), kind.removeprefix("response."))
        if kind in _BEGINNINGS:
            self._head(as_object(body.get("response")))
        if kind == "error":
            self._fail(as_object(body.get("error")) or body)
        return self._of_item(kind, as_count(body.get("output_index")), body)

    def _of_item(self, kind: str, index: int, body: dict[str, Any]) -> list[Chunk]:
        match kind:
            case "response.output_item.added":
                return self._begin(index, as_object(body.get("item")))
            case "response.output_item.done":
                return self._finish(index, as_object(body.get("item")))
            case "response.output_text.delta" | "response.refusal.delta":
                return self._streamed(index, TextChunk(as_text(body.get("delta"))))
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                return self._streamed(index, ThoughtChunk(as_text(body.get("delta"))))
            case "response.reasoning_summary_part.added" if as_count(body.get("summary_index")):
                return self._streamed(index, ThoughtChunk(_BETWEEN_SUMMARIES))
            case "response.function_call_arguments.delta":
                return self._arguments(index, as_text(body.get("delta")))
            case "response.custom_tool_call_input.delta":
                return self._arguments(index, _escaped(as_text(body.get("delta"))))
            case _:
                return []

    def end(self) -> list[Chunk]:
        """Return the closing chunk; nothing if the provider never closed the answer, or closed it as failed (F30)."""
        if not self._status or self._failure is not None:
            return []
        complete = self._status == "completed"
        data: dict[str, Json] = {"id": self._id} if self._id else {}
        if data and complete and self._held:
            data["held"] = True
        return [EndChunk(reason=self._reason or self._status, cut=not complete, model=self._model, data=data or None)]

    def _head(self, response: dict[str, Any]) -> None:
        self._id = as_text(response.get("id")) or self._id
        self._model = as_text(response.get("model")) or self._model

    def _response(self, response: dict[str, Any], status: str = "") -> list[Chunk]:
        """How it ended; and all of its items, if nothing of them was streamed."""
        self._head(response)
        self._status = as_text(response.get("status")) or status
        self._reason = as_text(as_object(response.get("incomplete_details")).get("reason"))
        chunks: list[Chunk] = []
        if not self._items:
            for index, item in enumerate(as_objects(response.get("output"))):
                chunks += self._finish(index, item)
        if self._status == "failed":
            self._fail(as_object(response.get("error")))
        usage = as_object(response.get("usage"))
        return [*chunks, UsageChunk(_usage(usage))] if usage else chunks

    def _fail(self, error: dict[str, Any]) -> None:
        code = as_text(error.get("code")) or as_text(error.get("type")).removeprefix("error")
        message = as_text(error.get("message")) or "the response failed"
        self._failure = ModelError(message, retryable=not code or code in _PASSING, body=error)

    def _streamed(self, index: int, chunk: TextChunk | ThoughtChunk) -> list[Chunk]:
        if not chunk.text or self._items.get(index) == "done":
            return []
        self._items[index] = "streamed"
        return [chunk]

    def _begin(self, index: int, item: dict[str, Any]) -> list[Chunk]:
        if index in self._items:
            return []
        self._items[index] = "head"
        return [self._call_head(index, item)] if item.get("type") in _CALLS else []

    def _call_head(self, index: int, item: dict[str, Any]) -> CallChunk:
        data = {key: value for key, value in item.items() if key not in _CALL_FIELDS and value is not None}
        custom = item.get("type") == "custom_tool_call"
        if custom:
            data["type"] = "custom_tool_call"
        self._sent[index] = opening = _OPENING if custom else ""
        name, call_id = as_text(item.get("name")), as_text(item.get("call_id"))
        return CallChunk(index, name=name, provider_id=call_id, args=opening, data=data or None)

    def _arguments(self, index: int, text: str) -> list[Chunk]:
        if not text or index not in self._sent or self._items.get(index) == "done":
            return []
        self._items[index] = "streamed"
        self._sent[index] += text
        return [CallChunk(index, args=text)]

    def _finish(self, index: int, item: dict[str, Any]) -> list[Chunk]:
        """The whole item: what of it was not streamed."""
        state = self._items.get(index)
        if state == "done":
            return []
        self._items[index] = "done"
        match item.get("type"):
            case "message":
                return self._message(item, streamed=state == "streamed")
            case "reasoning":
                return self._reasoning(item)
            case "function_call" | "custom_tool_call":
                return self._rest_of_call(index, item)
            case str():
                return [PartChunk(Opaque(provider=self._provider, data=item))]
            case _:
                return []

    def _message(self, item: dict[str, Any], *, streamed: bool) -> list[Chunk]:
        texts = [as_text(part.get("text")) or as_text(part.get("refusal")) for part in as_objects(item.get("content"))]
        phase = item.get("phase")
        if phase:  # models that give one want it back
            return [PartChunk(Text(text="".join(texts), provider=self._provider, data={"phase": phase}))]
        return [] if streamed else [TextChunk(text) for text in texts if text]

    def _reasoning(self, item: dict[str, Any]) -> list[Chunk]:
        told = (*as_objects(item.get("summary")), *as_objects(item.get("content")))
        texts = [as_text(part.get("text")) for part in told]
        signature = as_text(item.get("encrypted_content")) or None
        words = _BETWEEN_SUMMARIES.join(text for text in texts if text)
        if not words and signature is None:
            return []
        return [PartChunk(Thought(text=words, signature=signature, provider=self._provider, data=item))]

    def _rest_of_call(self, index: int, item: dict[str, Any]) -> list[Chunk]:
        chunks: list[Chunk] = [] if index in self._sent else [self._call_head(index, item)]
        whole = as_text(item.get("arguments"))
        if item.get("type") == "custom_tool_call":
            closing = "" if item.get("status") == "incomplete" else '"}'
            whole = f"{_OPENING}{_escaped(as_text(item.get('input')))}{closing}"
        rest = whole.removeprefix(self._sent[index])
        if rest and whole.startswith(self._sent[index]):
            chunks.append(CallChunk(index, args=rest))
        return chunks


_OPENING = '{"input": "'


def _escaped(text: str) -> str:
    """Text as it stands within a JSON string; halves of surrogate pairs of two fragments join there."""
    return json.dumps(text)[1:-1]


def _usage(usage: dict[str, Any]) -> Usage:
    read, written = as_object(usage.get("input_tokens_details")), as_object(usage.get("output_tokens_details"))
    return Usage(
        input_tokens=as_count(usage.get("input_tokens")),
        output_tokens=as_count(usage.get("output_tokens")),
        cached_tokens=as_count(read.get("cached_tokens")),
        reasoning_tokens=as_count(written.get("reasoning_tokens")),
    )
