"""The Gemini connector, over real HTTP on loopback."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.models.raw_server import HEAD, RawServer, chunk, event, events, whole

from heaveto.agents.llm import LlmAgent
from heaveto.core.request import Generation, ModelRequest, ToolDeclaration, Turn
from heaveto.core.wire_names import wants_signatures
from heaveto.errors import ModelError
from heaveto.events.contents import FunctionCall, FunctionResponse, Text
from heaveto.events.records import Usage
from heaveto.ids import SystemIds
from heaveto.models.assemble import Assembled, Assembler
from heaveto.models.base import TextChunk
from heaveto.models.gemini import Gemini
from heaveto.models.prices import Prices
from heaveto.runner.runner import Runner
from heaveto.testing import Emulator, call, hang, say, think

ASK = ModelRequest(
    turns=[Turn("user", (Text(text="hi"),))],
    instruction="Be brief.",
    tools=(ToolDeclaration("look", "looks", {"type": "object", "properties": {}}),),
    generation=Generation(temperature=0.5),
)
CLOSED_WITHIN_SECONDS = 1.0
SPENT = {"promptTokenCount": 10, "candidatesTokenCount": 4, "thoughtsTokenCount": 2, "cachedContentTokenCount": 5}


def said(*parts: dict[str, Any], finish: str = "", **more: Any) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    return {
        "candidates": [{**candidate, "finishReason": finish} if finish else candidate],
        "modelVersion": "gemini-3-x",
        **more,
    }


DONE = said({"text": "fine"}, finish="STOP", usageMetadata=SPENT)


async def ask(model: Gemini, request: ModelRequest = ASK) -> Assembled:
    assembler = Assembler(SystemIds(), provider="gemini")
    async for part in model.generate(request):
        assembler.feed(part)
    return assembler.finish()


def connect(server: RawServer, **options: Any) -> Gemini:
    return Gemini("gemini-3-pro", api_key="k", base_url=server.url, **options)


async def refused(answer: Any, **options: Any) -> ModelError:
    async with RawServer(answer) as server:
        model = connect(server, **options)
        with pytest.raises(ModelError) as error:
            await ask(model)
        await model.aclose()
        assert len(server.requests) == 1
    return error.value


@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_arrives_by_the_address_and_the_key_of_the_sdk(stream: bool) -> None:
    """The same answer comes out of a stream and of a whole response."""
    call = {"functionCall": {"name": "look", "id": "c1", "args": {"at": "ü"}}, "thoughtSignature": "c2ln+/=="}
    first, last = (
        said({"text": "Hm.", "thought": True}, {"text": "I look."}),
        said(call, finish="STOP", usageMetadata=SPENT),
    )
    all_parts = said({"text": "Hm.", "thought": True}, {"text": "I look."}, call, finish="STOP", usageMetadata=SPENT)
    async with RawServer(events(first, last) if stream else whole(all_parts)) as server:
        model = connect(server, stream=stream, prices=Prices(input=2.0, output=10.0, cached_input=1.0))
        got = await ask(model)
        await model.aclose()
    thought, text, made = got.parts
    assert (thought.text, text.text) == ("Hm.", "I look.")  # type: ignore[union-attr]
    assert isinstance(made, FunctionCall)
    assert (made.name, made.args, made.provider_id) == ("look", {"at": "ü"}, "c1")
    assert made.data == {"thoughtSignature": "c2ln+/=="}
    assert got.usage == Usage(10, 6, cached_tokens=5, reasoning_tokens=2, cost=(5 * 2.0 + 5 * 1.0 + 6 * 10.0) / 1e6)
    assert got.end is not None and (got.end.reason, got.end.model, got.is_cut) == ("STOP", "gemini-3-x", False)
    (request,) = server.requests
    way = "streamGenerateContent?alt=sse" if stream else "generateContent"
    assert request.path == f"/v1beta/models/gemini-3-pro:{way}"
    assert request.headers["x-goog-api-key"] == "k" and "google-genai-sdk" in request.headers["x-goog-api-client"]
    assert request.body["contents"] == [{"role": "user", "parts": [{"text": "hi"}]}]
    assert request.body["generationConfig"] == {"temperature": 0.5}


async def test_what_came_goes_back_verbatim() -> None:
    """Signatures on calls, on text and on empty text, fields of tomorrow: each in its place (F26, F27)."""
    parts = [
        {"text": "So:", "thoughtSignature": "dGV4dA"},
        {
            "functionCall": {"name": "look", "id": "x.y/1", "args": {"aB": {"c_d": 1.5}}},
            "thoughtSignature": "-_8=",
            "z": 1,
        },
        {"functionCall": {"name": "look", "id": "x.y/2", "args": {}}},
        {"text": "", "thoughtSignature": "ZW1wdHk="},
    ]
    async with RawServer(events(said(*parts, finish="STOP")), events(DONE)) as server:
        model = connect(server)
        answer = await ask(model)
        calls = [part for part in answer.parts if isinstance(part, FunctionCall)]
        sent = tuple(
            FunctionCall(
                call_id=part.provider_id or "", name=part.name, args=part.args, provider="gemini", data=part.data
            )
            if isinstance(part, FunctionCall)
            else part
            for part in answer.parts
        )
        results = tuple(FunctionResponse(call_id=part.provider_id or "", name="look", response={}) for part in calls)
        await ask(model, ModelRequest(turns=[*ASK.turns, Turn("model", sent), Turn("tool", results)]))
        await model.aclose()
    contents = server.requests[1].body["contents"]
    assert contents[1] == {"role": "model", "parts": parts}
    assert [part["functionResponse"]["id"] for part in contents[2]["parts"]] == ["x.y/1", "x.y/2"]


async def test_vertex_is_asked_with_its_credentials_and_addresses() -> None:
    """The token is the SDK's, and anything else that its client can be told (F51 holds there as well)."""
    from google.auth.credentials import Credentials

    class Given(Credentials):
        def refresh(self, request: object) -> None:
            self.token = "tok"

    async with RawServer(events(DONE)) as server:
        options = {"credentials": Given(), "http_options": {"headers": {"x-own": "1"}}}  # type: ignore[no-untyped-call]
        model = Gemini("gemini-3-pro", project="p", location="l", base_url=server.url, client_options=options)
        assert (await ask(model)).parts == (Text(text="fine"),)
        await model.aclose()
    (request,) = server.requests
    where = "/v1beta1/projects/p/locations/l/publishers/google/models/gemini-3-pro:streamGenerateContent?alt=sse"
    assert request.path == where
    assert (request.headers["authorization"], request.headers["x-own"]) == ("Bearer tok", "1")


