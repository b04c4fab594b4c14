"""The emulated Gemini, read by Google's own SDK."""

from __future__ import annotations

import base64
import json
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from google import genai
from google.genai import errors, types

from heaveto.events.contents import Opaque
from heaveto.testing import Emulator, EmulatorThread, call, fault, finish, give, raw_call, say, think, usage

MODEL = "gemini-any"
TURN = (
    think("Let me see.", signature="c2ln"),
    say("Both: ", chunks=2),
    call("a", x=1),
    call("b"),
    usage(30, 12, cached_tokens=10, reasoning_tokens=4),
)


@asynccontextmanager
async def client(emulator: Emulator) -> AsyncIterator[genai.client.AsyncClient]:
    async with httpx.AsyncClient() as http:  # its own client of another library warns at its birth
        options = types.HttpOptions(base_url=emulator.google_url, httpx_async_client=http)
        api = genai.Client(api_key="any", http_options=options)
        try:
            yield api.aio
        finally:
            api.close()


async def answers(api: genai.client.AsyncClient, stream: bool, **more: Any) -> list[types.GenerateContentResponse]:
    asked: dict[str, Any] = {"model": MODEL, "contents": "hi", **more}
    if not stream:
        return [await api.models.generate_content(**asked)]
    return [chunk async for chunk in await api.models.generate_content_stream(**asked)]


def parts(found: list[types.GenerateContentResponse]) -> list[types.Part]:
    return [part for one in found for part in (one.candidates[0].content.parts or [])]  # type: ignore[index, union-attr]


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_of_all_kinds_is_read_by_the_sdk(stream: bool) -> None:
    """Streamed and whole: thoughts, text with the signature of the thought, calls without ids, counts."""
    async with Emulator(TURN) as emulator, client(emulator) as api:
        found = await answers(api, stream)
        emulator.assert_done()
    got = parts(found)
    assert "".join(part.text or "" for part in got if part.thought) == "Let me see."
    assert "".join(part.text or "" for part in got if not part.thought) == "Both: "
    assert next(part.thought_signature for part in got if part.text and not part.thought) == b"sig"
    first, second = [part for part in got if part.function_call]
    assert (first.function_call.name, first.function_call.args, first.function_call.id) == ("a", {"x": 1}, None)  # type: ignore[union-attr]
    assert (bool(first.thought_signature), second.thought_signature) == (True, None)
    assert found[-1].candidates[0].finish_reason == types.FinishReason.STOP  # type: ignore[index]
    spent = found[-1].usage_metadata
    assert spent is not None
    assert (spent.prompt_token_count, spent.cached_content_token_count, spent.thoughts_token_count) == (30, 10, 4)
    assert (spent.candidates_token_count, spent.total_token_count) == (8, 42)


async def test_calls_have_ids_where_it_is_asked_for() -> None:
    """The Gemini API has begun to give them; Vertex does not."""
    async with Emulator(call("a"), gemini_call_ids=True) as emulator, client(emulator) as api:
        assert parts(await answers(api, stream=True))[0].function_call.id == "call_1"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("word", "reason"), [("length", "MAX_TOKENS"), ("refusal", "SAFETY"), ("RECITATION", "RECITATION")]
)
async def test_finish_reasons(word: str, reason: str) -> None:
    """Gemini's words, also where the script has those of another provider."""
    async with Emulator((say("So"), finish(word))) as emulator, client(emulator) as api:
        assert (await answers(api, stream=True))[-1].candidates[0].finish_reason == reason  # type: ignore[index]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_that_is_no_json_is_not_made(stream: bool) -> None:
    """Gemini gives no half call; it says how it failed."""
    async with Emulator(raw_call("a", '{"x": ')) as emulator, client(emulator) as api:
        found = await answers(api, stream)
    assert not [part for part in parts(found) if part.function_call]
    assert found[-1].candidates[0].finish_reason == "MALFORMED_FUNCTION_CALL"  # type: ignore[index]


