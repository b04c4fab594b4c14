"""What providers want beyond pairs: nothing empty, both ends, ids and names, thinking, their own tools."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.repair.judge import refusal
from tests.repair.shapes import WRITERS, A, C, History, R, U, anthropic, asks, bedrock, chat, gemini, responses

from heaveto import repair
from heaveto.core.wire_names import NO_SIGNATURE

STOP = U("stop")


def repaired(history: History, provider: str, **options: Any) -> History:
    """Repair, and see that the provider accepts it."""
    result, _ = repair(history, provider, **options)
    assert refusal(result, provider) is None
    return result


def rules(history: Any, provider: str, **options: Any) -> list[str]:
    return [change.rule for change in repair(history, provider, **options)[1].changes]


# --- arguments, ids, names --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", ["qwen", "minimax", "mistral", "anthropic", "bedrock", "gemini-2.5"])
def test_arguments_that_are_no_object_are_quoted_where_the_call_has_no_result(provider: str) -> None:
    """The wire gets an empty object; the raw text is told once, as an error, and never lost (A8, F16, F31)."""
    history = WRITERS[provider]([U(), A((C("c1", args='{"q": "hel'),)), STOP])
    result = repaired(history, provider)
    assert "hel" in str(result[2])
    assert "hel" not in str(result[1])


def test_openai_takes_any_string_for_arguments() -> None:
    """O13: they stay as they are."""
    history = chat([U(), A((C("c1", args='{"q": "hel'),)), R(), STOP])
    assert repair(history, "openai")[0] is history


@pytest.mark.parametrize("provider", sorted(set(WRITERS) - {"gemini", "gemini-2.5", "gemini-3", "mistral"}))
def test_ids_that_a_format_does_not_take_are_replaced_on_both_sides(provider: str) -> None:
    """The same one each time, within charset and length (O11, R10, A6, B8, M1)."""
    long_id = "functions.search:0 " * 5
    history = WRITERS[provider]([U(), asks(long_id), R(long_id, "real"), STOP])
    result = repaired(history, provider)
    assert "real" in str(result)
    assert long_id not in str(result)
    assert result == repaired(history, provider)


def test_mistral_takes_any_id_but_none_and_its_older_tokenizers_nine_characters() -> None:
    """M1: what the current models take stays as it is; an empty one and ``null`` are none."""
    for call_id in ("call_0123456789012345678901234567890123456789", "null", ""):
        history = chat([U(), asks(call_id), R(call_id, "real"), A(text="so"), STOP])
        is_taken = call_id.startswith("call_")
        assert (repaired(history, "mistral") is history) == is_taken
        (call,) = repaired(history, "mistral-11")[1]["tool_calls"]
        assert len(call["id"]) == 9
        assert call["id"].isalnum()


@pytest.mark.parametrize("mark_result", [False, True])
def test_marks_for_the_cache_within_results_count(mark_result: bool) -> None:
    """A26: the oldest go, wherever they stand."""
    mark = {"cache_control": {"type": "ephemeral"}}
    history: History = []
    for number in range(5):
        history += anthropic([U(f"u{number}"), asks(f"c{number}"), R(f"c{number}")])
        block = history[-1]["content"][0]
        block["content"] = [{"type": "text", "text": f"r{number}", **({} if mark_result else mark)}]
        block |= mark if mark_result else {}
    result = repaired([*history, *anthropic([A(text="so"), STOP])], "anthropic")
    assert [index for index, message in enumerate(result) if "cache_control" in str(message)] == [5, 8, 11, 14]


def test_a_mark_on_thinking_goes_and_the_thinking_stays() -> None:
    """A26: the mark is not of what was signed."""
    thought = {"type": "thinking", "thinking": "so", "signature": "c2ln"}
    marked = [{**thought, "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "a"}]
    history = [*anthropic([U()]), {"role": "assistant", "content": marked}, *anthropic([STOP])]
    assert repaired(history, "anthropic")[1]["content"] == [thought, marked[1]]


@pytest.mark.parametrize("provider", sorted(set(WRITERS) - {"minimax-anthropic"}))
def test_names_that_a_format_does_not_take_are_replaced(provider: str) -> None:
    """An empty name, and one of 300 characters (O12, A7, B8, M7, G18)."""
    for name in ("", "x" * 300):
        history = WRITERS[provider]([U(), A((C("call00001", name),)), R("call00001", name="ok"), STOP])
        repaired(history, provider)


def test_gemini_names_begin_with_a_letter_and_results_have_their_calls_name() -> None:
    """G15, G18."""
    history = gemini([U(), A((C("c1", "2fa"), C("c2", "b"))), R("c1", name="2fa"), R("c2", name=""), STOP])
    result = repaired(history, "gemini-2.5")
    assert [part["functionCall"]["name"] for part in result[1]["parts"]] == ["_2fa", "b"]
    assert [part["functionResponse"]["name"] for part in result[2]["parts"]] == ["_2fa", "b"]


# --- empties and ends -------------------------------------------------------------------------------------------------


def test_empty_answers_vanish_or_become_what_the_format_takes() -> None:
    """A stop before the first token leaves them (O7, O9, A9, A10, G6, G7, B7, M6, F28, F29)."""
    empty = {"role": "assistant", "content": None, "tool_calls": []}
    assert repaired([*chat([U()]), empty, *chat([STOP])], "openai")[1] == {"role": "assistant", "content": ""}
    assert repaired([*chat([U()]), empty, *chat([STOP])], "mistral") == chat([U(), STOP])
    for content in ([], "", " \n", [{"type": "text", "text": ""}]):
        history = [*anthropic([U()]), {"role": "assistant", "content": content}, *anthropic([STOP])]
        assert repaired(history, "anthropic") == anthropic([U(), STOP])
    for parts in ([], [{"text": ""}], [{}]):
        history = [*gemini([U()]), {"role": "model", "parts": parts}, *gemini([STOP])]
        assert repaired(history, "gemini-2.5") == gemini([U(), STOP])
    blank = [*bedrock([U()]), {"role": "assistant", "content": [{"text": " "}]}, *bedrock([STOP])]
    assert repaired(blank, "bedrock") == [{"role": "user", "content": [{"text": "hello"}, {"text": "stop"}]}]


@pytest.mark.parametrize("provider", ["anthropic", "gemini-2.5", "bedrock", "mistral"])
def test_an_answer_at_the_end_is_followed_by_a_user(provider: str) -> None:
    """It stays, and "Continue." is asked (A12, G5, M5)."""
    history = WRITERS[provider]([U(), A(text="half a sen")])
    result = repaired(history, provider)
    assert result[: len(history)] == history
    assert "Continue." in str(result[-1])


@pytest.mark.parametrize("provider", ["anthropic", "bedrock"])
def test_an_answer_at_the_start_is_preceded_by_a_user(provider: str) -> None:
    """A24, B6."""
    history = WRITERS[provider]([A(text="welcome"), U()])
    assert repaired(history, provider)[1:] == history


def test_mistral_has_an_answer_between_results_and_user_and_no_system_in_the_middle() -> None:
    """M4."""
    history = [*chat([U(), asks("call00001"), R("call00001")]), {"role": "system", "content": "be brief"}]
    result = repaired([*history, *chat([STOP])], "mistral")
    assert [message["role"] for message in result] == ["user", "assistant", "tool", "assistant", "user", "user"]


def test_a_system_message_stands_right_before_the_model_speaks_or_at_the_end() -> None:
    """A25; and results behind it are where they belong."""
    system = {"role": "system", "content": "Be brief."}
    valid = [*anthropic([U(), asks("c1"), R("c1")]), system, *anthropic([A(text="a"), STOP]), system]
    assert repair(valid, "anthropic")[0] is valid
    between = [system, *anthropic([U(), asks("c1")]), system, *anthropic([R("c1"), STOP, A(text="a"), STOP])]
    result = repaired(between, "anthropic")
    assert [message["role"] for message in result] == [
        "user", "system", "assistant", "user", "system", "assistant", "user",
    ]  # fmt: skip
    assert rules(between, "anthropic") == ["A25", "A25"]


# --- placement --------------------------------------------------------------------------------------------------------


def test_anthropic_has_results_first_and_one_message_with_the_users_words() -> None:
    """A3, F03: strict alternation holds too; fields that nobody knows here stay."""
    said = {"type": "text", "text": "stop", "cache_control": {"type": "ephemeral"}}
    result = repaired([*anthropic([U(), asks("c1", "c2")]), {"role": "user", "content": [said], "x": 1}], "anthropic")
    assert [block["type"] for block in result[2]["content"]] == ["tool_result", "tool_result", "text"]
    assert result[2]["content"][2] is said
    assert result[2]["x"] == 1


def test_gemini_has_all_results_of_a_turn_alone_in_one_content() -> None:
    """F11, G1, G9: split ones are joined, words beside them get their own content."""
    steps = [U(), asks("a", "b"), R("a", "1"), R("b", "2"), STOP]
    split = gemini(steps, joined=False)
    assert repaired(split, "gemini-2.5") == gemini(steps)
    mixed = gemini(steps)
    mixed[2]["parts"] += mixed.pop()["parts"]
    assert repaired(mixed, "gemini-2.5") == gemini(steps)


def test_images_of_chat_results_follow_the_whole_run() -> None:
    """O14: a stub says where they went."""
    history = chat([U(), asks("a", "b"), R("a"), R("b"), STOP])
    history[2]["content"] = [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}]
    result = repaired(history, "openai")
    assert [message["role"] for message in result] == ["user", "assistant", "tool", "tool", "user", "user"]
    assert result[4]["content"] == history[2]["content"]


def test_an_error_says_something_and_holds_no_image() -> None:
    """A11, A11', B5."""
    history = anthropic([U(), asks("c1"), R("c1"), STOP])
    picture = {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}
    history[2]["content"][0] |= {"is_error": True, "content": [picture]}
    result = repaired(history, "anthropic")
    assert [block["type"] for block in result[2]["content"]] == ["tool_result", "text", "image"]
    history[2]["content"][0]["content"] = []
    assert repaired(history, "anthropic")[2]["content"][0]["content"]
    empty = bedrock([U(), asks("c1"), R("c1"), STOP])
    empty[2]["content"][0]["toolResult"] |= {"status": "error", "content": []}
    repaired(empty, "bedrock")