async def test_an_own_http_client_is_used_and_left_open() -> None:
    """Proxies and certificates come in this way."""
    import httpx

    async with RawServer(events(DONE)) as server, httpx.AsyncClient() as http:
        model = connect(server, http=http)
        await ask(model)
        await model.aclose()
        assert not http.is_closed


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("status", "retryable"),
    [(429, True), (500, True), (503, True), (504, True), (400, False), (403, False), (404, False)],
)
async def test_statuses_become_model_errors(status: int, retryable: bool, stream: bool) -> None:
    """Whether to try again is data; the connector itself never does."""
    body = {"error": {"code": status, "message": "no", "status": "WORD"}}
    error = await refused(whole(body, status=status), stream=stream)
    assert (str(error), error.status, error.retryable, error.body) == ("no (WORD)", status, retryable, body)


async def test_the_wait_that_gemini_asks_for_is_kept() -> None:
    """It stands in the body, and comes before a proxy's header."""
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}
    body = [{"error": {"code": 429, "message": "slow", "status": "RESOURCE_EXHAUSTED", "details": [{}, info]}}]
    error = await refused(whole(body, status=429, headers="retry-after: 3\r\n"))
    assert (error.retryable, error.retry_after_seconds) == (True, 34.5)
    plain = await refused(whole(b"<html>busy", status=503, headers="retry-after: 3\r\n"))
    assert (str(plain), plain.retryable, plain.retry_after_seconds) == ("<html>busy", True, 3.0)


