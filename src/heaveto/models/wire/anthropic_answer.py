"""Answers of Anthropic Messages, streamed or whole, as chunks. Pure, and total on what servers send."""

from __future__ import annotations

import json
from typing import Any, cast

import msgspec

from heaveto.core.wire_kinds import SERVER_CALLS
from heaveto.events.contents import Json, Opaque, Part, ProviderCall, ProviderResult, Text, Thought
from heaveto.events.records import Usage
from heaveto.models.base import CallChunk, Chunk, EndChunk, PartChunk, TextChunk, ThoughtChunk, UsageChunk
from heaveto.models.wire.reading import as_count, as_object, as_text

Block = dict[str, Any]
PAUSED = "pause_turn"
_CUT = ("max_tokens", "model_context_window_exceeded", "refusal")
_GROWING = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}
_CALL_FIELDS = ("type", "id", "name", "input")
_MESSAGE_FIELDS = ("type", "role", "content", "model", "stop_reason", "usage")


class AnthropicAnswerReader:
    """Reads one answer. Feed it every event, or the whole message, then ask for the end.

    What each block came to is kept as it came: its part has all of the block in its data where the neutral form says
    less (F26, F27). A block that was not closed gives what was streamed of it, and nothing to send back (F25).

    An answer may take several requests: after ``pause_turn``, `go_on`, and feed the next one's events (F22). The usage
    is that of all of them.
    """

    def __init__(self, *, provider: str = "anthropic") -> None:
        self._provider = provider
        self._reason, self._model = "", ""
        self._data: dict[str, Json] = {}
        self._open: dict[int, _Growing] = {}
        self._first = self._next = 0
        self._spent, self._usage = Usage(), dict[str, Any]()
        self.blocks: list[Block] = []
        """The closed blocks, as they go back to have the answer continued."""

    @property
    def is_finished(self) -> bool:
        """Whether the provider has said why it stopped: nothing of the answer is missing then."""
        return bool(self._reason)

    @property
    def is_paused(self) -> bool:
        """Whether the answer goes on when its blocks are sent back."""
        return self._reason == PAUSED

    @property
    def container(self) -> str:
        """The id of the container in which the answer's code is executed, if there is one."""
        return as_text(as_object(self._data.get("container")).get("id"))

    def go_on(self) -> None:
        """Prepare for the answer to the next request, which continues this one."""
        self._spent += _counted(self._usage)
        self._reason, self._usage, self._first = "", {}, self._next
        self._open.clear()

    def begin_again(self) -> None:
        """Forget what a request that came to nothing said of itself: it is sent again."""
        self._reason, self._usage, self._next = "", {}, self._first
        self._open.clear()

    def feed(self, event: object) -> list[Chunk]:
        """Return the chunks of one streamed event, or of a whole message."""
        body = as_object(event)
        index = as_count(body.get("index"))
        match body.get("type"):
            case "message_start":
                message = as_object(body.get("message"))
                return self._take(message)
            case "content_block_start":
                return self._start(index, as_object(body.get("content_block")))
            case "content_block_delta":
                return self._grow(index, as_object(body.get("delta")))
            case "content_block_stop":
                return self._stop(index)
            case "message_delta":
                delta = as_object(body.get("delta"))
                return self._take({**delta, "usage": body.get("usage")})
            case "message":
                return [*self._blocks_of(body), *self._take(body)]
            case _:
                return []

    def end(self) -> list[Chunk]:
        """Return the closing chunk; nothing if the provider never closed the answer (F30)."""
        if not self._reason:
            return []
        data = {**self._data, "usage": self._usage} if self._usage else self._data
        return [EndChunk(reason=self._reason, cut=self._reason in _CUT, model=self._model, data=data or None)]

    def _take(self, message: dict[str, Any]) -> list[Chunk]:
        """Take what a message says of itself. Its counts of tokens are cumulative, and final with the reason."""
        self._model = as_text(message.get("model")) or self._model
        self._reason = as_text(message.get("stop_reason")) or self._reason
        for key, value in message.items():
            if key not in _MESSAGE_FIELDS and value is not None:
                self._data[key] = value
        news = {key: value for key, value in as_object(message.get("usage")).items() if value is not None}
        self._usage |= news
        if not news:
            return []
        usage = msgspec.structs.replace(_counted(self._usage), estimated=not self._reason)
        return [UsageChunk(self._spent + usage)]

    def _blocks_of(self, message: dict[str, Any]) -> list[Chunk]:
        blocks = cast("list[object]", message["content"]) if isinstance(message.get("content"), list) else []
        chunks: list[Chunk] = []
        for index, block in enumerate(blocks):
            chunks += [*self._start(index, as_object(block)), *self._stop(index)]
        return chunks

    def _start(self, index: int, block: Block) -> list[Chunk]:
        self._open[index] = _Growing(block)
        self._next = max(self._next, self._first + index + 1)
        match block.get("type"):
            case "text":
                return _said(block.get("text"))
            case "thinking":
                return _thought(block.get("thinking"))
            case "tool_use":
                name, provider_id = as_text(block.get("name")), as_text(block.get("id"))
                extra = {key: value for key, value in block.items() if key not in _CALL_FIELDS and value is not None}
                return [CallChunk(self._first + index, name=name, provider_id=provider_id, data=extra or None)]
            case _:
                return []

    def _grow(self, index: int, delta: dict[str, Any]) -> list[Chunk]:
        growing = self._open.get(index)
        if growing is None:
            return []
        growing.add(delta)
        match delta.get("type"), growing.kind:
            case "text_delta", "text":
                return _said(delta.get("text"))
            case "thinking_delta", "thinking":
                return _thought(delta.get("thinking"))
            case "input_json_delta", "tool_use":
                return [CallChunk(self._first + index, args=as_text(delta.get("partial_json")))]
            case _:
                return []

    def _stop(self, index: int) -> list[Chunk]:
        growing = self._open.pop(index, None)
        block = None if growing is None else growing.whole()
        if growing is None or block is None or not growing.kind:
            return []
        follows_text = bool(self.blocks) and self.blocks[-1].get("type") == "text"
        self.blocks.append(block)
        if growing.kind == "tool_use":
            given = json.dumps(block.get("input")) if block.get("input") and not growing.json else ""
            return [CallChunk(self._first + index, args=given)] if given else []
        part = self._part(block, follows_text=follows_text)
        return [] if part is None else [PartChunk(part)]

    def _part(self, block: Block, *, follows_text: bool) -> Part | None:
        kind, provider = as_text(block.get("type")), self._provider
        match block:
            case {"type": "text"}:
                text = as_text(block.get("text"))
                says_more = any(value is not None for key, value in block.items() if key not in ("type", "text"))
                return Text(text=text, provider=provider, data=block) if text and (says_more or follows_text) else None
            case {"type": "thinking", "signature": str(signature)} if signature:
                return Thought(text=as_text(block.get("thinking")), signature=signature, provider=provider, data=block)
            case {"type": "thinking"}:
                return None
            case {"id": str(call_id)} if kind in SERVER_CALLS:
                return ProviderCall(id=call_id, name=as_text(block.get("name")), provider=provider, data=block)
            case {"tool_use_id": str(call_id)} if kind.endswith("_tool_result"):
                return ProviderResult(id=call_id, provider=provider, data=block)
            case _:
                return Opaque(provider=provider, data=block)