# --- thinking, reasoning, signatures ----------------------------------------------------------------------------------


def test_signed_thinking_stays_verbatim_and_unsigned_thinking_goes_whole() -> None:
    """A16, F25, F26, F27: never a block without its signature, never a changed one."""
    history = anthropic([U(), asks("c1", thought="hm"), STOP])
    half = {"role": "assistant", "content": [{"type": "thinking", "thinking": "half"}]}
    result = repaired([*history, half, *anthropic([U("go on")])], "anthropic")
    assert result[1] is history[1]
    assert "half" not in str(result)


def test_two_turns_with_thinking_never_become_one() -> None:
    """A15: where a message between them loses all it held, a dot stands there instead."""
    steps = [U(), A(text="a", thought="one"), R("c9", "orphan"), A(text="b", thought="two"), STOP]
    for provider in ("anthropic", "bedrock"):
        result = repaired(WRITERS[provider](steps), provider)
        assert [message["role"] for message in result] == ["user", "assistant", "user", "assistant", "user"]


def test_gemini_signs_the_first_unsigned_call_of_each_step_of_the_current_turn() -> None:
    """G10, G11: not its siblings, and not the turns before (G13)."""
    history = gemini([U(), asks("a"), R("a"), STOP, asks("b", "c"), R("b"), R("c")])
    result = repaired(history, "gemini-3")
    assert result[1] is history[1]
    signatures = [part.get("thoughtSignature") for part in result[4]["parts"]]
    assert signatures == [NO_SIGNATURE, None]


