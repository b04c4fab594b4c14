"""What the formats have in common: ids, names, JSON texts, attachments."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import cast

import msgspec

from heaveto.events.contents import Blob, FileRef, FunctionResponse, Json, Part, Text


def json_text(value: Json) -> str:
    """Return compact JSON."""
    return msgspec.json.encode(value).decode()


def sendable_text(text: str) -> bool:
    """Whether a provider takes the text as a block of its own (A10: not if it is only white space)."""
    return bool(text.strip())


def base64_text(content: bytes) -> str:
    """Return standard base64 with padding."""
    return base64.b64encode(content).decode("ascii")


def data_uri(blob: Blob) -> str:
    """Return an attachment as a ``data:`` address."""
    return f"data:{blob.mime_type};base64,{base64_text(blob.content)}"


def described(part: Blob | FileRef) -> Text:
    """Return words for an attachment that cannot be sent as such."""
    match part:
        case Blob():
            return Text(
                text=f"[attachment of type {part.mime_type or 'unknown'}, {len(part.content)} bytes, not shown]"
            )
        case FileRef():
            return Text(text=f"[file {part.uri}{f' of type {part.mime_type}' if part.mime_type else ''}]")


def plain_text(blob: Blob) -> Text | None:
    """Return the text of a textual attachment, or None if it is not text."""
    if not (blob.mime_type.startswith("text/") or blob.mime_type == "application/json"):
        return None
    return Text(text=blob.content.decode("utf-8", "replace"))


def split_images(response: FunctionResponse) -> tuple[dict[str, Json], tuple[Blob, ...]]:
    """Take images in MCP form out of a result, leaving a mark where each was (O14, A11')."""
    content: Json = response.response.get("content")
    if not isinstance(content, list):
        return response.response, ()
    blocks = cast("list[object]", content)
    images: list[Blob] = []
    left: list[object] = []
    for block in blocks:
        image = _image_of(block)
        if image is None:
            left.append(block)
        else:
            images.append(image)
            left.append({"type": "text", "text": f"[image {len(images)} follows the results]"})
    return ({**response.response, "content": left}, tuple(images)) if images else (response.response, ())


def own_block(part: Part, provider: str) -> dict[str, Json] | None:
    """Return a part as its provider made it, if the request goes to that provider and it is whole."""
    data = own_data(part, provider)
    return data if isinstance(data.get("type"), str) else None


def own_data(part: Part, provider: str) -> dict[str, Json]:
    """Return a part's provider data if the request goes to that provider, else nothing."""
    return part.data if part.data is not None and part.provider == provider else {}


def with_extra(settings: Mapping[str, Json], extra: dict[str, Json]) -> dict[str, Json]:
    """Return the settings that are not None, and a user's own, which win; objects that are in both are joined."""
    given = {name: value for name, value in settings.items() if value is not None}
    for name, value in extra.items():
        known = given.get(name)
        both = isinstance(known, dict) and isinstance(value, dict)
        given[name] = {**cast("dict[str, Json]", known), **cast("dict[str, Json]", value)} if both else value
    return given


def _image_of(block: object) -> Blob | None:
    match block:
        case {"type": "image", "data": str(data), "mimeType": str(mime_type)} if mime_type.startswith("image/"):
            try:
                return Blob(mime_type=mime_type, content=base64.b64decode(data, validate=True))
            except (binascii.Error, ValueError):
                return None
        case _:
            return None
