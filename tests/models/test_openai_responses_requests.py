"""Requests to OpenAI Responses: what goes back of an answer, and what is left out where the provider holds the rest."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from heaveto.core.request import Generation, Held, ModelRequest, ToolDeclaration, Turn
from heaveto.core.validate.openai_responses import validate
from heaveto.events.contents import FunctionCall, FunctionResponse, Opaque, Part, Text, Thought
from heaveto.models.wire.openai_responses import OpenAIResponsesEncoder, encode

FAMILY = "openai-responses"
USER = Turn("user", (Text(text="hi"),))
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}}


def reasoning(number: int = 1) -> Thought:
    item = {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": "gAAA", "status": None}
    return Thought(text="hm", signature="gAAA", provider=FAMILY, data=item)


def own(item: dict[str, Any]) -> Opaque:
    return Opaque(provider=FAMILY, data=item)


def call(call_id: str = "c1", **data: Any) -> FunctionCall:
    return FunctionCall(call_id=call_id, name="t", args={"input": "x"}, provider=FAMILY, data=data or None)


def results(*call_ids: str) -> Turn:
    return Turn("tool", tuple(FunctionResponse(call_id=call_id, name="t", response={"r": 1}) for call_id in call_ids))


def items_of(*turns: Turn, **more: Any) -> list[dict[str, Any]]:
    return encode(ModelRequest(turns=[USER, *turns], **more))["input"]


def model(*parts: Part) -> Turn:
    return Turn("model", parts)


def kinds(items: list[dict[str, Any]]) -> list[str]:
    return [item.get("type") or item["role"] for item in items]


def test_reasoning_and_its_calls_go_back_as_one_without_ids() -> None:
    """The provider stores nothing, so that ids would be refused; what is encrypted goes back verbatim (R5, R6, R11)."""
    items = items_of(model(reasoning(), own(SEARCH), reasoning(2), call("c1"), call("c2")), results("c1", "c2"))
    assert kinds(items) == [
        "user",
        "reasoning",
        "web_search_call",
        "reasoning",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
    ]
    assert items[1] == {"type": "reasoning", "summary": [], "encrypted_content": "gAAA"}
    assert items[2] == {key: value for key, value in SEARCH.items() if key != "id"}
    assert validate({"input": items}, strict_unconfirmed=True) is None


@pytest.mark.parametrize(
    "parts",
    [
        (reasoning(),),
        (Text(text="Let"), reasoning()),
        (reasoning(), Text(text="Hel")),
        (reasoning(), own({"type": "code_interpreter_call", "id": "ci_1"}), Text(text="x")),
    ],
)
def test_reasoning_whose_product_is_not_there_is_dropped(parts: tuple[Part, ...]) -> None:
    """A stop cut it, it cannot be sent, or it is a message, which would need its id (R5)."""
    assert "reasoning" not in kinds(items_of(model(*parts), USER))


@pytest.mark.parametrize(
    ("item", "is_sent"),
    [
        ({"type": "compaction", "id": "cmp_1", "encrypted_content": "gBBB"}, True),
        ({"type": "reasoning", "id": "rs_9", "summary": []}, False),
        ({"type": "file_search_call", "id": "fs_1", "queries": []}, False),
        ({"type": "shell_call", "id": "sh_1", "call_id": "c9"}, False),
        ({"type": "hologram", "id": "ho_1"}, False),
    ],
)
def test_items_go_back_if_they_are_whole_without_what_the_provider_stores(item: dict[str, Any], is_sent: bool) -> None:
    """Others would be refused: for their id (R11), or for the output that nobody made (R2, F23)."""
    items = items_of(model(own(item), Text(text="x")), USER)
    assert (item["type"] in kinds(items)) is is_sent


def test_a_custom_tools_call_and_output_keep_their_type() -> None:
    """Also beside a function's, and with fields of the provider (R2)."""
    turns = [model(call("c1", type="custom_tool_call"), call("c2", namespace="n")), results("c1", "c2")]
    _, custom, function, custom_output, function_output = items_of(*turns)
    assert custom == {"type": "custom_tool_call", "call_id": "c1", "name": "t", "input": "x"}
    assert (function["type"], function["namespace"]) == ("function_call", "n")
    assert (custom_output["type"], custom_output["call_id"]) == ("custom_tool_call_output", "c1")
    assert function_output["type"] == "function_call_output"


def test_a_messages_phase_goes_back() -> None:
    """Models that mark their messages want the mark back."""
    text = Text(text="Looking.", provider=FAMILY, data={"phase": "commentary"})
    assert items_of(model(text), USER)[1]["phase"] == "commentary"


@pytest.mark.parametrize("data", [{}, {"type": "custom_tool_call"}])
def test_what_is_held_is_not_sent_again(data: dict[str, Any]) -> None:
    """Only what came after the held answer is: its outputs, of the right type, and the next words (R7, P9)."""
    turns = [USER, model(call("c1", **data)), results("c1"), Turn("user", (Text(text="and?"),))]
    encoder = OpenAIResponsesEncoder()
    body = encoder.encode(ModelRequest(turns=turns), Held("resp_1", 2))
    assert body["previous_response_id"] == "resp_1"
    output = "custom_tool_call_output" if data else "function_call_output"
    assert kinds(body["input"]) == [output, "user"]
    assert "previous_response_id" not in encoder.encode(ModelRequest(turns=turns), Held())
    assert len(encoder.encode(ModelRequest(turns=turns), Held())["input"]) == 4


def test_the_providers_own_tools_stand_behind_the_agents() -> None:
    """Both are there to choose from."""
    request = ModelRequest(
        turns=[USER],
        tools=(ToolDeclaration("look", "looks", {"type": "object", "properties": {}}),),
        generation=Generation(tool_choice="required", extra={"reasoning": {"effort": "low"}}),
    )
    body = OpenAIResponsesEncoder(provider_tools=[{"type": "web_search"}]).encode(request)
    assert [tool["type"] for tool in body["tools"]] == ["function", "web_search"]
    assert (body["tool_choice"], body["reasoning"]) == ("required", {"effort": "low"})


def test_a_turn_becomes_json_once() -> None:
    """The bytes of a turn are copied into later requests, and a new turn leaves what was sent before it as it was."""
    encoder = OpenAIResponsesEncoder()
    turns = [USER, model(Text(text="a")), USER]
    first = encoder.encode_json(ModelRequest(turns=turns), settings={"model": "m"})
    again = encoder.encode_json(ModelRequest(turns=[*turns, model(Text(text="b")), USER]), settings={"model": "m"})
    assert again.startswith(first[: first.index(b"]", first.rindex(b"hi"))])
    assert msgspec.json.decode(first)["model"] == "m"


def test_reasoning_can_be_left_out() -> None:
    """For a provider that cannot read it any more (R13); the calls stay."""
    encoder = OpenAIResponsesEncoder(thoughts=False)
    body = encoder.encode(ModelRequest(turns=[USER, model(reasoning(), call()), results("c1")]))
    assert kinds(body["input"]) == ["user", "function_call", "function_call_output"]
