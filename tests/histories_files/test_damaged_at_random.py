"""Whatever happens to the bytes of a file: reading it never raises, and no message that is whole is lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.histories_files.transcripts import CHAT, KINDS, TALK, Transcript, gemini_cli, paired_up, read_chat

from heaveto.histories.files import repair_file

kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
BODY: dict[str, Any] = {
    "model": "gpt-5",
    "messages": [json.loads(line) for line in CHAT.write(TALK).splitlines()],
    "temperature": 0.5,
}
LOOKS = {
    "indented": json.dumps(BODY, indent=2, ensure_ascii=False).encode(),
    "in one line": json.dumps(BODY).encode(),
    "a list": json.dumps(BODY["messages"], indent="\t").encode(),
    "a line for each": b"[\n" + b",\n".join(json.dumps(message).encode() for message in BODY["messages"]) + b"\n]\n",
    "in a wrapper": json.dumps({"id": 7, "request": BODY, "note": "x"}, indent=1).encode(),
}
looks = pytest.mark.parametrize("look", LOOKS)


@kinds
def test_cut_at_every_byte_all_whole_lines_stay(kind: Transcript) -> None:
    """A file cut anywhere keeps each line that was complete, byte by byte, and can be loaded (F108)."""
    data = kind.write(TALK)
    for end in range(len(data)):
        found = repair_file(data[:end])
        kept = set(found.output.splitlines())
        for line in data[:end].splitlines(keepends=True):
            if line.endswith(b"\n") and b"parent" not in line:
                assert line.rstrip(b"\n") in kept, (end, found)
        if b'"call_1"' in data[:end] and kind is not CHAT:
            assert paired_up(kind.events(found.output)), end


@looks
def test_a_document_cut_at_every_byte_keeps_its_whole_elements(look: str) -> None:
    """What is complete before the cut is saved, and the result is a JSON document again."""
    data = LOOKS[look]
    whole = BODY["messages"]
    for end in range(len(data)):
        found = repair_file(data[:end])
        if not found.messages:
            continue
        assert not any("no JSON" in problem for problem in found.problems), (end, found.output.decode())
        value = json.loads(found.output)
        value = value.get("request", value) if isinstance(value, dict) else value
        saved = value["messages"] if isinstance(value, dict) else value
        kept = [message for message in saved if message in whole]
        complete = sum(element_end <= end for element_end in element_ends(data))
        assert kept[:complete] == whole[:complete], end


def element_ends(data: bytes) -> list[int]:
    """Where each message of a document ends, in bytes."""
    text = data.decode()
    at = 0 if text.startswith("[") else text.index('"messages"')
    ends: list[int] = []
    while (at := text.find("{", at)) >= 0:
        try:
            value, at = json.JSONDecoder().raw_decode(text, at)
        except ValueError:
            break
        if "role" in value:
            ends.append(len(text[:at].encode()))
    assert len(ends) == len(BODY["messages"])
    return ends


@kinds
@given(data=st.data())
def test_a_flipped_byte_costs_at_most_its_line(kind: Transcript, data: st.DataObject) -> None:
    """All other lines stay: as they were, or linked again around what was lost."""
    whole = kind.write(TALK)
    place = data.draw(st.integers(0, len(whole) - 1))
    damaged = bytearray(whole)
    damaged[place] = data.draw(st.integers(0, 255))
    found = repair_file(bytes(damaged))
    hit = whole.count(b"\n", 0, place)
    spared = {hit, hit + 1} if whole[place : place + 1] == b"\n" else {hit}
    words = [what for kind_, what in TALK if kind_ in ("user", "say")]
    lines = whole.splitlines()
    for word in words:
        holders = [number for number, line in enumerate(lines) if word.encode() in line]
        if not spared & set(holders):
            assert found.output.count(word.encode()) >= len(holders), found


@looks
@given(data=st.data())
def test_a_flipped_byte_in_a_document_costs_at_most_its_element(look: str, data: st.DataObject) -> None:
    """What is said in the other elements is still there."""
    whole = LOOKS[look]
    place = data.draw(st.integers(0, len(whole) - 1))
    damaged = bytearray(whole)
    damaged[place] = data.draw(st.integers(0, 255))
    output = repair_file(bytes(damaged)).output
    for number, end in enumerate(element_ends(whole)):
        message = BODY["messages"][number]
        start = whole.rfind(b"{", 0, whole.rfind(b'"role"', 0, end))
        words = json.dumps(message["content"])[1:-1].encode()
        if message["role"] in ("user", "assistant") and message["content"] and not start <= place < end and number:
            assert words in output, message


@given(
    which=st.sampled_from([*[kind.write(TALK) for kind in KINDS], *LOOKS.values(), gemini_cli(answered=False)]),
    cuts=st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=6) | st.sampled_from([b"\0" * 9, b'"', b"}", b"\\"]))),
)
def test_nothing_that_a_file_holds_raises(which: bytes, cuts: list[tuple[float, bytes]]) -> None:
    """Bytes put over others anywhere: there is a report, and what comes out needs no second repair of its text."""
    data = bytearray(which)
    for where, what in cuts:
        at = int(where * len(data))
        data[at : at + len(what)] = what
    found = repair_file(bytes(data))
    assert repair_file(found.output).damage == () or found.problems
    for one in found.damage:
        assert 0 <= one.start <= one.end <= len(data)


@kinds
def test_a_place_is_told_as_it_was_read(kind: Transcript) -> None:
    """Also of a line that is corrected, and thereby longer, and linked again because an earlier one was lost."""
    lines = kind.write(TALK).splitlines()
    for place in range(1, len(lines) - 1):
        corrected = lines[-1].replace(b'"}', b'\x01\x02"}', 1).replace(b'"]', b'\x01\x02"]', 1)
        data = b"\n".join([*lines[:place], b'{"lost', *lines[place + 1 : -1], corrected])
        found = repair_file(data)
        assert found.damage
        for one in found.damage:
            assert 0 <= one.start <= one.end <= len(data), one


@given(st.binary(max_size=200))
def test_any_bytes_are_read(data: bytes) -> None:
    """No input is refused by an error of Python's."""
    repair_file(data)
    repair_file(b"[" + data)
    repair_file(b'{"messages":[' + data)


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"[]", b"{}", b"null", b"[" * 100_000, b'{"a":' * 100_000, b"\xff\xfeA\0"]
)
def test_files_without_messages_are_said_to_be_so(data: bytes) -> None:
    """Nothing is made of them: the output is the input."""
    found = repair_file(data)
    assert found.output == data or found.damage
    assert found.messages == 0


def test_the_chat_in_this_file_is_what_it_seems() -> None:
    """The documents hold the same talk."""
    assert list(read_chat(BODY["messages"])) == list(TALK)
