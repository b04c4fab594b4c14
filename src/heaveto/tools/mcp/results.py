"""From what a server answers to the JSON that the model is told. Pure."""

from __future__ import annotations

import base64
import binascii
import json
import mimetypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from heaveto.events.contents import Json


@dataclass(frozen=True, slots=True)
class Attachment:
    """Bytes that came with a result: too much for the model's request, and not text. `about` is told in their place."""

    about: dict[str, Json]
    mime_type: str
    content: bytes

    @property
    def extension(self) -> str:
        """A file extension that fits the type, with its dot; empty if none is known."""
        return mimetypes.guess_extension(self.mime_type.partition(";")[0].strip()) or ""


def parts_of(result: CallToolResult) -> list[dict[str, Json] | Attachment]:
    """Return what came beside text and structured content, in its order."""
    return [_part(block) for block in result.content if not isinstance(block, TextContent)]


def response_of(result: CallToolResult, parts: Sequence[dict[str, Json]]) -> dict[str, Json]:
    """Return a result as a JSON object, with the parts as they were kept.

    Structured content that is an object stands as it is; a text alone is ``{"result": text}``. Text that only repeats
    the structured content, as the protocol wants it, is left out; other text and parts are put beside it.
    """
    texts = _texts(result)
    structured: Any = result.structured_content
    if structured is None:
        response: dict[str, Json] = {"result": "\n".join(texts)} if texts else {}
    else:
        extra = [] if _only_repeats(texts, structured) else texts
        if isinstance(structured, dict) and not extra and not parts:
            return structured  # pyright: ignore[reportUnknownVariableType]
        response = {"result": structured, **({"text": "\n".join(extra)} if extra else {})}
    return {**response, **({"parts": list(parts)} if parts else {})}


def error_text(result: CallToolResult) -> str:
    """Return what a result that reports an error says about it."""
    texts = _texts(result)
    if not texts and result.structured_content is not None:
        texts = [json.dumps(result.structured_content, ensure_ascii=False)]
    return "\n".join(texts) or "the tool reported an error and did not say which"


def _texts(result: CallToolResult) -> list[str]:
    return [block.text for block in result.content if isinstance(block, TextContent)]


def _part(block: ContentBlock) -> dict[str, Json] | Attachment:
    match block:
        case TextContent():
            return {"type": "text", "text": block.text}
        case ImageContent() | AudioContent():
            return _attachment({"type": block.type}, block.mime_type, block.data)
        case ResourceLink():
            return block.model_dump(mode="json", exclude_none=True, by_alias=False, exclude={"meta", "icons"})
        case EmbeddedResource():
            return _resource(block.resource)
        case _:
            assert_never(block)


def _resource(held: TextResourceContents | BlobResourceContents) -> dict[str, Json] | Attachment:
    about: dict[str, Json] = {"type": "resource", "uri": held.uri}
    if isinstance(held, BlobResourceContents):
        return _attachment(about, held.mime_type or "application/octet-stream", held.blob)
    return {**about, **({"mime_type": held.mime_type} if held.mime_type else {}), "text": held.text}


def _attachment(about: dict[str, Json], mime_type: str, data: str) -> dict[str, Json] | Attachment:
    about = {**about, "mime_type": mime_type}
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return {**about, "problem": "its data is not valid base64"}
    return Attachment({**about, "size": len(content)}, mime_type, content)


def _only_repeats(texts: Sequence[str], structured: Any) -> bool:
    """Whether the texts say what the structured content says: as one JSON text, or item by item of its one value."""
    said = [_loaded(text) for text in texts]
    if not texts or said == [structured]:
        return True
    match structured:
        case {"result": value, **others} if not others:  # how the SDK's own servers wrap what is no object
            pass
        case _:
            return False
    return any(form in ([value], value) for form in (list(texts), said))


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
