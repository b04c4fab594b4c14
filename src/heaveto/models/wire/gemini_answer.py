"""Answers of Gemini generateContent, streamed or whole, as chunks. Pure, and total on what servers send."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, cast

from msgspec.structs import replace

from heaveto.errors import ModelError
from heaveto.events.contents import Blob, FileRef, Json, Opaque, Part, ProviderCall, ProviderResult, Text, Thought
from heaveto.events.records import Usage
from heaveto.models.base import CallChunk, Chunk, EndChunk, PartChunk, TextChunk, ThoughtChunk, UsageChunk
from heaveto.models.wire.gemini_errors import refusal
from heaveto.models.wire.gemini_partial_args import PartialArgs
from heaveto.models.wire.reading import as_count, as_object, as_objects, as_text

_CHARACTERS_PER_TOKEN = 4
_BROKEN_CALL = ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL")
"""The model meant to call a tool and failed: text alone would be taken for the answer."""
_BY_CHANCE = ("", "STOP", *_BROKEN_CALL, "OTHER", "FINISH_REASON_UNSPECIFIED", "NO_IMAGE", "IMAGE_OTHER")
"""Reasons for which the same request may well get an answer the next time."""
_CALL_FIELDS = ("id", "name", "args", "partialArgs", "willContinue")
_CANDIDATE_FIELDS = ("content", "finishReason", "index")
_BODY_FIELDS = ("candidates", "modelVersion")


class GeminiAnswerReader:
    """Reads one answer. Feed it every event, then ask for the end.

    Parts keep their order, and what they carry besides their content, signatures first, stands verbatim in their data
    (F26). A signed text stays a part of its own. Server-executed calls are `ProviderCall` and `ProviderResult` (F23).
    Fields that this reader does not know, of the candidate as of the body, are kept in the data of the end; the last
    value counts. Usage is an estimate until the answer is finished.

    Args:
        provider: the family to note on parts.
        names: the names of tools by the names that were sent in their place (G18).
    """

    def __init__(self, *, provider: str = "gemini", names: Mapping[str, str] | None = None) -> None:
        self._provider, self._names = provider, names or {}
        self._reason, self._model = "", ""
        self._data: dict[str, Json] = {}
        self._usage: Usage | None = None
        self._calls = self._executed = self._received = 0
        self._partial: PartialArgs | None = None
        self._has_content = False

    @property
    def is_finished(self) -> bool:
        """Whether the provider has given its finish reason: nothing of the answer is missing then."""
        return bool(self._reason)

    def feed(self, event: object) -> list[Chunk]:
        """Return the chunks of one streamed event, or of a whole response.

        Raises:
            ModelError: the event is an error, or says that the prompt was blocked.
        """
        if isinstance(event, list):
            return [chunk for item in cast("list[object]", event) for chunk in self.feed(item)]
        body = as_object(event)
        if body.get("error"):
            raise refusal(body)
        self._model = as_text(body.get("modelVersion")) or self._model
        self._data |= {key: value for key, value in body.items() if key not in _BODY_FIELDS}
        chunks: list[Chunk] = []
        for candidate in as_objects(body.get("candidates"))[:1]:
            chunks += self._candidate(candidate)
        self._refuse_block(body)
        self._received += sum(_length(chunk) for chunk in chunks)
        if body.get("usageMetadata"):
            self._usage = self._spent(_usage(as_object(body["usageMetadata"])))
            chunks.append(UsageChunk(self._usage))
        return chunks

    def end(self) -> list[Chunk]:
        """Return the closing chunks; nothing if the provider never closed the answer (F30).

        Raises:
            ModelError: nothing of an answer came, or the model failed to write the call it wanted.
        """
        self._refuse_failure()
        if not self._reason:
            return []
        end = EndChunk(self._reason, cut=self._reason != "STOP", model=self._model, data=self._data or None)
        if self._usage is None or not self._usage.estimated:
            return [end]
        return [UsageChunk(_usage(as_object(self._data.get("usageMetadata")))), end]

    def _spent(self, usage: Usage) -> Usage:
        """Until the answer is finished, the count of what was generated may lag behind, or not be there (F126)."""
        if self._reason:
            return usage
        generated = max(usage.output_tokens, -(-self._received // _CHARACTERS_PER_TOKEN))
        return replace(usage, output_tokens=generated, estimated=True)

    def _candidate(self, candidate: dict[str, Any]) -> list[Chunk]:
        self._data |= {key: value for key, value in candidate.items() if key not in _CANDIDATE_FIELDS}
        chunks: list[Chunk] = []
        for part in as_objects(as_object(candidate.get("content")).get("parts")):
            chunks += self._part(part)
        self._has_content = self._has_content or bool(chunks)
        self._reason = as_text(candidate.get("finishReason")) or self._reason
        return chunks

    def _refuse_block(self, body: dict[str, Any]) -> None:
        blocked = as_text(as_object(body.get("promptFeedback")).get("blockReason"))
        if blocked:
            raise ModelError(f"Gemini blocked the prompt: {blocked}", body=body)

    def _refuse_failure(self) -> None:
        """A limit on length leaves what came. Other ends are errors where nothing came, or where a call is missing."""
        reason = self._reason or "the stream ended"
        if self._reason == "MAX_TOKENS" or (self._has_content and reason not in _BROKEN_CALL):
            return
        message = as_text(self._data.get("finishMessage"))
        words = f"Gemini gave no answer: {reason}{f' ({message})' if message else ''}"
        raise ModelError(words, retryable=self._reason in _BY_CHANCE, body=self._data or None)

    def _part(self, part: dict[str, Any]) -> list[Chunk]:
        match part:
            case {"functionCall": call}:
                return self._call(as_object(call), _without(part, "functionCall"))
            case {"text": str(text)}:
                return self._words(part, text)
            case {"inlineData": {"mimeType": str(mime_type), "data": str(content)}} if not part.get("thought"):
                return [PartChunk(self._blob(part, mime_type, content))]
            case {"fileData": {"fileUri": str(uri), **more}}:
                kind = as_text(more.get("mimeType"))
                return [PartChunk(FileRef(uri=uri, mime_type=kind, provider=self._provider, data=part))]
            case {"executableCode": _} | {"codeExecutionResult": _} | {"toolCall": _} | {"toolResponse": _}:
                return [PartChunk(self._executed_part(part))]
            case _:
                return [PartChunk(self._opaque(part))] if part else []

    def _words(self, part: dict[str, Any], text: str) -> list[Chunk]:
        data = _without(part, "text")
        if part.get("thought"):
            chunks: list[Chunk] = [ThoughtChunk(text)] if text else []
            signature = as_text(part.get("thoughtSignature"))
            if signature:
                signed = Thought(text=text, signature=signature, provider=self._provider, data=data)
                chunks.append(PartChunk(signed))
            return chunks
        if not data:
            return [TextChunk(text)] if text else []
        if not text.strip():
            return [PartChunk(self._opaque(part))]  # no text that a message could show, and still to be sent back
        return [TextChunk(text), PartChunk(Text(text=text, provider=self._provider, data=data))]

    def _call(self, call: dict[str, Any], rest: dict[str, Json]) -> list[Chunk]:
        """A call comes whole, or streamed: then its end is a fragment that does not say that it continues."""
        more = {key: value for key, value in call.items() if key not in _CALL_FIELDS}
        data: dict[str, Json] | None = {**rest, **({"functionCall": more} if more else {})} or None
        name = as_text(call.get("name"))
        name = self._names.get(name, name)
        provider_id = as_text(call.get("id"))
        continues = call.get("willContinue") is True
        if self._partial is None and not continues and "partialArgs" not in call:
            self._calls += 1
            args = json.dumps(as_object(call.get("args")), ensure_ascii=False)
            return [CallChunk(self._calls - 1, name=name, provider_id=provider_id, args=args, data=data)]
        if self._partial is None:
            self._partial = PartialArgs(as_object(call.get("args")))
            self._calls += 1
        self._partial.feed(as_objects(call.get("partialArgs")))
        args = "" if continues else self._partial.text
        if not continues:
            self._partial = None
        return [CallChunk(self._calls - 1, name=name, provider_id=provider_id, args=args, data=data)]

    def _blob(self, part: dict[str, Any], mime_type: str, content: str) -> Part:
        try:
            decoded = base64.b64decode(content, validate=True)
        except (binascii.Error, ValueError):
            return self._opaque(part)
        data = _without(part, "inlineData") or None
        return Blob(mime_type=mime_type, content=decoded, provider=self._provider, data=data)

    def _executed_part(self, part: dict[str, Any]) -> Part:
        """Where the provider gives no id, a result belongs to the call before it."""
        for key in ("executableCode", "toolCall"):
            if key in part:
                call = as_object(part[key])
                self._executed += 1
                name = "code_execution" if key == "executableCode" else as_text(call.get("toolType")).lower()
                return ProviderCall(id=self._executed_id(call), name=name, provider=self._provider, data=part)
        result = as_object(part.get("codeExecutionResult", part.get("toolResponse")))
        return ProviderResult(id=self._executed_id(result), provider=self._provider, data=part)

    def _executed_id(self, body: dict[str, Any]) -> str:
        return as_text(body.get("id")) or f"executed_{self._executed}"

    def _opaque(self, part: dict[str, Any]) -> Opaque:
        return Opaque(provider=self._provider, data=part)


def _length(chunk: Chunk) -> int:
    match chunk:
        case TextChunk(text=text) | ThoughtChunk(text=text) | CallChunk(args=text):
            return len(text)
        case _:
            return 0


def _usage(usage: dict[str, Any]) -> Usage:
    """Thoughts are billed as output, what tools of the provider fetched as input."""
    thoughts = as_count(usage.get("thoughtsTokenCount"))
    return Usage(
        input_tokens=as_count(usage.get("promptTokenCount")) + as_count(usage.get("toolUsePromptTokenCount")),
        output_tokens=as_count(usage.get("candidatesTokenCount")) + thoughts,
        cached_tokens=as_count(usage.get("cachedContentTokenCount")),
        reasoning_tokens=thoughts,
    )


def _without(part: dict[str, Any], key: str) -> dict[str, Json]:
    return {name: value for name, value in part.items() if name != key}
