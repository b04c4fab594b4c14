"""What goes wrong on the wire of every emulated API, at any byte; and what the emulator saw of it."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from heaveto.testing import Emulator, FakeClock, call, cut, delay, fault, hang, say, settle, usage
from heaveto.testing.emulator import Exchange

USER = {"role": "user", "content": "hi"}
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "openai": ("/v1/chat/completions", {"model": "m", "messages": [USER]}),
    "openai-responses": ("/v1/responses", {"model": "m", "input": "hi"}),
    "anthropic": ("/v1/messages", {"model": "m", "max_tokens": 9, "messages": [USER]}),
    "gemini": ("/v1beta/models/m:generateContent", {"contents": [{"parts": [{"text": "hi"}]}]}),
}
apis = pytest.mark.parametrize("api", REQUESTS)


@asynccontextmanager
async def asked(emulator: Emulator, api: str, *, stream: bool = False) -> AsyncIterator[asyncio.StreamReader]:
    """Ask without any SDK; the socket closes at the end."""
    path, body = REQUESTS[api]
    if stream and api == "gemini":
        path = path.replace("generate", "streamGenerate") + "?alt=sse"
    elif stream:
        body = {**body, "stream": True}
    port = int(emulator.google_url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(content)}\r\n\r\n"
    writer.write(head.encode() + content)
    try:
        async with asyncio.timeout(5):
            yield reader
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def raw(emulator: Emulator, api: str, *, stream: bool = False) -> tuple[bytes, bytes]:
    """Return the head and the body of an answer as they came, chunk marks included."""
    async with asked(emulator, api, stream=stream) as reader:
        before, _, after = (await reader.read()).partition(b"\r\n\r\n")
        return before, after


def payload(chunked: bytes) -> bytes:
    """Return what the chunks of a body hold, up to where it breaks off."""
    content = b""
    while chunked:
        size, _, rest = chunked.partition(b"\r\n")
        length = int(size, 16)
        content += rest[:length]
        chunked = rest[length + 2 :]
    return content


@apis
@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_breaks_off_at_any_byte_of_its_body(api: str, stream: bool) -> None:
    """So many bytes come, the same as of the whole answer, and no end; then the socket closes."""
    async with Emulator(say("Hello", chunks=2)) as emulator:
        whole = payload((await raw(emulator, api, stream=stream))[1])
    for count in (0, 1, 17, len(whole) - 1, len(whole), len(whole) + 9):
        async with Emulator((say("Hello", chunks=2), cut(after_bytes=count))) as emulator:
            head, body = await raw(emulator, api, stream=stream)
            (exchange,) = emulator.exchanges
            await exchange.over()
        assert head.startswith(b"HTTP/1.1 200")
        assert masked(payload(body)) == masked(whole[:count])
        assert not body.endswith(b"0\r\n\r\n")
        assert (exchange.bytes_sent, exchange.completed_at) == (min(count, len(whole)), None)


def masked(answer: bytes) -> bytes:
    """The time stands in some answers."""
    return re.sub(rb'("created(_at)?"|"completed_at"):\d*', b"", answer)


@apis
async def test_an_answer_breaks_off_within_its_head(api: str) -> None:
    """Part of the status line and headers come, and nothing else."""
    for count in (0, 5, 20):
        async with Emulator((say("Hello"), cut(after_head_bytes=count))) as emulator:
            assert await raw(emulator, api) == (b"HTTP/1.1 200 OK\r\ncontent-type"[:count], b"")


@apis
async def test_a_cut_or_a_fault_without_a_status_closes_the_socket(api: str) -> None:
    """Before the first byte and after some."""
    for step in (cut(), fault()):
        async with Emulator(step, (say("Hello"), step)) as emulator:
            assert await raw(emulator, api, stream=True) == (b"", b"")
            head, body = await raw(emulator, api, stream=True)
            assert head and b"Hello" in body and not body.endswith(b"0\r\n\r\n")


@apis
@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 429, 500, 503, 529])
async def test_every_status_has_an_error_body(api: str, status: int) -> None:
    """In the envelope of its provider; one that is given is sent as it is."""
    async with Emulator(fault("no", status=status), fault(status=status, body={"my": "own"})) as emulator:
        head, body = await raw(emulator, api)
        assert head.startswith(f"HTTP/1.1 {status}".encode())
        assert json.loads(payload(body))["error"]["message"] == "no"
        assert json.loads(payload((await raw(emulator, api))[1])) == {"my": "own"}


@apis
async def test_delays_wait_on_the_clock(api: str) -> None:
    """A minute's silence costs no time."""
    clock = FakeClock()
    async with Emulator((say("Hello"), delay(60)), clock=clock) as emulator:
        answer = asyncio.create_task(raw(emulator, api, stream=True))
        exchange = await emulator.exchange(0)
        while not clock.sleepers:
            await settle()
        assert not exchange.is_over
        await clock.advance(60)
        assert b"Hello" in (await answer)[1]


