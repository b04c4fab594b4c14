"""A tool with which a model reads stored artifacts, piece by piece."""

from __future__ import annotations

import re

from heaveto.errors import ToolArgumentsError
from heaveto.events.contents import ArtifactInfo, Blob, Json
from heaveto.tools.base import ToolContext
from heaveto.tools.function import FunctionTool

MAX_LENGTH = 20_000
NAMES_TOLD = 50
_CHARSET = re.compile(r";\s*charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_JSON_BYTES_PER_CHARACTER = 6  # the longest escape


class LoadArtifactTool(FunctionTool):
    """Lets a model read the artifacts that it can see, such as results that were too large to be shown.

    Text comes in pieces, each with the total length and where the next one begins; of binary content the model is told
    type and size. What an artifact is, its content decides: all that can be decoded is text.

    Args:
        name: what the model calls it by.
        max_length: how many characters a piece has at most.
    """

    def __init__(self, *, name: str = "load_artifact", max_length: int = MAX_LENGTH) -> None:
        super().__init__(self._load, name=name, replay="safe")
        self.max_length = max_length
        self.max_result_bytes = max_length * _JSON_BYTES_PER_CHARACTER + 10_000  # a piece is not stored once more

    async def _load(
        self, ctx: ToolContext, name: str, version: int | None = None, offset: int = 0, length: int | None = None
    ) -> dict[str, Json]:
        """Read a piece of a stored artifact, such as a large result of a tool.

        Args:
            name: The artifact's name.
            version: Its version, from 0; the newest if left out.
            offset: At which character the piece begins. Go on with the `next_offset` of the piece before.
            length: How many characters to read; as many as possible if left out.
        """
        if offset < 0 or (length is not None and length < 1):
            raise ToolArgumentsError("offset must be 0 or more, and length 1 or more")
        infos = await ctx.list_artifacts()
        newest = next((info.version for info in infos if info.name == name), None)
        wanted = newest if version is None else version
        blob = await ctx.load_artifact(name, wanted) if wanted is not None else None
        if blob is None or wanted is None:
            raise ToolArgumentsError(_missing(name, version, newest, infos))
        told: dict[str, Json] = {"name": name, "version": wanted, "mime_type": blob.mime_type}
        text = decoded(blob)
        if text is None:
            return told | {"size": len(blob.content), "note": "binary content, which cannot be shown as text"}
        most = self.max_length if length is None else min(length, self.max_length)
        return told | piece_of(text, offset, most)


def piece_of(text: str, offset: int, length: int) -> dict[str, Json]:
    """Return a piece of a text, how long the text is, and where the next piece begins, which is None at the end."""
    piece = text[offset : offset + length]
    end = offset + len(piece)
    next_offset = end if piece and end < len(text) else None
    return {"text": piece, "offset": offset, "total_length": len(text), "next_offset": next_offset}


def decoded(blob: Blob) -> str | None:
    """Return a blob's text, in the character set that its type names, else UTF-8; None if it is binary."""
    charset = _CHARSET.search(blob.mime_type)
    try:
        text = blob.content.decode(charset[1] if charset else "utf-8")
    except (UnicodeError, LookupError):
        return None
    return None if "\x00" in text else text


def _missing(name: str, version: int | None, newest: int | None, infos: list[ArtifactInfo]) -> str:
    if newest is not None:
        return f"artifact {name!r} has no version {version}; its newest is {newest}"
    names = [info.name for info in infos]
    more = f" and {len(names) - NAMES_TOLD} more" if len(names) > NAMES_TOLD else ""
    listed = ", ".join(map(repr, names[:NAMES_TOLD])) or "none"
    return f"there is no artifact {name!r}; there are: {listed}{more}"