class _Growing:
    """A block that is being streamed. Fragments are joined once, at its end."""

    __slots__ = ("_block", "_fragments", "json", "kind")

    def __init__(self, block: Block) -> None:
        self._block = dict(block)
        self.kind = as_text(block.get("type"))
        self._fragments: dict[str, list[str]] = {}
        self.json: list[str] = []

    def add(self, delta: dict[str, Any]) -> None:
        kind = as_text(delta.get("type"))
        match kind:
            case "input_json_delta":
                self.json.append(as_text(delta.get("partial_json")))
            case "citations_delta":
                self._extend("citations", [delta.get("citation")])
            case _ if kind in _GROWING:
                self._append(_GROWING[kind], delta.get(_GROWING[kind]))
            case _:  # one that this reader does not know: grow as others do
                for key, value in delta.items():
                    if key != "type":
                        self._append(key, value)

    def whole(self) -> Block | None:
        """Return the block as it would have come at once; None if its arguments are not JSON."""
        for field, fragments in self._fragments.items():
            self._block[field] = as_text(self._block.get(field)) + "".join(fragments)
        text = "".join(self.json)
        if text.strip():
            try:
                self._block["input"] = msgspec.json.decode(text)
            except (msgspec.DecodeError, ValueError, RecursionError):
                return None
        return self._block

    def _append(self, field: str, value: Json) -> None:
        match value:
            case str():
                self._fragments.setdefault(field, []).append(value)
            case list():
                self._extend(field, cast("list[object]", value))
            case _:
                self._block[field] = value

    def _extend(self, field: str, values: list[Any]) -> None:
        before = self._block.get(field)
        self._block[field] = [*(cast("list[object]", before) if isinstance(before, list) else []), *values]


def _counted(usage: dict[str, Any]) -> Usage:
    """The provider's own `input_tokens` are only those that no cache has to do with."""
    read, written = as_count(usage.get("cache_read_input_tokens")), as_count(usage.get("cache_creation_input_tokens"))
    return Usage(
        input_tokens=as_count(usage.get("input_tokens")) + read + written,
        output_tokens=as_count(usage.get("output_tokens")),
        cached_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=as_count(as_object(usage.get("output_tokens_details")).get("thinking_tokens")),
    )


def _said(text: object) -> list[Chunk]:
    return [TextChunk(words)] if (words := as_text(text)) else []


def _thought(text: object) -> list[Chunk]:
    return [ThoughtChunk(words)] if (words := as_text(text)) else []