def test_reasoning_content_is_there_where_thinking_servers_want_it() -> None:
    """Kimi on every turn that calls, DeepSeek since the user last spoke."""
    history = chat([U(), asks("a"), R("a"), STOP, asks("b"), R("b")])
    assert [m.get("reasoning_content") for m in repaired(history, "kimi") if m.get("tool_calls")] == ["", ""]
    assert [m.get("reasoning_content") for m in repaired(history, "deepseek") if m.get("tool_calls")] == [None, ""]


def test_reasoning_without_what_it_led_to_goes_and_ids_that_are_none_go_too() -> None:
    """R5, R7, R9, R11."""
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": []}
    call = {"type": "function_call", "id": "call_1", "call_id": "c1", "name": "t", "arguments": "{}"}
    history = [*responses([U()]), reasoning, call, *responses([R(), STOP]), {**reasoning, "id": "rs_2"}]
    result = repaired(history, "openai-responses")
    assert result[1] is reasoning
    assert result[2] == {key: value for key, value in call.items() if key != "id"}
    assert "rs_2" not in str(result)
    assert rules([*history[:2], reasoning, *history[2:5]], "openai-responses") == ["R7", "R9"]
    body = {"store": False, "input": [*history[:5], {"type": "item_reference", "id": "msg_1"}]}
    settled, _ = repair(body, "openai-responses")
    assert "rs_1" not in str(settled)
    assert "msg_1" not in str(settled)


