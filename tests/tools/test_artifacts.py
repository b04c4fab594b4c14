"""The tool with which a model reads artifacts."""

from __future__ import annotations

from typing import Any

import pytest

from heaveto.artifacts.in_store import StoreArtifacts
from heaveto.errors import ArtifactNameError, ToolArgumentsError
from heaveto.events.contents import ArtifactInfo, Blob
from heaveto.events.records import Cause, SessionKey
from heaveto.stores.memory import MemoryStore
from heaveto.tools.artifacts import LoadArtifactTool, decoded
from heaveto.tools.base import ToolContext, as_blob

KEY = SessionKey("app", "ann", "s1")


class ArtifactHost:
    """A run of which only the artifacts are there."""

    cancelled: Cause | None = None

    def __init__(self) -> None:
        self.service = StoreArtifacts(MemoryStore())

    async def save_artifact(self, name: str, content: Blob) -> int:
        return await self.service.save(KEY, name, content)

    async def load_artifact(self, name: str, version: int | None) -> Blob | None:
        return await self.service.load(KEY, name, version)

    async def list_artifacts(self) -> list[ArtifactInfo]:
        return await self.service.list(KEY)


@pytest.fixture
def ctx() -> ToolContext:
    host: Any = ArtifactHost()
    return ToolContext(
        host=host, call_id="c", idempotency_key="k", attempt=1, state={}, agent="a", branch="", run_id="r", session=KEY
    )


async def use(tool: LoadArtifactTool, ctx: ToolContext, **args: Any) -> dict[str, Any]:
    answer: dict[str, Any] = await tool.run(tool.bind(args), ctx)
    return answer


def test_the_model_is_told_four_arguments() -> None:
    """Only the name is required; the description says how to go on."""
    tool = LoadArtifactTool()
    parameters = tool.declaration().parameters
    assert tool.name == "load_artifact" and "large result" in tool.description
    assert list(parameters["properties"]) == ["name", "version", "offset", "length"]
    assert parameters["required"] == ["name"]
    assert "next_offset" in parameters["properties"]["offset"]["description"]


async def test_a_large_text_is_read_piece_by_piece(ctx: ToolContext) -> None:
    """Pieces that are asked for with each other's `next_offset` are the whole text, though a newer version comes."""
    text = "äöü🚢" * 1000
    tool = LoadArtifactTool(max_length=777)
    await ctx.save_artifact("user:big", text)
    piece = await use(tool, ctx, name="user:big", length=10_000)
    pieces = [piece["text"]]
    await ctx.save_artifact("user:big", "newer")
    while piece["next_offset"] is not None:
        piece = await use(tool, ctx, name="user:big", version=piece["version"], offset=piece["next_offset"])
        pieces.append(piece["text"])
        assert piece["total_length"] == len(text) and len(piece["text"]) <= 777
    assert "".join(pieces) == text
    assert (await use(tool, ctx, name="user:big"))["text"] == "newer"


async def test_a_piece_tells_where_it_stands(ctx: ToolContext) -> None:
    """Version, type, offset, total length and the next offset; None behind the last character."""
    await ctx.save_artifact("user:a", "0123456789", mime_type="text/plain")
    tool = LoadArtifactTool()
    assert await use(tool, ctx, name="user:a", offset=3, length=4) == {
        "name": "user:a",
        "version": 0,
        "mime_type": "text/plain",
        "text": "3456",
        "offset": 3,
        "total_length": 10,
        "next_offset": 7,
    }
    assert (await use(tool, ctx, name="user:a", offset=6, length=4))["next_offset"] is None
    behind = await use(tool, ctx, name="user:a", offset=99)
    assert (behind["text"], behind["next_offset"]) == ("", None)


async def test_of_binary_content_type_and_size_are_told(ctx: ToolContext) -> None:
    """It is not poured into the conversation."""
    await ctx.save_artifact("user:a.png", b"\x89PNG\x00", mime_type="image/png")
    answer = await use(LoadArtifactTool(), ctx, name="user:a.png")
    assert (answer["mime_type"], answer["size"]) == ("image/png", 5)
    assert "binary" in answer["note"] and "text" not in answer


async def test_what_is_not_there_is_said_with_what_is(ctx: ToolContext) -> None:
    """The model can correct the name, the version, or the place."""
    tool = LoadArtifactTool()
    with pytest.raises(ToolArgumentsError, match="there are: none"):
        await use(tool, ctx, name="x")
    await ctx.save_artifact("user:a", "x")
    with pytest.raises(ToolArgumentsError, match="there are: 'user:a'"):
        await use(tool, ctx, name="a")
    with pytest.raises(ToolArgumentsError, match="no version 3; its newest is 0"):
        await use(tool, ctx, name="user:a", version=3)
    with pytest.raises(ToolArgumentsError, match="offset"):
        await use(tool, ctx, name="user:a", offset=-1)
    with pytest.raises(ToolArgumentsError):
        await use(tool, ctx, name="user:a", offset="somewhere")
    with pytest.raises(ArtifactNameError):
        await use(tool, ctx, name="../x", version=0)


@pytest.mark.parametrize(
    ("content", "mime_type", "text"),
    [
        ("grüße".encode(), "text/plain", "grüße"),
        ("grüße".encode("latin-1"), "text/plain; charset=ISO-8859-1", "grüße"),
        ("grüße".encode("latin-1"), "text/plain", None),
        (b'{"a": 1}', "application/octet-stream", '{"a": 1}'),
        (b"<svg/>", "image/svg+xml", "<svg/>"),
        (b"x", "text/plain; charset=klingon", None),
        (b"a\x00b", "text/plain", None),
        (b"x", "no\r\ntype; charset=", "x"),
        (b"", "", ""),
    ],
)
def test_the_content_decides_what_is_text(content: bytes, mime_type: str, text: str | None) -> None:
    """What can be decoded by the named or the usual character set is text, whatever its type says."""
    assert decoded(as_blob(content, mime_type)) == (text if mime_type else "")


def test_a_piece_never_becomes_an_artifact_itself() -> None:
    """The limit of the tool's results lies above its longest piece, however it is escaped."""
    tool = LoadArtifactTool(max_length=100)
    assert tool.max_result_bytes is not None and tool.max_result_bytes > len(ascii("\x01" * 100)) + 1000
