"""Contents: what users and models say, as frozen parts.

A provider's own data (signatures, encrypted reasoning, server-side results) is kept verbatim beside the neutral form:
it may be sent back to the same provider unchanged, or left out whole, and nothing else (F26, F27).
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

Json: TypeAlias = Any
"""A JSON value: None, bool, int, finite float, str, list of Json, or dict from str to Json."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="part", gc=False):
    provider: str = ""
    """The provider family that made this part, such as ``openai``; empty where nobody's rules apply."""
    data: dict[str, Json] | None = None
    """That provider's own fields, verbatim. Only a request to the same provider may carry them."""


class Text(_Part, frozen=True, kw_only=True, tag="text"):
    """Plain text, from anyone."""

    text: str


class Thought(_Part, frozen=True, kw_only=True, tag="thought"):
    """A model's reasoning. Without a signature it is for display only and is never sent back (F25)."""

    text: str
    signature: str | None = None


class FunctionCall(_Part, frozen=True, kw_only=True, tag="function_call"):
    """A request of the model to call a tool.

    `call_id` is ours and unique in the session; `provider_id` is the id that the provider gave, which may repeat (F20).
    """

    call_id: str
    name: str
    args: dict[str, Json] = {}
    provider_id: str | None = None
    raw_args: str | None = None
    """The argument text as received, where it is not a JSON object. Kept for diagnosis, never sent (F31)."""
    defect: Literal["", "truncated", "invalid"] = ""
    """Why the call must not be executed: its arguments were cut off, or are not a JSON object (F30)."""


class FunctionResponse(_Part, frozen=True, kw_only=True, tag="function_response"):
    """A tool's result as a request carries it. The log holds results as `CallSettled`, never as this part."""

    call_id: str
    name: str
    response: dict[str, Json]
    is_error: bool = False


class Blob(_Part, frozen=True, kw_only=True, tag="blob"):
    """Binary content inline, such as an image."""

    mime_type: str
    content: bytes


class FileRef(_Part, frozen=True, kw_only=True, tag="file"):
    """Content that lies elsewhere."""

    uri: str
    mime_type: str = ""


class ProviderCall(_Part, frozen=True, kw_only=True, tag="provider_call"):
    """A call that the provider executes itself. Never executed or repaired as a client call (F23)."""

    id: str
    name: str


class ProviderResult(_Part, frozen=True, kw_only=True, tag="provider_result"):
    """The result of a `ProviderCall`, made by the provider."""

    id: str


class Opaque(_Part, frozen=True, kw_only=True, tag="opaque"):
    """A part that only its provider understands, kept verbatim in `data`."""


Part: TypeAlias = (
    Text | Thought | FunctionCall | FunctionResponse | Blob | FileRef | ProviderCall | ProviderResult | Opaque
)


class Content(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """An ordered group of parts that one side said."""

    parts: tuple[Part, ...]

    @classmethod
    def of(cls, *parts: str | Part) -> Content:
        """Make a content; strings become `Text`."""
        return cls(tuple(Text(text=part) if isinstance(part, str) else part for part in parts))

    @property
    def text(self) -> str:
        """All text of it, in order, without thoughts."""
        return text_of(self.parts)


class ArtifactInfo(msgspec.Struct, frozen=True):
    """A stored artifact: its newest version (from 0), its type and its size in bytes."""

    name: str
    version: int
    mime_type: str
    size: int


def text_of(parts: tuple[Part, ...]) -> str:
    """Return the text of the parts, in order, without thoughts."""
    return "".join(part.text for part in parts if isinstance(part, Text))


def calls_of(parts: tuple[Part, ...]) -> tuple[FunctionCall, ...]:
    """Return the client-side tool calls among the parts, in order; an id that stands twice counts once (F19)."""
    calls: dict[str, FunctionCall] = {}
    for part in parts:
        if isinstance(part, FunctionCall):
            calls.setdefault(part.call_id, part)
    return tuple(calls.values())
