"""The Chat Completions connector, over real HTTP against the emulator."""

from __future__ import annotations

from typing import Any

import pytest

from heaveto.core.request import Generation, ModelRequest, ToolDeclaration, Turn
from heaveto.errors import ModelError
from heaveto.events.contents import FunctionCall, FunctionResponse, Text, Thought
from heaveto.events.records import Usage
from heaveto.ids import SystemIds
from heaveto.models.assemble import Assembled, Assembler
from heaveto.models.base import CallChunk, TextChunk
from heaveto.models.openai_chat import OpenAIChat
from heaveto.models.prices import Prices
from heaveto.models.sdk import retry_after_seconds
from heaveto.models.wire.openai_chat_answer import ChatAnswerReader
from heaveto.testing.emulator import Emulator
from heaveto.testing.script import call, fault, raw_call, say, think, usage

ASK = ModelRequest(
    turns=[Turn("user", (Text(text="hi"),))],
    instruction="Be brief.",
    tools=(ToolDeclaration("look", "looks", {"type": "object", "properties": {}}),),
    generation=Generation(temperature=0.5),
)


class Clock:
    """A clock that stands still."""

    def time(self) -> float:
        return 1_000_000_000.0

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing sleeps here")


async def ask(model: OpenAIChat, request: ModelRequest = ASK) -> Assembled:
    assembler = Assembler(SystemIds(), provider="openai")
    async for chunk in model.generate(request):
        assembler.feed(chunk)
    return assembler.finish()


def connect(emulator: Emulator, **options: Any) -> OpenAIChat:
    return OpenAIChat("m", base_url=emulator.openai_url, **options)


@pytest.mark.parametrize("stream", [True, False])
async def test_text_thought_calls_and_usage_arrive(stream: bool) -> None:
    """The same answer comes out of a stream and of a whole completion."""
    answer = (
        think("hm"),
        say("Both:", chunks=3),
        call("look", at="ü"),
        call("look", at="b"),
        usage(10, 4, cached_tokens=5),
    )
    async with Emulator(answer) as emulator:
        model = connect(emulator, stream=stream, prices=Prices(input=2.0, output=10.0, cached_input=1.0))
        got = await ask(model)
        await model.aclose()
    calls = [part for part in got.parts if isinstance(part, FunctionCall)]
    assert got.parts[:2] == (Thought(text="hm", provider="openai"), Text(text="Both:"))
    assert [(made.provider_id, made.name, made.args) for made in calls] == [
        ("call_1", "look", {"at": "ü"}),
        ("call_2", "look", {"at": "b"}),
    ]
    assert got.usage == Usage(10, 4, cached_tokens=5, cost=(5 * 2.0 + 5 * 1.0 + 4 * 10.0) / 1e6)
    assert got.end is not None and (got.end.reason, got.end.model, got.is_cut) == ("tool_calls", "m", False)
    (exchange,) = emulator.exchanges
    assert exchange.body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    assert (exchange.body["temperature"], exchange.body["tools"][0]["function"]["name"]) == (0.5, "look")
    emulator.assert_done()


async def test_a_whole_conversation_keeps_the_providers_rules() -> None:
    """Calls and results of an earlier turn are accepted by the strict server (P1)."""
    async with Emulator(say("fine"), strict_unconfirmed=True) as emulator:
        model = connect(emulator)
        turns = [
            *ASK.turns,
            Turn(
                "model", (FunctionCall(call_id="a.b:c", name="look.at"), FunctionCall(call_id="Ab3dEf9hI", name="look"))
            ),
            Turn(
                "tool",
                (
                    FunctionResponse(call_id="a.b:c", name="look.at", response={}),
                    FunctionResponse(call_id="Ab3dEf9hI", name="look", response={"x": 1}),
                ),
            ),
        ]
        assert (await ask(model, ModelRequest(turns=turns))).parts == (Text(text="fine"),)
        await model.aclose()
    emulator.assert_done()


async def test_a_broken_request_is_refused_with_the_providers_words() -> None:
    """The emulator judges like the provider, and the error is final."""
    async with Emulator(say("never")) as emulator:
        model = connect(emulator)
        turns = [*ASK.turns, Turn("model", (FunctionCall(call_id="c1", name="look"),)), *ASK.turns]
        with pytest.raises(ModelError, match="must be followed by tool messages") as error:
            await ask(model, ModelRequest(turns=turns))
        await model.aclose()
    assert (error.value.status, error.value.retryable, error.value.body["param"]) == (400, False, "messages.[2].role")
    assert emulator.exchanges[0].violation is not None and emulator.exchanges[0].violation.rule == "O1"


