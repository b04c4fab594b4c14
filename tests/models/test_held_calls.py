"""Open calls in conversations that OpenAI holds for others."""

from __future__ import annotations

from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError

from heaveto import settle_held_calls
from heaveto.errors import InputError
from heaveto.models.held_calls import outputs_for
from heaveto.testing import Emulator, call, say

USER = {"type": "message", "role": "user", "content": "go"}


def client(emulator: Emulator) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=emulator.openai_url, api_key="any", max_retries=0)


async def test_a_broken_conversation_takes_the_next_message() -> None:
    """Its call was stored, its output never sent: it refuses everything until it has one (F39)."""
    async with Emulator((call("look"), call("pay")), say("ok")) as emulator, client(emulator) as api:
        held = (await api.conversations.create()).id
        asked: dict[str, Any] = {"model": "m", "conversation": held}
        await api.responses.create(input=[USER], **asked)
        with pytest.raises(BadRequestError, match="No tool output found"):
            await api.responses.create(input=[USER], **asked)
        added = await settle_held_calls(api, conversation=held, results={"call_1": "seen"})
        assert [item["call_id"] for item in added] == ["call_1", "call_2"]
        assert added[0]["output"] == "seen"
        assert "may or may not have taken effect" in added[1]["output"]
        assert await settle_held_calls(api, conversation=held) == []
        assert (await api.responses.create(input=[USER], **asked)).output_text == "ok"


async def test_a_response_with_open_calls_can_be_gone_on_from() -> None:
    """It cannot be changed, so the outputs go in front of the next input (F39, F40)."""
    async with Emulator(call("look"), say("ok")) as emulator, client(emulator) as api:
        first = await api.responses.create(model="m", input=[USER])
        outputs: Any = await settle_held_calls(api, response=first.id)
        second = await api.responses.create(model="m", previous_response_id=first.id, input=[*outputs, USER])
        assert second.output_text == "ok"
        assert await settle_held_calls(api, response=second.id) == []
        emulator.assert_done()


async def test_more_outputs_than_one_request_takes() -> None:
    """OpenAI takes twenty items at a time."""
    async with Emulator(tuple(call("look") for _ in range(45))) as emulator, client(emulator) as api:
        held = (await api.conversations.create()).id
        await api.responses.create(model="m", input=[USER], conversation=held)
        assert len(await settle_held_calls(api, conversation=held)) == 45
        added = [len(other.body["items"]) for other in emulator.others if other.body.get("items")]
        assert added == [20, 20, 5]
        assert await settle_held_calls(api, conversation=held) == []


def test_each_kind_of_call_gets_its_kind_of_output() -> None:
    """What has an output is left alone, and so is what the provider executed itself (F23, R2)."""
    items: list[dict[str, Any]] = [
        {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "1"},
        {"type": "custom_tool_call", "call_id": "b", "name": "patch", "input": "x"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
    ]
    assert [(item["type"], item["call_id"]) for item in outputs_for(items)] == [
        ("custom_tool_call_output", "b"),
        ("function_call_output", "c"),
    ]


@pytest.mark.parametrize("ids", [{}, {"conversation": "conv_1", "response": "resp_1"}])
async def test_exactly_one_id_is_wanted(ids: dict[str, str]) -> None:
    """There is nothing to guess."""
    with pytest.raises(InputError, match="and not both"):
        await settle_held_calls(AsyncOpenAI(api_key="k"), **ids)
