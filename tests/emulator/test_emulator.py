"""The emulator, asked without any SDK."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from typing import Any

import pytest

from heaveto.errors import MissingExtraError, UnknownFormatError
from heaveto.testing.emulator import Emulator, EmulatorThread
from heaveto.testing.script import call, fault, say, usage


def post(base_url: str, body: dict[str, Any]) -> tuple[int, bytes]:
    request = urllib.request.Request(f"{base_url}/chat/completions", json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


USER = {"role": "user", "content": "hi"}


def test_it_serves_programs_that_block() -> None:
    """A thread with a loop of its own answers as the real server does."""
    with EmulatorThread(say("Hello"), (call("a", x=1), usage(3, 4))) as thread:
        status, raw = post(thread.openai_url, {"model": "m", "messages": [USER]})
        assert status == 200
        body = json.loads(raw)
        assert (body["object"], body["model"]) == ("chat.completion", "m")
        assert body["choices"][0]["message"]["content"] == "Hello"
        body = json.loads(post(thread.openai_url, {"model": "m", "messages": [USER]})[1])
        (made,) = body["choices"][0]["message"]["tool_calls"]
        assert made == {"id": "call_1", "type": "function", "function": {"name": "a", "arguments": '{"x":1}'}}
        assert (body["choices"][0]["finish_reason"], body["usage"]["total_tokens"]) == ("tool_calls", 7)
        thread.emulator.assert_done()


def test_a_stream_ends_with_usage_only_if_asked() -> None:
    """As OpenAI does it."""
    asked: dict[str, Any] = {"model": "m", "messages": [USER], "stream": True}
    with EmulatorThread(say("Hi"), strict=False) as thread:
        without = post(thread.openai_url, asked)[1].decode().split("\n\n")
        with_usage = (
            post(thread.openai_url, {**asked, "stream_options": {"include_usage": True}})[1].decode().split("\n\n")
        )
    assert without[-2] == with_usage[-2] == "data: [DONE]"
    assert len(with_usage) == len(without) + 1
    assert json.loads(with_usage[-3][6:])["choices"] == []


def test_a_broken_request_is_refused_and_no_step_is_used() -> None:
    """The refusal carries the provider's status and body; the script waits for a good request."""
    with EmulatorThread(say("Hello")) as thread:
        status, raw = post(thread.openai_url, {"model": "m", "messages": []})
        assert (status, json.loads(raw)["error"]["code"]) == (400, "empty_array")
        assert post(thread.openai_url, {"model": "m", "messages": [USER]})[0] == 200
        with pytest.raises(AssertionError, match="request 0 broke O8"):
            thread.emulator.assert_done()


def test_a_request_beyond_the_script_is_refused() -> None:
    """With words that say why."""
    with EmulatorThread(fault("busy", status=503)) as thread:
        assert post(thread.openai_url, {"model": "m", "messages": [USER]})[0] == 503
        status, raw = post(thread.openai_url, {"model": "m", "messages": [USER]})
        assert (status, json.loads(raw)["error"]["message"][:16]) == (400, "script_exhausted")


async def test_leftovers_are_shown() -> None:
    """A test that asked less than it meant to fails."""
    async with Emulator(say("left")) as emulator:
        pass
    with pytest.raises(AssertionError, match="left"):
        emulator.assert_done()


async def test_a_missing_server_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error tells what to install."""
    monkeypatch.delitem(sys.modules, "heaveto.testing.emulator.loopback", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(MissingExtraError, match=r"heaveto\[emulator\]"):
        async with Emulator():
            pass


def test_outside_of_its_context_it_says_so() -> None:
    """There is no address before it runs."""
    with pytest.raises(RuntimeError, match="only inside"):
        _ = Emulator().base_url


def test_chat_can_have_the_rules_of_other_servers() -> None:
    """What OpenAI takes, DeepSeek may refuse: a call of a thinking model that comes back without its reasoning."""
    made = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    said = [USER, {"role": "assistant", "tool_calls": [made]}, {"role": "tool", "tool_call_id": "c", "content": "1"}]
    for server, status in (("openai", 200), ("deepseek", 400)):
        with EmulatorThread(say("Hello"), chat=server) as thread:
            assert post(thread.openai_url, {"model": "m", "messages": said})[0] == status
            assert thread.emulator.exchanges[0].api == server


def test_wrong_options_are_told_at_once() -> None:
    """Not within the answer to some request."""
    with pytest.raises(UnknownFormatError, match="antropic"):
        Emulator(rules={"antropic": {}})
    with pytest.raises(TypeError, match="pre_fill"):
        Emulator(rules={"anthropic": {"pre_fill": True}})
    with pytest.raises(UnknownFormatError, match="deepsick"):
        Emulator(chat="deepsick")


def test_a_step_that_fails_by_itself_is_told_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    """The client sees a status 500, which it may take for the provider's."""
    with EmulatorThread(lambda body: say(body["no such key"])) as thread:
        assert post(thread.openai_url, {"model": "m", "messages": [USER]})[0] == 500
        with pytest.raises(AssertionError, match="KeyError"):
            thread.emulator.assert_done()
    assert "no such key" in caplog.text
