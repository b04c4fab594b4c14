"""The decisions of the MCP toolset, without a server: names, lines, results, statuses, errors."""

from __future__ import annotations

import base64
import logging
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, HEADER_MISMATCH, CallToolResult, TextContent

from heaveto.errors import InDoubtError, ToolArgumentsError, ToolsetError
from heaveto.tools.mcp.arguments import Arguments
from heaveto.tools.mcp.failures import MCPToolError, RejectedError, call_failure, connect_failure
from heaveto.tools.mcp.http import REFUSED, SESSION_GONE, UNREACHED, refusal
from heaveto.tools.mcp.naming import provider_names
from heaveto.tools.mcp.process import Lines
from heaveto.tools.mcp.results import Attachment, error_text, parts_of, response_of

LOG = logging.getLogger("test")


@given(st.lists(st.text(max_size=80), unique=True, max_size=8), st.sampled_from(["", "srv_", "a b."]))
def test_names_are_fit_unique_and_the_same_in_any_order(names: list[str], prefix: str) -> None:
    """Every provider takes them, no two are equal, and the order of a list changes none."""
    fit = provider_names(names, prefix)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in fit.values())
    assert len(set(fit.values())) == len(names)
    assert provider_names(reversed(names), prefix) == fit


@given(st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line)), st.integers(1, 7))
def test_lines_come_out_as_they_went_in(lines: list[bytes], step: int) -> None:
    """However the bytes arrive."""
    data = b"".join(line + b"\n" for line in lines) + b"rest"
    reader = Lines(1000)
    found = [line for start in range(0, len(data), step) for line in reader.feed(data[start : start + step])]
    assert (found, reader.rest()) == (lines, b"rest")


def test_a_line_without_an_end_does_not_fill_the_memory() -> None:
    """A peer that never ends its line is given up."""
    reader = Lines(10)
    with pytest.raises(ValueError, match="longer than 10 bytes"):
        reader.feed(b"x" * 11)


def texts(*said: str, structured: Any = None) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text) for text in said], structured_content=structured)


@pytest.mark.parametrize(
    ("result", "response"),
    [
        (texts(), {}),
        (texts("a", "b"), {"result": "a\nb"}),
        (texts('{"n": 1}', structured={"n": 1}), {"n": 1}),
        (texts(structured={"n": 1}), {"n": 1}),
        (texts("5", structured={"result": 5}), {"result": 5}),
        (texts("one", "two", structured={"result": ["one", "two"]}), {"result": ["one", "two"]}),
        (texts("1", "2", structured={"result": [1, 2]}), {"result": [1, 2]}),
        (texts("It is one.", structured={"n": 1}), {"result": {"n": 1}, "text": "It is one."}),
        (texts("[1]", structured=[1]), {"result": [1]}),
    ],
)
def test_a_result_is_told_once_and_whole(result: CallToolResult, response: dict[str, Any]) -> None:
    """Text that repeats the structured content is left out, other text is not."""
    assert response_of(result, []) == response


def test_parts_that_are_no_text() -> None:
    """Pictures and bytes are attachments, links and texts stand as they are, and bad base64 is said."""
    result = CallToolResult.model_validate(
        {
            "content": [
                {"type": "text", "text": "see"},
                {"type": "audio", "data": base64.b64encode(b"la").decode(), "mimeType": "audio/mpeg"},
                {"type": "image", "data": "?", "mimeType": "image/png"},
                {"type": "resource_link", "uri": "file:///a", "name": "a", "mimeType": "text/plain"},
                {"type": "resource", "resource": {"uri": "b://1", "blob": base64.b64encode(b"x").decode()}},
            ]
        }
    )
    audio, image, link, blob = parts_of(result)
    assert isinstance(audio, Attachment) and (audio.content, audio.extension) == (b"la", ".mp3")
    assert image == {"type": "image", "mime_type": "image/png", "problem": "its data is not valid base64"}
    assert link == {"type": "resource_link", "uri": "file:///a", "name": "a", "mime_type": "text/plain"}
    assert isinstance(blob, Attachment) and blob.mime_type == "application/octet-stream"
    assert response_of(result, [{"kept": "1"}]) == {"result": "see", "parts": [{"kept": "1"}]}


