"""What a file holds is told by its shape; `provider` overrides it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from heaveto.errors import UnknownFormatError
from heaveto.histories.files import repair_file

CHAT_CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
MESSAGES: dict[str, list[dict[str, Any]]] = {
    "openai": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": [CHAT_CALL]},
        {"role": "tool", "tool_call_id": "c", "content": "1"},
    ],
    "openai-responses": [
        {"role": "user", "content": "Hi"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "1"},
    ],
    "anthropic": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "1"}]},
    ],
    "gemini": [
        {"role": "user", "parts": [{"text": "Hi"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "c2ln"}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"a": 1}}}]},
    ],
    "bedrock": [
        {"role": "user", "content": [{"text": "Hi"}]},
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c", "name": "f", "input": {}}}]},
        {"role": "user", "content": [{"toolResult": {"toolUseId": "c", "content": [{"text": "1"}]}}]},
    ],
}
SNAKE = [
    {"role": "user", "parts": [{"text": "Hi"}]},
    {"role": "model", "parts": [{"function_call": {"name": "f", "args": {}}}]},
]
KEYS = {"gemini": "contents", "openai-responses": "input"}


def dumped(value: object) -> bytes:
    return json.dumps(value).encode()


def lines(values: list[dict[str, Any]]) -> bytes:
    return b"".join(dumped(value) + b"\n" for value in values)


@pytest.mark.parametrize("name", MESSAGES)
@pytest.mark.parametrize("holder", ["list", "body", "wrapper", "wrapped body", "lines", "lines of bodies"])
def test_each_format_is_known_in_each_holder(name: str, holder: str) -> None:
    """A list of messages, a request body, one with other fields or inside another object, and both in lines."""
    messages = MESSAGES[name]
    body = {KEYS.get(name, "messages"): messages}
    tools = {"toolConfig": {"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": {}}}}]}}
    more = tools if name == "bedrock" else {}
    data = {
        "list": dumped(messages),
        "body": dumped({"model": "m", **body, **more}),
        "wrapper": dumped({"messages": messages, "id": 1, "created_at": "today"}),
        "wrapped body": dumped({"id": 1, "request": body}),
        "lines": lines(messages),
        "lines of bodies": lines([body, body]),
    }[holder]
    found = repair_file(data)
    assert found.provider == name, found
    assert found.container == ("jsonl" if "lines" in holder else "json")
    assert found.messages == 3 * (2 if holder == "lines of bodies" else 1)
    assert found.changes == ()


@pytest.mark.parametrize("holder", ["list", "body", "lines"])
@pytest.mark.parametrize("name", MESSAGES)
def test_each_format_is_repaired_in_each_holder(name: str, holder: str) -> None:
    """A call without a result gets one in the format's own words; all else keeps its bytes."""
    messages = MESSAGES[name][:2]
    key = KEYS.get(name, "messages")
    data = {
        "list": json.dumps(messages, indent=2).encode(),
        "body": json.dumps({"id": "m", key: messages, "n": 1}, indent=4).encode(),
        "lines": lines(messages),
    }[holder]
    found = repair_file(data)
    assert [change.action for change in found.changes] == ["answered"]
    assert found.refused == ()
    value = [json.loads(line) for line in found.output.splitlines()] if holder == "lines" else json.loads(found.output)
    repaired = value[key] if holder == "body" else value
    assert len(repaired) == 3
    assert repaired[:2] == messages
    if holder != "lines":
        assert json.dumps(value, indent=2 if holder == "list" else 4).encode() == found.output


def test_both_spellings_of_gemini_are_known() -> None:
    """The SDK's own names are told from the wire's, and kept."""
    found = repair_file(dumped(SNAKE))
    assert found.provider == "gemini"
    assert b"function_response" in found.output


def test_what_fits_several_formats_is_taken_for_the_first() -> None:
    """A chat of texts only is valid in two formats: the first that fits, unless the caller names one."""
    data = dumped(
        [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}, {"role": "user", "content": "?"}]
    )
    assert repair_file(data).provider == "openai"
    assert repair_file(data, "anthropic").provider == "anthropic"