async def test_a_quota_of_the_day_is_final_although_it_is_429() -> None:
    """Waiting does not help before tomorrow."""
    quota = {"violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]}
    body = {"error": {"code": 429, "message": "enough", "details": [quota]}}
    assert not (await refused(whole(body, status=429))).retryable


@pytest.mark.parametrize(
    "broken",
    [
        ["break"],
        [b"5\r\nda", "break"],
        [chunk(b'data: {"candi'), b"0\r\n\r\n"],
        [event({"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}}), b"0\r\n\r\n"],
        [chunk(b'[{"error": {"code": 503,\n"message": "overloaded"}}]\n'), b"0\r\n\r\n"],
    ],
)
async def test_a_stream_that_breaks_off_is_an_error_after_what_came(broken: list[Any]) -> None:
    """What was received before it was handed on (F30, F61)."""
    async with RawServer([HEAD, event(said({"text": "a"})), event(said({"text": "b"})), *broken]) as server:
        model = connect(server)
        received: list[object] = []
        with pytest.raises(ModelError) as error:
            async for part in model.generate(ASK):
                received.append(part)
        await model.aclose()
    assert received == [TextChunk("a"), TextChunk("b")]
    assert error.value.retryable


async def test_a_connection_that_breaks_behind_the_end_is_no_error() -> None:
    """Nothing of the answer is missing then."""
    async with RawServer([HEAD, event(DONE), "break"]) as server:
        model = connect(server)
        assert (await ask(model)).parts == (Text(text="fine"),)
        await model.aclose()


async def test_line_separators_within_texts_do_not_split_events() -> None:
    """They stand unescaped in the JSON of some servers, and bytes of one character arrive apart."""
    raw = 'data: {"candidates": [{"content": {"parts": [{"text": "a\u2028b\x85ü"}]}, "finishReason": "STOP"}]}\n\n'
    async with RawServer([HEAD, *(chunk(bytes([byte])) for byte in raw.encode()), b"0\r\n\r\n"]) as server:
        model = connect(server)
        assert (await ask(model)).parts == (Text(text="a\u2028b\x85ü"),)
        await model.aclose()


async def test_googles_own_stream_leaves_the_socket_open_when_it_is_closed() -> None:
    """Why the SDK does not receive our answers: if this fails, it has become better."""
    import httpx
    from google import genai

    async with RawServer([HEAD, event(said({"text": "Hel"})), "hang"]) as server, httpx.AsyncClient() as http:
        options: Any = {"base_url": server.url, "httpx_async_client": http}
        client = genai.Client(api_key="k", http_options=options)
        stream: Any = await client.aio.models.generate_content_stream(model="gemini-3-pro", contents="hi")
        await anext(stream)
        await stream.aclose()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(server.closed.get(), 0.2)
        client.close()


async def test_settings_and_tools_of_gemini_itself_stand_beside_ours() -> None:
    """Thoughts are asked for in its own words, and its own tools need no function."""
    extra = {"generationConfig": {"thinkingConfig": {"includeThoughts": True}}, "toolConfig": {"own": True}}
    generation = Generation(temperature=0.5, tool_choice="required", extra=extra)
    async with RawServer(events(DONE), events(DONE)) as server:
        model = connect(server, provider_tools=[{"googleSearch": {}}])
        await ask(model, ModelRequest(turns=ASK.turns, tools=ASK.tools, generation=generation))
        await ask(model, ModelRequest(turns=ASK.turns))
        await model.aclose()
    ours, bare = (request.body for request in server.requests)
    assert [list(tool) for tool in ours["tools"]] == [["functionDeclarations"], ["googleSearch"]]
    assert ours["generationConfig"] == {"temperature": 0.5, "thinkingConfig": {"includeThoughts": True}}
    assert ours["toolConfig"] == {"functionCallingConfig": {"mode": "ANY"}, "own": True}
    assert bare["tools"] == [{"googleSearch": {}}] and "toolConfig" not in bare


async def test_requests_at_the_same_time_keep_apart() -> None:
    """The heads that the SDK writes belong to who asked for them."""
    async with RawServer(events(DONE), events(DONE), events(DONE)) as server:
        model = connect(server)
        answers = await asyncio.gather(*(ask(model) for _ in range(3)))
        assert [answer.parts for answer in answers] == [(Text(text="fine"),)] * 3
        await model.aclose()


async def test_a_tool_whose_name_gemini_does_not_take_is_called_by_its_own() -> None:
    """The name that was sent in its place is turned back (G18)."""
    call = {"functionCall": {"name": "_2fa", "args": {}}}
    async with RawServer(events(said(call, finish="STOP"))) as server:
        model = connect(server)
        request = ModelRequest(turns=ASK.turns, tools=(ToolDeclaration("2fa", "", {"type": "object"}),))
        (made,) = (await ask(model, request)).parts
        await model.aclose()
    assert isinstance(made, FunctionCall) and made.name == "2fa"


@pytest.mark.parametrize(
    ("model", "signed"),
    [
        ("gemini-3-pro", True),
        ("models/gemini-3.5-flash-lite", True),
        ("gemini-flash-latest", True),
        ("gemini-2.5-flash", False),
        ("gemma-3-27b-it", False),
        ("tunedModels/mine", False),
    ],
)
def test_signatures_are_wanted_from_gemini_3_on(model: str, signed: bool) -> None:
    """Older models neither give nor want them (G10, G13)."""
    assert wants_signatures(model) is signed


@pytest.mark.parametrize("options", [{}, {"project": "p"}])
async def test_missing_credentials_are_a_final_error(monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]) -> None:
    """Trying again does not help."""
    for name in ("GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_GENAI_USE_VERTEXAI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("HOME", "/nonexistent")
    with pytest.raises(ModelError, match=r"API key|credentials") as error:
        await ask(Gemini("gemini-3-pro", **options))
    assert not error.value.retryable


async def test_a_conversation_with_calls_keeps_the_rules_of_gemini_3() -> None:
    """Signed thoughts, signed calls, a stop in mid-answer and what follows it: nothing is refused (P1, G1 to G10)."""

    def look(at: str) -> str:
        return f"nothing at {at}"

    steps = (
        (think("Hm.", signature="c2ln"), say("Both:", chunks=2), call("look", at="a"), call("look", at="b")),
        (say("Not"), hang()),
        call("look", at="c"),
        (think("So.", signature="ZW5k"), say("Nothing anywhere.")),
        say("Gladly."),
    )
    async with Emulator(*steps, strict_unconfirmed=True, rules={"gemini": {"signatures": True}}) as emulator:
        model = Gemini("gemini-3-pro", api_key="k", base_url=emulator.google_url)
        async with Runner(LlmAgent(name="a", model=model, tools=[look])) as runner:
            run = await runner.start(new_message="look", user_id="u", session_id="s")
            await emulator.exchange(1)
            async for item in run.stream():
                if getattr(item, "text", "") == "Not":
                    break
            await run.cancel()
            await asyncio.wait_for(emulator.exchanges[1].over(), CLOSED_WITHIN_SECONDS)
            assert emulator.exchanges[1].closed_at is not None
            for message, answer in (("and?", "Nothing anywhere."), ("thanks", "Gladly.")):
                run = await runner.start(new_message=message, user_id="u", session_id="s")
                assert await run.result() == answer
        await model.aclose()
        emulator.assert_done()
        sent = emulator.exchanges[2].body["contents"]
    calls = [part for content in sent for part in content["parts"] if "functionCall" in part]
    assert [bool(part.get("thoughtSignature")) for part in calls] == [True, False]