def test_an_error_says_something() -> None:
    """Its texts, else its structured content, else that there was none."""
    assert error_text(texts("no", "way")) == "no\nway"
    assert error_text(texts(structured={"code": 5})) == '{"code": 5}'
    assert "did not say" in error_text(texts())


@pytest.mark.parametrize(
    ("status", "content_type", "in_session", "code"),
    [
        (200, "", False, None),
        (400, "application/json", False, None),
        (401, "text/html", False, REFUSED),
        (404, "text/html", False, None),
        (404, "application/json", True, SESSION_GONE),
        (429, "", False, REFUSED),
        (502, "text/html", True, CONNECTION_CLOSED),
        (500, "application/json; charset=utf-8", False, None),
    ],
)
def test_what_an_http_status_means(status: int, content_type: str, in_session: bool, code: int | None) -> None:
    """Below 500 the call was not executed; from 500 on nobody knows; a JSON-RPC error speaks for itself."""
    found = refusal(status, {"content-type": content_type}, in_session=in_session)
    assert (found and found[0]) == code


@pytest.mark.parametrize(
    ("error", "sent", "lost", "kind", "says"),
    [
        (MCPError(UNREACHED, "no route"), True, True, ToolsetError, "was not executed: no route"),
        (MCPError(SESSION_GONE, "gone"), True, True, ToolsetError, "was not executed"),
        (MCPError(HEADER_MISMATCH, "stale"), True, False, ToolsetError, "was not executed"),
        (MCPError(REFUSED, "HTTP status 403"), True, True, RejectedError, "was not executed: HTTP status 403"),
        (MCPError(CONNECTION_CLOSED, "closed"), True, True, InDoubtError, "may or may not have taken effect"),
        (MCPError(CONNECTION_CLOSED, "closed"), False, True, ToolsetError, "lost before it was sent"),
        (MCPError(CONNECTION_CLOSED, "slow down"), True, False, MCPToolError, "slow down"),
        (MCPError(-32603, "boom"), True, True, MCPToolError, "boom"),
        (ValueError("odd"), True, True, InDoubtError, "its answer cannot be read: ValueError: odd"),
    ],
)
def test_what_an_error_means_for_the_call(error: Exception, sent: bool, lost: bool, kind: type, says: str) -> None:
    """What was refused was not executed; what was sent and not answered is in doubt."""
    failure = call_failure("srv", "t", error, sent=sent, lost=lost)
    assert type(failure) is kind and says in str(failure)


def test_the_cause_of_a_failed_connection_is_found_in_groups() -> None:
    """The SDK's tasks end in groups of groups: the first single error is told."""
    group = BaseExceptionGroup("outer", [ExceptionGroup("inner", [MCPError(REFUSED, "HTTP status 401")])])
    failure = connect_failure("srv", group)
    assert isinstance(failure, RejectedError) and str(failure) == "toolset srv: cannot be reached: HTTP status 401"
    assert connect_failure("srv", ConnectionError("reset")).retryable


def test_a_schema_that_cannot_be_used_leaves_the_judgement_to_the_server(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is fetched for a reference that leads out of it; it is logged once."""
    for schema in ({"type": "what"}, {"properties": {"a": {"$ref": "https://example.com/x.json"}}}):
        arguments = Arguments("t", schema, LOG)  # pyright: ignore[reportArgumentType]
        assert arguments.bind({"a": 1}) == {"a": 1}
        assert arguments.bind({"a": 1}) == {"a": 1}
    assert len(caplog.records) == 2


def test_problems_of_arguments_say_where() -> None:
    """The model can correct them."""
    schema: Any = {"properties": {"rows": {"items": {"type": "integer"}}}, "additionalProperties": False}
    with pytest.raises(ToolArgumentsError, match=r"rows\.1: 'x' is not of type 'integer'"):
        Arguments("t", schema, LOG).bind({"rows": [1, "x"]})