@pytest.mark.parametrize(
    ("more", "provider"),
    [
        ({"system": "Be brief."}, "anthropic"),
        ({"model": "mistral-large-latest"}, "mistral"),
        ({"model": "deepseek/deepseek-chat"}, "deepseek"),
        ({"model": "kimi-k2"}, "kimi"),
        ({"model": "Qwen3-Max"}, "qwen"),
        ({"model": "MiniMax-M2"}, "minimax"),
    ],
)
def test_a_body_tells_more_than_its_messages(more: dict[str, Any], provider: str) -> None:
    """Fields that one format has, and the name of the model."""
    assert repair_file(dumped({**more, "messages": [{"role": "user", "content": "Hi"}]})).provider == provider


def test_a_provider_that_does_not_exist_is_refused() -> None:
    """The error lists those that do."""
    with pytest.raises(UnknownFormatError, match="anthropic"):
        repair_file(b"[]", "nobody")


def test_a_body_of_responses_with_a_text_has_no_history() -> None:
    """``input`` may be a string: there is nothing to repair."""
    assert not repair_file(dumped({"model": "m", "input": "Hi"})).changes


def test_each_body_of_a_file_is_repaired_by_itself() -> None:
    """A log of requests: the line that needs no change keeps its bytes, and the changes name their lines."""
    good, broken = {"messages": MESSAGES["openai"]}, {"messages": MESSAGES["openai"][:2], "model": "m"}
    data = lines([good, broken, good])
    found = repair_file(data)
    before, after = data.splitlines(), found.output.splitlines()
    assert (after[0], after[2]) == (before[0], before[2])
    assert [change.line for change in found.changes] == [2]
    assert len(json.loads(after[1])["messages"]) == 3


@pytest.mark.parametrize(
    "text",
    [
        '{"messages": [{"role": "user", "content": "a"}], "x": 1.00}',
        '{ "messages" :[ {"role":"user","content":"\\u00e9"} ]\r\n, "z" : [1 , 2] }\r\n\r\n',
        '[{"role":"user",\n"content":"a"}]',
    ],
)
def test_a_document_that_needs_no_repair_keeps_its_bytes(text: str) -> None:
    """Spaces, escapes, numbers, line ends and the end of the file are the user's."""
    data = text.encode()
    assert repair_file(data).output is data


def test_the_look_around_a_change_is_kept() -> None:
    """Only the new element is written; the others and everything around them keep their bytes."""
    function = '{"name":"f","arguments":"{ }"}'
    call = '{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":' + function + "}]}"
    text = (
        '{ "temperature": 1.00,\r\n "messages": [\r\n  {"role": "user", "content": "\\u00e9"},\r\n  '
        + call
        + "\r\n ]\r\n}\r\n"
    )
    output = repair_file(text.encode()).output.decode()
    before, after = text.split(call)
    assert output.startswith(before + call + ",\r\n  {")
    assert output.endswith(after)


def test_a_byte_order_mark_is_taken_out() -> None:
    """Other parsers of JSON refuse it."""
    data = lines(MESSAGES["openai"])
    found = repair_file(b"\xef\xbb\xbf" + data)
    assert found.output == data
    assert [one.kind for one in found.damage] == ["byte-order-mark"]


def test_wrong_escapes_are_mended_in_place() -> None:
    """Half a surrogate pair, an escape that JSON does not have, a raw tab: the message stays (F109's neighbours)."""
    first = b'{"role":"user","content":"a\\ud83d b\\x c\td \\ud83d\\ude00"}\n'
    data = first + b'{"role":"assistant","content":"ok"}\n{"role":"user","content":"?"}\n'
    found = repair_file(data)
    assert json.loads(found.output.splitlines()[0])["content"] == "a\ufffd b\\x c\td 😀"
    assert {one.kind for one in found.damage} == {"control-character", "lone-surrogate"}


def test_what_a_request_lacks_is_put_into_it() -> None:
    """Bedrock wants the tools of a history to be declared (B4): a new member, and the others keep their bytes."""
    data = json.dumps({"modelId": "m", "messages": MESSAGES["bedrock"]}, indent=2).encode()
    found = repair_file(data)
    assert json.loads(found.output)["toolConfig"]["tools"]
    assert data.removeprefix(b"{") in found.output
