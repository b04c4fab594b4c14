"""The Responses connector, over real HTTP against the emulator."""

from __future__ import annotations

from typing import Any

import pytest

from heaveto.core.request import Generation, ModelRequest, ToolDeclaration, Turn
from heaveto.errors import ModelError
from heaveto.events.contents import FunctionCall, FunctionResponse, Opaque, Text, Thought
from heaveto.events.records import Usage
from heaveto.ids import SystemIds
from heaveto.models.assemble import Assembled, Assembler
from heaveto.models.openai_responses import OpenAIResponses
from heaveto.models.prices import Prices
from heaveto.testing import Emulator, call, fault, give, say, think, usage

FAMILY = "openai-responses"
USER = Turn("user", (Text(text="hi"),))
ASK = ModelRequest(
    turns=[USER],
    instruction="Be brief.",
    tools=(ToolDeclaration("look", "looks", {"type": "object", "properties": {}}),),
    generation=Generation(temperature=0.5, extra={"reasoning": {"effort": "low"}}),
)
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}}


async def ask(model: OpenAIResponses, request: ModelRequest = ASK) -> Assembled:
    assembler = Assembler(SystemIds(), provider=FAMILY)
    async for chunk in model.generate(request):
        assembler.feed(chunk)
    return assembler.finish()


def connect(emulator: Emulator, **options: Any) -> OpenAIResponses:
    return OpenAIResponses("m", base_url=emulator.openai_url, **options)


def refusal(status: int, **body: Any) -> Any:
    step = fault("no", status=status)
    step.error.body = {"message": "no", "type": "invalid_request_error", "param": None, "code": None, **body}
    return step


@pytest.mark.parametrize("stream", [True, False])
async def test_text_thought_calls_and_usage_arrive(stream: bool) -> None:
    """The same answer comes out of a stream and of a whole response."""
    spent = usage(10, 4, cached_tokens=5, reasoning_tokens=2)
    answer = (think("hm", chunks=2), say("Both:", chunks=3), call("look", at="ü"), call("look", at="b"), spent)
    async with Emulator(answer) as emulator:
        model = connect(emulator, stream=stream, prices=Prices(input=2.0, output=10.0, cached_input=1.0))
        got = await ask(model)
        await model.aclose()
    thought, text, *calls = got.parts
    assert isinstance(thought, Thought) and (thought.text, bool(thought.signature)) == ("hm", True)
    assert text == Text(text="Both:")
    assert [(made.provider_id, made.name, made.args) for made in calls if isinstance(made, FunctionCall)] == [
        ("call_1", "look", {"at": "ü"}),
        ("call_2", "look", {"at": "b"}),
    ]
    cost = (5 * 2.0 + 5 * 1.0 + 4 * 10.0) / 1e6
    assert got.usage == Usage(10, 4, cached_tokens=5, reasoning_tokens=2, cost=cost)
    assert got.end is not None and (got.end.reason, got.end.model, got.is_cut) == ("completed", "m", False)
    (exchange,) = emulator.exchanges
    body = exchange.body
    assert (body["instructions"], body["temperature"], body["reasoning"]) == ("Be brief.", 0.5, {"effort": "low"})
    assert (body["store"], body["include"], body["stream"]) == (False, ["reasoning.encrypted_content"], stream)
    assert exchange.headers["content-type"] == "application/json"
    emulator.assert_done()


