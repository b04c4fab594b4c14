"""The emulator against clients that send nonsense, or go away: it judges what came, and its script stays whole."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from heaveto.testing import Emulator, say, think

USER = {"role": "user", "content": "hi"}
TEXT = {"type": "text", "text": "hi"}
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "openai": ("/v1/chat/completions", {"model": "m", "messages": [USER]}),
    "openai-responses": ("/v1/responses", {"model": "m", "input": "hi"}),
    "anthropic": ("/v1/messages", {"model": "m", "max_tokens": 9, "messages": [USER]}),
    "gemini": ("/v1beta/models/m:generateContent", {"contents": [{"parts": [{"text": "hi"}]}]}),
}
apis = pytest.mark.parametrize("api", REQUESTS)


def request(path: str, content: bytes, *, length: int | None = None, method: str = "POST") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
    return f"{head}content-length: {len(content) if length is None else length}\r\n\r\n".encode() + content


async def answer_to(emulator: Emulator, raw: bytes) -> tuple[int, bytes]:
    """Send bytes; return the status and all that came back."""
    port = int(emulator.google_url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(raw)
    received = await reader.read()
    writer.close()
    return int(received.split(b" ", 2)[1]), received


@apis
async def test_a_request_that_never_came_whole_plays_no_step(api: str) -> None:
    """A client that is stopped while it sends has asked nothing: the next request gets the first step."""
    path, body = REQUESTS[api]
    content = json.dumps(body).encode()
    async with Emulator(say("first")) as emulator:
        port = int(emulator.google_url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request(path, content, length=10_000))
        writer.write_eof()
        await reader.read()
        writer.close()
        assert emulator.exchanges == []
        status, received = await answer_to(emulator, request(path, content))
        assert (status, b"first" in received) == (200, True)
        emulator.assert_done()


WRONG: list[Any] = [5, {}, [None], [[]], [5], [{"type": [], "role": [], "content": {}, "parts": 5}]]


@apis
@pytest.mark.parametrize("value", WRONG)
async def test_fields_of_any_type_are_judged(api: str, value: Any) -> None:
    """Whatever stands in a body, it is refused by a rule or answered: no step is blamed, and nothing fails in here."""
    path, body = REQUESTS[api]
    async with Emulator(say("ok")) as emulator:
        status, _ = await answer_to(emulator, request(path, json.dumps(dict.fromkeys(body, value)).encode()))
        assert status in (200, 400)
        (exchange,) = emulator.exchanges
        assert (exchange.violation is None) == (status == 200)


@apis
@pytest.mark.parametrize("content", [b"", b"{oops", b"[]", b'{"model":"\xff"}', b'{"a":' + b"[" * 100_000])
async def test_a_body_that_is_no_object_is_refused(api: str, content: bytes) -> None:
    """Also one that is nested more deeply than anyone can follow."""
    path, _ = REQUESTS[api]
    async with Emulator(say("ok")) as emulator:
        status, _ = await answer_to(emulator, request(path, content))
        assert status == 400
        assert emulator.exchanges[0].violation is not None


@pytest.mark.parametrize("items", [[5], ["a"], [None]])
async def test_items_of_a_conversation_are_objects(items: list[Any]) -> None:
    """When it is made as well as later."""
    async with Emulator() as emulator:
        made = request("/v1/conversations", json.dumps({"items": items}).encode())
        assert (await answer_to(emulator, made))[0] == 400
        _, received = await answer_to(emulator, request("/v1/conversations", b"{}"))
        assert b"conv_1" in received
        added = request("/v1/conversations/conv_1/items", json.dumps({"items": items}).encode())
        assert (await answer_to(emulator, added))[0] == 400


async def test_one_signature_may_sign_several_thoughts() -> None:
    """Scripts sign as they like: a thought that was given is not refused because of another one."""
    thoughts = [{"type": "thinking", "thinking": words, "signature": "c2ln"} for words in ("first", "second")]
    turns = [turn for thought in thoughts for turn in (USER, {"role": "assistant", "content": [thought, TEXT]})]
    steps = [(think(str(thought["thinking"]), signature="c2ln"), say("hi")) for thought in thoughts]
    async with Emulator(*steps, say("ok"), strict_signatures=True) as emulator:
        for messages in ([USER], [*turns[:2], USER], [*turns, USER]):
            body = {"model": "m", "max_tokens": 9, "messages": messages}
            status, _ = await answer_to(emulator, request("/v1/messages", json.dumps(body).encode()))
            assert status == 200
        emulator.assert_done()