async def test_an_exhausted_quota_is_final_although_it_is_429() -> None:
    """Waiting does not help there."""
    no_money = fault("pay", status=429)
    no_money.error.body = {"message": "pay", "type": "insufficient_quota", "code": "insufficient_quota"}
    async with Emulator(no_money) as emulator:
        model = connect(emulator)
        with pytest.raises(ModelError) as error:
            await ask(model)
        await model.aclose()
    assert not error.value.retryable


@pytest.mark.parametrize(("args", "defect"), [("[1]", "invalid"), ('{"a":', "invalid"), ("", "")])
async def test_arguments_are_judged_strictly(args: str, defect: str) -> None:
    """Malformed ones make the call invalid, none at all are an empty object (F31)."""
    async with Emulator(raw_call("look", args)) as emulator:
        model = connect(emulator)
        (part,) = (await ask(model)).parts
        await model.aclose()
    assert isinstance(part, FunctionCall) and (part.defect, part.args) == (defect, {})


async def test_an_own_client_is_used_and_left_open() -> None:
    """Azure and proxies come in this way; retries stay ours."""
    from openai import AsyncOpenAI

    async with Emulator(fault(status=500), say("a")) as emulator:
        client = AsyncOpenAI(api_key="k", base_url=emulator.openai_url, max_retries=5)
        model = OpenAIChat("m", client=client)
        with pytest.raises(ModelError):
            await ask(model)
        assert len(emulator.exchanges) == 1
        await model.aclose()
        assert not client.is_closed()
        assert (await ask(model)).parts == (Text(text="a"),)
        await client.close()


async def test_azures_client_finds_the_model_in_the_body() -> None:
    """It makes a path of it, so it must get the body and not its bytes."""
    from openai import AsyncAzureOpenAI

    async with Emulator() as emulator:
        client = AsyncAzureOpenAI(azure_endpoint=emulator.anthropic_url, api_key="k", api_version="v")
        with pytest.raises(ModelError):
            await ask(OpenAIChat("some-model", client=client))
        await client.close()
    assert emulator.others[0].path == "/openai/deployments/some-model/chat/completions"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-1"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Sun, 09 Sep 2001 01:46:50 GMT"}, 10.0),
        ({"retry-after": "Fri, 01 Jan 2100 00:00:30 GMT", "date": "Fri, 01 Jan 2100 00:00:00 GMT"}, 30.0),
    ],
)
def test_retry_after_is_seconds_or_a_date(headers: dict[str, str], seconds: float | None) -> None:
    """A date counts against the server's clock if it tells it."""
    assert retry_after_seconds(headers, Clock()) == seconds


def test_unknown_fields_are_kept() -> None:
    """Of the message in the end's data, of a call in its own; streamed ones grow."""
    reader = ChatAnswerReader()
    first = {
        "content": None,
        "details": ["a"],
        "tool_calls": [{"index": 0, "id": "x", "function": {"name": "t"}, "sig": "s"}],
    }
    (chunk,) = reader.feed({"id": "1", "choices": [{"delta": first}]})
    reader.feed({"choices": [{"delta": {"details": ["b"]}, "finish_reason": "stop"}]})
    assert isinstance(chunk, CallChunk) and chunk.data == {"sig": "s"}
    (end,) = reader.end()
    assert end.data == {"id": "1", "details": ["a", "b"]}  # type: ignore[union-attr]


async def test_a_missing_key_is_a_final_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trying again does not help."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ModelError, match="OPENAI_API_KEY") as error:
        await ask(OpenAIChat("m"))
    assert not error.value.retryable


def test_estimates_are_priced_too() -> None:
    """A cut stream costs money (F126)."""
    model = OpenAIChat("m", prices=Prices(input=1.0, output=2.0))
    assert model.priced(Usage(1_000_000, 500_000, estimated=True)).cost == 2.0


def test_calls_without_an_index_are_counted() -> None:
    """Some hosts leave it out: a call with an id is the next one."""
    reader = ChatAnswerReader()
    calls = [
        {"id": "x", "function": {"name": "a"}},
        {"function": {"arguments": "{}"}},
        {"id": "y", "function": {"name": "b"}},
    ]
    chunks = reader.feed({"choices": [{"delta": {"tool_calls": calls}}]})
    assert [chunk.index for chunk in chunks if isinstance(chunk, CallChunk)] == [0, 0, 1]


def test_a_refusal_is_text() -> None:
    """The user sees what the model said."""
    assert ChatAnswerReader().feed({"choices": [{"delta": {"refusal": "I can't."}}]}) == [TextChunk("I can't.")]


@pytest.mark.parametrize("junk", [None, 1, [], {}, {"choices": None}, {"choices": [None]}, {"choices": [{"delta": 3}]}])
def test_junk_gives_nothing_and_never_raises(junk: object) -> None:
    """A reader is total."""
    reader = ChatAnswerReader()
    assert reader.feed(junk) == []
    assert reader.end() == []