async def test_given_parts_are_sent_verbatim() -> None:
    """What a part carries of Gemini's own is what the SDK gets."""
    own = {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": base64.b64encode(b"x").decode()}
    async with Emulator(give(Opaque(provider="gemini", data=own))) as emulator, client(emulator) as api:
        part = parts(await answers(api, stream=True))[0]
    assert (part.executable_code.code, part.thought_signature) == ("1", b"x")  # type: ignore[union-attr]


async def test_faults() -> None:
    """Before the answer an HTTP error that asks for patience in its body; within it an error in the stream (F63)."""
    slow = fault("slow down", status=429, retry_after_seconds=3)
    async with Emulator(slow, (say("He"), fault("gone", status=503))) as emulator, client(emulator) as api:
        with pytest.raises(errors.ClientError) as caught:
            await answers(api, stream=True)
        seen = []
        with pytest.raises(errors.ServerError, match="gone"):
            async for chunk in await api.models.generate_content_stream(model=MODEL, contents="hi"):
                seen.append(chunk.text)
    assert (caught.value.code, caught.value.status, seen) == (429, "RESOURCE_EXHAUSTED", ["He"])
    assert caught.value.details["error"]["details"][0]["retryDelay"] == "3s"


async def test_a_broken_history_is_refused_in_googles_words() -> None:
    """And no step is used; with signatures switched on, an unsigned call is refused too (G10)."""
    asked = [
        {"role": "user", "parts": [{"text": "hi"}]},
        {"role": "model", "parts": [{"function_call": {"name": "a", "args": {}}}]},
    ]
    result = {"role": "user", "parts": [{"function_response": {"name": "a", "response": {}}}]}
    async with Emulator(say("ok")) as emulator, client(emulator) as api:
        with pytest.raises(errors.ClientError, match="number of function response parts"):
            await answers(api, stream=False, contents=[*asked, {"role": "user", "parts": [{"text": "and?"}]}])
        assert (await answers(api, stream=False, contents=[*asked, result]))[0].text == "ok"
    async with Emulator(say("ok"), rules={"gemini": {"signatures": True}}) as emulator, client(emulator) as api:
        with pytest.raises(errors.ClientError, match="missing a thought_signature"):
            await answers(api, stream=False, contents=[*asked, result])


async def test_models_and_counts_are_answered() -> None:
    """Without the script; a model that is not there is a 404 in Google's words."""
    async with Emulator(models=["gemini-a"]) as emulator, client(emulator) as api:
        assert [model.name async for model in await api.models.list()] == ["models/gemini-a"]
        assert ((await api.models.count_tokens(model="gemini-a", contents="hello")).total_tokens or 0) > 5
        with pytest.raises(errors.ClientError, match="models/gemini-any is not found for API version v1beta"):
            await answers(api, stream=False)


def test_a_stream_is_an_array_unless_events_are_asked_for() -> None:
    """As REST has it: elements of one JSON array, of errors too."""
    body = json.dumps({"contents": [{"parts": [{"text": "hi"}]}]}).encode()
    with EmulatorThread((say("Hello", chunks=2)), (say("He"), fault("gone", status=500))) as thread:
        url = f"{thread.google_url}/v1beta/models/any:streamGenerateContent"
        for _ in range(2):
            with urllib.request.urlopen(url, body, timeout=5) as response:
                assert response.headers["content-type"].startswith("application/json")
                last = json.loads(response.read())[-1]
        with pytest.raises(urllib.error.HTTPError) as caught, urllib.request.urlopen(url, b"{}", timeout=5):
            pass
        with caught.value as refused:
            assert json.loads(refused.read())[0]["error"]["status"] == "INVALID_ARGUMENT"
    assert last["error"]["status"] == "INTERNAL"


def test_vertex_paths_are_known() -> None:
    """The same API under projects, locations and publishers."""
    body = json.dumps({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}).encode()
    with EmulatorThread(say("Hello")) as thread:
        place = "v1beta1/projects/p/locations/global/publishers/google/models/gemini-any"
        with urllib.request.urlopen(f"{thread.google_url}/{place}:generateContent", body, timeout=5) as response:
            answer = json.loads(response.read())
    assert answer["candidates"][0]["content"] == {"parts": [{"text": "Hello"}], "role": "model"}
    assert (answer["modelVersion"], thread.emulator.exchanges[0].api) == ("gemini-any", "gemini")


async def test_signatures_must_be_those_that_were_given() -> None:
    """With strict signatures one that this model has not given is refused (G12)."""
    async with Emulator(call("a"), say("ok"), strict_signatures=True) as emulator, client(emulator) as api:
        made = parts(await answers(api, stream=True))[0]
        result = types.Part(function_response=types.FunctionResponse(name="a", response={}))
        for signature, is_taken in ((b"foreign", False), (made.thought_signature, True)):
            signed = made.model_copy(update={"thought_signature": signature})
            contents = [types.Content(role="user", parts=[types.Part(text="hi")])]
            contents += [types.Content(role="model", parts=[signed]), types.Content(role="user", parts=[result])]
            if is_taken:
                assert (await answers(api, stream=False, contents=contents))[0].text == "ok"
            else:
                with pytest.raises(errors.ClientError, match="signature"):
                    await answers(api, stream=False, contents=contents)
