"""Ids are kept where the model pairs by them, and stripped where google-adk strips them; signatures stay."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types
from tests.adk.world import ScriptedLlm, World, accepted, agent, call, next_request, result, shape, turn

from heaveto.adk import ToolCallRepairPlugin

HALF_ANSWERED = (
    turn("user", types.Part(text="pay twice")),
    turn("shop", call("pay", "adk-1", amount=1), call("pay", "call_2", amount=2), call("pay", amount=3)),
    turn("shop", result("pay", "call_2", paid=2)),
)


def ids(contents: list[types.Content]) -> list[list[str | None]]:
    """Return the ids of calls and results, content by content."""
    found = [
        [pair.id for part in content.parts or () if (pair := part.function_call or part.function_response)]
        for content in contents
    ]
    return [each for each in found if each]


async def test_ids_of_google_adk_are_stripped_for_gemini_and_a_providers_own_are_kept() -> None:
    """As google-adk does it; the order of the results says which call each belongs to."""
    llm = ScriptedLlm.of("ok")
    world = World(agent(llm), ToolCallRepairPlugin())
    await world.stored(*(event.model_copy(deep=True) for event in HALF_ANSWERED))
    request = await next_request(world, llm)
    assert shape(request)[2] == "R:pay=unknown + R:pay={'paid': 2} + R:pay=unknown"
    assert ids(request) == [[None, "call_2", None], [None, "call_2", None]]


async def test_every_call_has_an_id_and_its_result_the_same_where_the_model_pairs_by_ids() -> None:
    """Claude and LiteLLM models get ids for calls and results, also for a call that was stored without one."""
    pytest.importorskip("anthropic")
    from google.adk.models.anthropic_llm import AnthropicLlm

    requests: list[list[types.Content]] = []

    class Claude(AnthropicLlm):
        async def generate_content_async(
            self, llm_request: LlmRequest, stream: bool = False
        ) -> AsyncGenerator[LlmResponse, None]:
            requests.append(list(llm_request.contents))
            yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text="ok")]))

    world = World(agent(Claude(model="claude")), ToolCallRepairPlugin())
    await world.stored(*(event.model_copy(deep=True) for event in HALF_ANSWERED))
    await world.run("go on")
    await world.run("and on")
    asked, answered = ids(requests[0])
    assert asked == answered and asked[:2] == ["adk-1", "call_2"] and asked[2]
    assert ids(requests[1]) == [asked, answered]


@pytest.mark.filterwarnings("ignore:Item '.*' on TypedDict class:UserWarning")
async def test_litellm_sends_whole_messages() -> None:
    """What google-adk makes of the contents for an OpenAI style model is a history that such a model takes (O1)."""
    pytest.importorskip("litellm")
    from google.adk.models.lite_llm import LiteLlm, LiteLLMClient
    from litellm import ModelResponse

    from heaveto.core.validate.openai_chat import validate as violation

    class Client(LiteLLMClient):
        async def acompletion(self, model: Any, messages: Any, tools: Any, **options: Any) -> ModelResponse:
            sent.append([dict(message) for message in messages])
            return ModelResponse(choices=[{"message": {"role": "assistant", "content": "ok"}}])

    sent: list[list[dict[str, Any]]] = []
    world = World(agent(LiteLlm(model="openai/some", llm_client=Client())), ToolCallRepairPlugin())
    await world.stored(
        turn("user", types.Part(text="pay thrice")),
        turn("shop", call("pay", "call_1", amount=1), call("pay", "call_2", amount=2), call("pay", "call_3", amount=3)),
        turn("shop", result("pay", "call_2", paid=2)),
    )
    await world.run("go on")
    (messages,) = sent
    assert violation({"model": "some", "messages": messages}) is None
    assert [message["role"] for message in messages[-5:]] == ["assistant", "tool", "tool", "tool", "user"]


async def test_the_signature_of_a_lost_first_call_is_sent() -> None:
    """Only the first of Gemini 3's parallel calls is signed. google-adk drops it when it is lost, and with it the
    signature of the whole step, which a provider then misses in the current turn (G10, G11)."""
    llm: BaseLlm = ScriptedLlm.of("ok")
    stored = (
        turn("user", types.Part(text="pay twice")),
        turn(
            "shop",
            call("pay", "adk-1", b"signed", amount=1),
            call("pay", "adk-2", amount=2),
            long_running_tool_ids={"adk-1", "adk-2"},
        ),
    )
    world = World(agent(llm), ToolCallRepairPlugin())
    await world.stored(*stored)
    answer = types.Content(role="user", parts=[result("pay", "adk-2", paid=2)])
    await world.run(answer)
    (request,) = llm.requests
    assert shape(request) == ["U:pay twice", "M:pay() + M:pay()", "R:pay=pending + R:pay={'paid': 2}"]
    assert [part.thought_signature for part in request[1].parts or ()] == [b"signed", None]
    assert accepted(request, signatures=True)