@pytest.mark.parametrize(
    ("call", "output"),
    [
        ({"type": "custom_tool_call", "name": "t", "input": "x"}, "custom_tool_call_output"),
        ({"type": "apply_patch_call", "status": "completed", "operation": {}}, "apply_patch_call_output"),
        ({"type": "local_shell_call", "id": "lsh_1", "action": {}, "status": "completed"}, "local_shell_call_output"),
        ({"type": "shell_call", "action": {}}, "shell_call_output"),
        ({"type": "tool_search_call", "execution": "client", "arguments": {}}, "tool_search_output"),
        ({"type": "computer_call", "id": "cu_1", "action": {}}, "computer_call_output"),
    ],
)
def test_each_kind_of_call_gets_its_kind_of_output(call: dict[str, Any], output: str) -> None:
    """R2; an output of another kind for it, as bridges make them, becomes one of its own."""
    history = [*responses([U()]), {**call, "call_id": "c1"}, *responses([STOP])]
    result = repaired(history, "openai-responses")
    assert result[2]["type"] == output
    wrong = {"type": "function_call_output", "call_id": "c1", "output": "real"}
    bridged = repaired([*history[:2], wrong, *history[2:]], "openai-responses")
    assert bridged[2]["type"] == output


# --- the provider's own tools -----------------------------------------------------------------------------------------


def test_calls_that_the_provider_executes_are_never_answered() -> None:
    """F22, F23, A17, A18: without their result they go, and what was said before them stays."""
    call = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    said = {"type": "text", "text": "I look."}
    paused = [*anthropic([U()]), {"role": "assistant", "content": [said, call]}]
    assert repaired([*paused, *anthropic([STOP])], "anthropic")[1] == {"role": "assistant", "content": [said]}
    whole = [*anthropic([U()]), {"role": "assistant", "content": [said, call, found]}, *anthropic([STOP])]
    assert repair(whole, "anthropic")[0] is whole
    orphaned = [*anthropic([U()]), {"role": "assistant", "content": [said, found]}, *anthropic([STOP])]
    assert repaired(orphaned, "anthropic")[1] == {"role": "assistant", "content": [said]}
    search = [*responses([U()]), {"type": "web_search_call", "id": "ws_1", "status": "completed"}, *responses([STOP])]
    assert repair(search, "openai-responses")[0] is search