@pytest.mark.parametrize("stream", [True, False])
async def test_reasoning_and_a_search_survive_the_round_trip(stream: bool) -> None:
    """What came back is sent again as the provider wants it, byte for byte where it is encrypted (R5, R6, F26)."""
    searched = give(Opaque(provider=FAMILY, data=SEARCH))
    signed = give(Thought(text="why", signature="c2lnbmVk", provider=FAMILY))
    async with Emulator((signed, searched, signed, call("look")), say("ok"), strict_unconfirmed=True) as emulator:
        model = connect(emulator, stream=stream)
        first = await ask(model)
        result = FunctionResponse(call_id="call_1", name="look", response={"r": 1})
        made = tuple(
            FunctionCall(call_id="call_1", name=part.name, provider=FAMILY) if isinstance(part, FunctionCall) else part
            for part in first.parts
        )
        await ask(model, ModelRequest(turns=[USER, Turn("model", made), Turn("tool", (result,))]))
        await model.aclose()
    emulator.assert_done()
    items = emulator.exchanges[1].body["input"]
    assert [item.get("type") for item in items] == [
        None, "reasoning", "web_search_call", "reasoning", "function_call", "function_call_output",
    ]  # fmt: skip
    assert (items[1]["encrypted_content"], items[2]["action"]) == ("c2lnbmVk", SEARCH["action"])
    assert not any("id" in item for item in items)


async def test_a_model_without_reasoning_is_asked_again_without_it() -> None:
    """It refuses the very question for encrypted reasoning; the next request does not ask."""
    no_reasoning = refusal(400, message="Encrypted content is not supported with this model.", param="include")
    async with Emulator(no_reasoning, say("a"), say("b")) as emulator:
        model = connect(emulator)
        assert [(await ask(model)).parts for _ in range(2)] == [(Text(text="a"),), (Text(text="b"),)]
        await model.aclose()
    assert ["include" in exchange.body for exchange in emulator.exchanges] == [True, False, False]


async def test_reasoning_that_cannot_be_read_any_more_is_left_out() -> None:
    """It was encrypted for another model or organisation (R13)."""
    item = {"type": "reasoning", "summary": [], "encrypted_content": "x"}
    parts = (Thought(text="", signature="x", provider=FAMILY, data=item), FunctionCall(call_id="c1", name="look"))
    result = FunctionResponse(call_id="c1", name="look", response={})
    async with Emulator(refusal(400, code="invalid_encrypted_content"), say("ok")) as emulator:
        model = connect(emulator)
        answer = await ask(model, ModelRequest(turns=[USER, Turn("model", parts), Turn("tool", (result,))]))
        await model.aclose()
    assert answer.parts == (Text(text="ok"),)
    sent = [[item.get("type") for item in exchange.body["input"]] for exchange in emulator.exchanges]
    assert sent == [
        [None, "reasoning", "function_call", "function_call_output"],
        [None, "function_call", "function_call_output"],
    ]


async def test_another_refusal_is_final() -> None:
    """Nothing better is known, so nothing is tried."""
    async with Emulator(refusal(400, code="string_above_max_length")) as emulator:
        model = connect(emulator)
        with pytest.raises(ModelError) as error:
            await ask(model)
        await model.aclose()
    assert (error.value.status, error.value.retryable, len(emulator.exchanges)) == (400, False, 1)


@pytest.mark.parametrize("name", ["background", "previous_response_id", "conversation", "store"])
async def test_settings_that_would_make_it_another_conversation_are_refused(name: str) -> None:
    """A response in the background goes on after a stop; a pointer of one's own is not what the log says (F39, F51)."""
    request = ModelRequest(turns=[USER], generation=Generation(extra={name: "x"}))
    with pytest.raises(ModelError, match=name):
        await ask(OpenAIResponses("m", api_key="k"), request)


async def test_an_own_client_is_used_and_left_open() -> None:
    """Azure and proxies come in this way; retries stay ours."""
    from openai import AsyncAzureOpenAI

    async with Emulator(fault(status=500), say("a")) as emulator:
        client = AsyncAzureOpenAI(
            api_key="k", api_version="v1", base_url=emulator.openai_url, max_retries=5, azure_ad_token=None
        )
        model = OpenAIResponses("m", client=client)
        with pytest.raises(ModelError):
            await ask(model)
        assert len(emulator.exchanges) == 1
        await model.aclose()
        assert not client.is_closed()
        assert (await ask(model)).parts == (Text(text="a"),)
        assert emulator.exchanges[1].headers["api-key"] == "k"
        await client.close()