@apis
@pytest.mark.parametrize("early", [False, True])
async def test_a_client_that_gives_up_is_seen(api: str, early: bool) -> None:
    """When its socket closed is noted, before the first byte too; nothing is left running (F51)."""
    async with Emulator(hang(), early_headers=early) as emulator:
        async with asked(emulator, api, stream=True) as reader:
            exchange = await emulator.exchange(0)
            if early:
                assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        async with asyncio.timeout(5):
            await exchange.over()
        assert (exchange.completed_at, exchange.closed_at is not None) == (None, True)
        assert exchange.status == (200 if early else None)
        assert emulator.open_connections == 0


@apis
async def test_what_a_prompt_shares_with_an_earlier_one_is_cached(api: str) -> None:
    """The same prompt again is cached as a whole; numbers that the script gives come first."""
    async with Emulator(say("a"), say("b"), (say("c"), usage(50, 2, cached_tokens=40)), prompt_cache=True) as emulator:
        counts = [cached(json.loads(payload((await raw(emulator, api))[1]))) for _ in range(3)]
    assert counts[0] == 0 < counts[1]
    assert counts[2] == 40


def cached(answer: dict[str, Any]) -> int:
    match answer:
        case {"usage": {"prompt_tokens_details": {"cached_tokens": count}}}:
            return int(count)
        case {"usage": {"input_tokens_details": {"cached_tokens": count}}}:
            return int(count)
        case {"usage": {"cache_read_input_tokens": count}}:
            return int(count)
        case {"usageMetadata": counts}:
            return int(counts.get("cachedContentTokenCount", 0))
    raise AssertionError(answer)


async def test_one_script_serves_all_apis() -> None:
    """Steps are used in the order of the requests; each exchange knows its API, path and model."""
    over: list[Exchange] = []
    async with Emulator(say("1"), call("a"), say("3"), say("4"), on_over=over.append) as emulator:
        for api in REQUESTS:
            await raw(emulator, api)
        emulator.assert_done()
    assert [exchange.api for exchange in emulator.exchanges] == list(REQUESTS)
    assert [exchange.model for exchange in emulator.exchanges] == ["m"] * 4
    assert over == emulator.exchanges


async def test_a_request_beyond_the_script_is_no_success() -> None:
    """An agent that asks once too often, and swallows the refusal, has not done what the script says."""
    async with Emulator(say("1")) as emulator:
        for _ in range(2):
            await raw(emulator, "openai")
    with pytest.raises(AssertionError, match="1 more requests came than the 1 steps of the script"):
        emulator.assert_done()


async def test_a_port_can_be_chosen() -> None:
    """And used again right after."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for _ in range(2):
        async with Emulator(say("x"), port=port) as emulator:
            assert emulator.anthropic_url == f"http://127.0.0.1:{port}"
            assert (await raw(emulator, "anthropic"))[0].startswith(b"HTTP/1.1 200")