# --- bodies -----------------------------------------------------------------------------------------------------------


def test_a_body_comes_back_as_a_body() -> None:
    """What stands beside the messages stays; the same object if nothing was wrong."""
    body = {"model": "m", "messages": chat([U()]), "tools": [{"type": "function", "function": {"name": "t"}}]}
    assert repair(body, "openai")[0] is body
    settled, report = repair({**body, "tools": [], "tool_choice": "auto"}, "openai")
    assert settled == {"model": "m", "messages": body["messages"]}
    assert [change.rule for change in report.changes] == ["O16"]


def test_bedrock_gets_a_tool_configuration_where_blocks_of_tools_are() -> None:
    """B4."""
    body = {"modelId": "m", "messages": bedrock([U(), asks("c1"), STOP])}
    settled, _ = repair(body, "bedrock")
    assert [tool["toolSpec"]["name"] for tool in settled["toolConfig"]["tools"]] == ["t"]
    assert refusal_of_body(settled, "bedrock") is None


def test_thinking_that_the_history_cannot_carry_is_switched_off() -> None:
    """A14: the calls under way do not begin with a thought."""
    body = {"messages": anthropic([U(), asks("c1")]), "thinking": {"type": "enabled", "budget_tokens": 1024}}
    settled, report = repair(body, "anthropic")
    assert refusal_of_body(settled, "anthropic") is None
    assert settled["thinking"] == {"type": "disabled"}
    assert "A14" in [change.rule for change in report.changes]


HELLO: dict[str, Any] = {"role": "user", "content": "hi"}
TEXT: dict[str, Any] = {"type": "text", "text": "so"}


def _said(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def _used(call_id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "t", "input": {}}


def _result(call_id: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": "ok"}]}


_THOUGHT = {"type": "thinking", "thinking": "x", "signature": "c2ln"}
_TURNS: dict[str, list[dict[str, Any]]] = {
    "a thought, a call": [_said(_THOUGHT, _used("a")), _result("a")],
    "a call": [_said(_used("a")), _result("a")],
    "a call without result behind a thought": [_said(_THOUGHT, _used("a"))],
    "thoughts behind a first call without": [
        _said(_used("a")),
        _result("a"),
        _said(_THOUGHT, _used("b")),
        _result("b"),
    ],
    "a thought alone at the end": [_said(_used("a")), _result("a"), _said(_THOUGHT)],
    "a thought of an earlier turn": [_said(_THOUGHT, TEXT), HELLO, _said(_used("a")), _result("a")],
    "two messages of one turn": [_said(_THOUGHT, TEXT), _said(_used("a")), _result("a")],
}


@pytest.mark.parametrize("thinking", ["enabled", "disabled", "adaptive", None])
@pytest.mark.parametrize("turns", _TURNS.values(), ids=_TURNS)
def test_thoughts_and_the_setting_of_thinking_fit(turns: list[dict[str, Any]], thinking: str | None) -> None:
    """A14, A14': where thinking is off, also because a repair had to switch it off, none is left in the last turn."""
    body: dict[str, Any] = {"messages": [HELLO, *turns]}
    if thinking is not None:
        body["thinking"] = {"type": thinking} | ({"budget_tokens": 1024} if thinking == "enabled" else {})
    before = copy.deepcopy(body)
    settled, report = repair(body, "anthropic")
    assert refusal_of_body(settled, "anthropic") is None, report
    assert repair(settled, "anthropic")[0] is settled
    assert body == before


def test_with_a_stored_chain_outputs_may_belong_to_calls_that_are_not_seen() -> None:
    """R3: they stay."""
    body = {"previous_response_id": "resp_1", "input": responses([R("c9"), STOP])}
    assert repair(body, "openai-responses")[0] is body


def refusal_of_body(body: dict[str, Any], provider: str) -> object:
    from heaveto import validate

    return validate(body, provider, strict_unconfirmed=True)
