"""Transcripts of agents, with what breaks them: each is loaded again by a reader that works as the agent does."""

from __future__ import annotations

import json

import pytest
from tests.histories_files.transcripts import (
    CHAT,
    CLAUDE_CODE,
    CODEX,
    KINDS,
    PI,
    TALK,
    Event,
    Transcript,
    gemini_cli,
    paired_up,
)

from heaveto.histories.files import repair_file

kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


def said(events: list[Event]) -> list[str]:
    return [what for kind, what in events if kind in ("user", "say")]


@kinds
def test_a_clean_file_is_left_as_it_is(kind: Transcript) -> None:
    """Nothing is wrong, so nothing is written anew: the output is the input."""
    data = kind.write(TALK)
    found = repair_file(data)
    assert (found.kind, found.is_broken) == (kind.name, False), found
    assert found.output is data
    assert kind.events(data) == list(TALK)


@kinds
@pytest.mark.parametrize("missing", ["call_1", "call_2", "call_3"])
def test_a_call_without_a_result_gets_one(kind: Transcript, missing: str) -> None:
    """A result that was never written is made up behind its call, and what follows still leads to it (S1, S2)."""
    data = kind.write(tuple(event for event in TALK if event != ("result", missing)))
    found = repair_file(data)
    events = kind.events(found.output)
    assert paired_up(events), events
    assert sorted(events) == sorted(TALK)
    assert said(events) == said(list(TALK))
    assert [(change.action, change.call_id) for change in found.changes] == [("answered", missing)]
    assert found.refused == () and not found.damage


@kinds
def test_calls_at_the_end_get_their_results(kind: Transcript) -> None:
    """The agent was killed while its calls ran: they are answered at the end of the file (S1)."""
    data = kind.write(TALK[:7])
    found = repair_file(data)
    assert kind.events(found.output) == [*TALK[:7], ("result", "call_2"), ("result", "call_3")]


@kinds
def test_a_result_without_a_call_goes(kind: Transcript) -> None:
    """A result whose call is not there would be refused; what came after it is linked to what came before (S3)."""
    data = kind.write(tuple(event for event in TALK if event != ("call", "call_1")))
    found = repair_file(data)
    assert kind.events(found.output) == [event for event in TALK if event[1] != "call_1"]
    assert [change.action for change in found.changes] == ["dropped"]


@kinds
def test_one_of_two_results_for_a_call_stays(kind: Transcript) -> None:
    """A result that was written twice is sent once (S4)."""
    data = kind.write((*TALK[:3], TALK[2], *TALK[3:]))
    found = repair_file(data)
    assert kind.events(found.output) == list(TALK)


@kinds
def test_only_lines_that_change_are_written_anew(kind: Transcript) -> None:
    """All other lines keep their bytes: but for the links of a tree, what is new is one line."""
    data = kind.write(tuple(event for event in TALK if event != ("result", "call_3")))
    before, after = data.splitlines(), repair_file(data).output.splitlines()
    links = [b'"parentUuid"', b'"parentId"']
    changed = [line for line in before if line not in after]
    assert len(after) == len(before) + 1
    assert len(changed) <= 2 if any(link in data for link in links) else not changed


@kinds
def test_a_repaired_file_needs_no_repair(kind: Transcript) -> None:
    """Repairing twice is repairing once."""
    data = kind.write((*TALK[:6], *TALK[7:8], *TALK[9:]))
    once = repair_file(data).output
    again = repair_file(once)
    assert not again.is_broken, again
    assert again.output is once


@kinds
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_a_last_line_cut_off_is_set_aside(kind: Transcript, line_end: bytes) -> None:
    """What was whole stays; the next line that is appended will begin on a line of its own (F108)."""
    whole = kind.write(TALK).replace(b"\n", line_end)
    found = repair_file(whole + kind.write(TALK).splitlines()[-1][:30])
    assert found.output == whole
    assert [(one.kind, one.line, one.start, one.end) for one in found.damage] == [
        ("truncated", whole.count(b"\n") + 1, len(whole), len(whole) + 30)
    ]


@kinds
def test_nul_bytes_between_lines_cost_no_line(kind: Transcript) -> None:
    """A run of NULs that a power loss left in the middle is taken out, the line glued to it stays (F109)."""
    lines = kind.write(TALK).splitlines(keepends=True)
    found = repair_file(b"".join([*lines[:4], b"\0" * 300, *lines[4:]]))
    assert found.output == kind.write(TALK)
    assert [(one.kind, one.line, one.end - one.start) for one in found.damage] == [("nul-bytes", 5, 300)]


@kinds
def test_a_line_behind_a_torn_one_is_saved(kind: Transcript) -> None:
    """The next entry was appended to a fragment without a line end: only the fragment goes (F108)."""
    lines = kind.write(TALK).splitlines(keepends=True)
    found = repair_file(b"".join([*lines[:4], lines[4][:-20], *lines[4:]]))
    assert found.output == kind.write(TALK)
    assert [(one.kind, one.line) for one in found.damage] == [("unreadable", 5)]


@kinds
def test_two_entries_in_one_line_are_parted(kind: Transcript) -> None:
    """Two writers without a line end between them."""
    lines = kind.write(TALK).splitlines(keepends=True)
    glued = repair_file(b"".join([*lines[:4], lines[4].rstrip(b"\n"), *lines[5:]]))
    assert glued.output == kind.write(TALK)
    assert [one.kind for one in glued.damage] == ["glued"]


@kinds
def test_an_entry_written_into_another_is_saved(kind: Transcript) -> None:
    """Two writers: the whole entry in the middle of the other's line stays, both halves of that are set aside."""
    lines = kind.write((("user", "One."), ("say", "Two."), ("user", "Three."))).splitlines(keepends=True)
    mixed = lines[-3][:25] + lines[-2] + lines[-3][25:]
    found = repair_file(b"".join([*lines[:-3], mixed, lines[-1]]))
    assert len(found.output.splitlines()) == len(lines) - 1
    assert found.output.endswith(lines[-1])
    assert [one.action for one in found.damage if one.kind == "unreadable"] == ["set aside", "set aside"]


@kinds
def test_bytes_that_are_no_utf8_cost_only_themselves(kind: Transcript) -> None:
    """A broken character within a text becomes U+FFFD; the message stays."""
    data = kind.write(TALK).replace("🙂".encode(), b"\xf0\x9f")
    found = repair_file(data)
    assert ("user", "Größe? \ufffd") in kind.events(found.output)
    assert {one.kind for one in found.damage} == {"invalid-utf8"}


@kinds
def test_a_line_in_the_middle_that_cannot_be_read_costs_only_itself(kind: Transcript) -> None:
    """Its bytes are set aside, with line and range; a tree is linked again around it; a call it held is no call."""
    lines = kind.write(TALK).splitlines(keepends=True)
    gone = next(number for number, line in enumerate(lines) if b"It is large" in line and b"event_msg" not in line)
    found = repair_file(b"".join([*lines[:gone], b"{garbage\n", *lines[gone + 1 :]]))
    assert kind.events(found.output) == [event for event in TALK if event != ("say", "It is large.")]
    assert ("unreadable", gone + 1) in [(one.kind, one.line) for one in found.damage]


@pytest.mark.parametrize("kind", [CLAUDE_CODE, PI], ids=lambda kind: kind.name)
def test_an_entry_that_was_written_twice_is_kept_once(kind: Transcript) -> None:
    """The same bytes with the same id are the same entry."""
    lines = kind.write(TALK).splitlines(keepends=True)
    found = repair_file(b"".join([*lines[:5], lines[4], *lines[5:]]))
    assert found.output == kind.write(TALK)
    assert [(one.kind, one.line) for one in found.damage] == [("duplicate-line", 6)]


def test_the_same_words_said_twice_stay() -> None:
    """Messages without an id may be alike: a user who says "yes" twice."""
    data = CHAT.write((("user", "yes"), ("say", "?"), ("user", "yes"), ("say", "?")))
    assert not repair_file(data).is_broken


def test_a_branch_that_was_left_is_not_looked_at() -> None:
    """Claude Code: the user went back before a call without a result; what is loaded is valid, so it stays as it is."""
    lines = [json.loads(line) for line in CLAUDE_CODE.write(TALK[:6]).splitlines()]
    back = {**lines[-2], "uuid": "back", "message": {"role": "user", "content": "Something else."}}
    data = b"".join(json.dumps(line).encode() + b"\n" for line in [*lines, back])
    found = repair_file(data)
    assert not found.is_broken
    assert CLAUDE_CODE.events(data)[-1] == ("user", "Something else.")


def test_what_stands_before_a_compact_boundary_is_not_looked_at() -> None:
    """Claude Code: the boundary has no parent, and what is before it is not sent any more."""
    lines = [json.loads(line) for line in CLAUDE_CODE.write(TALK[:6]).splitlines()]
    boundary = {"parentUuid": None, "logicalParentUuid": lines[-1]["uuid"], "type": "system", "uuid": "b"}
    after = {**lines[1], "parentUuid": "b", "uuid": "after"}
    assert not repair_file(b"".join(json.dumps(line).encode() + b"\n" for line in [*lines, boundary, after])).is_broken


def test_a_side_conversation_is_repaired_by_itself() -> None:
    """Claude Code: an agent under the main one, in the same file; its results do not count for the main one's calls."""
    main = [json.loads(line) for line in CLAUDE_CODE.write(TALK[:3]).splitlines()]
    side = [json.loads(line) for line in CLAUDE_CODE.write((("user", "Find it."), ("call", "call_9"))).splitlines()][1:]
    for line in side:
        parent = line["parentUuid"]
        line |= {"isSidechain": True, "uuid": f"side-{line['uuid']}", "parentUuid": parent and f"side-{parent}"}
    data = b"".join(json.dumps(line).encode() + b"\n" for line in [*main, *side])
    found = repair_file(data)
    assert [change.call_id for change in found.changes] == ["call_9"]
    added = json.loads(found.output.splitlines()[-1])
    assert added["isSidechain"] is True and added["parentUuid"] == side[-1]["uuid"]


def test_a_made_up_line_has_the_agents_own_form() -> None:
    """Claude Code: the fields of the line of its call; an id that is the same each time; a link back to the call."""
    data = CLAUDE_CODE.write(TALK[:2])
    lines = [json.loads(line) for line in repair_file(data).output.splitlines()]
    call, added = lines[-2:]
    assert added.keys() - call.keys() == {"sourceToolAssistantUUID"}
    assert {key: added[key] for key in ("type", "parentUuid", "sourceToolAssistantUUID", "sessionId", "cwd")} == {
        "type": "user", "parentUuid": call["uuid"], "sourceToolAssistantUUID": call["uuid"],
        "sessionId": call["sessionId"], "cwd": call["cwd"],
    }  # fmt: skip
    assert repair_file(data).output == repair_file(data).output


def test_a_compacted_rollout_begins_at_what_replaced_it() -> None:
    """Codex: what stands before is not sent any more; a call in the replacement is answered behind it."""
    call = {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "call_8"}
    compacted = {"timestamp": "t", "type": "compacted", "payload": {"message": "", "replacement_history": [call]}}
    before = CODEX.write(TALK[:7]).splitlines()
    data = b"".join(line + b"\n" for line in [*before, json.dumps(compacted).encode()]) + CODEX.write(
        (("user", "Go on."),)
    )
    found = repair_file(data)
    assert [change.call_id for change in found.changes] == ["call_8"]
    lines = found.output.splitlines()
    assert json.loads(lines[len(before) + 1])["payload"]["call_id"] == "call_8"


def test_an_answer_that_was_stopped_is_not_given_results() -> None:
    """pi does not send answers that ended in an abort: a result for one would be a result without a call."""
    lines = [json.loads(line) for line in PI.write(TALK[:2]).splitlines()]
    lines[-1]["message"]["stopReason"] = "aborted"
    assert not repair_file(b"".join(json.dumps(line).encode() + b"\n" for line in lines)).is_broken


def test_a_gemini_cli_call_gets_its_result_where_the_agent_looks_for_it() -> None:
    """The last line of the record is changed: the result stands in the record of the call."""
    assert not repair_file(gemini_cli()).is_broken
    found = repair_file(gemini_cli(answered=False))
    call = json.loads(found.output.splitlines()[2])["toolCalls"][0]
    assert call["status"] == "cancelled"
    response = call["result"][0]["functionResponse"]
    assert (response["id"], response["name"], list(response["response"])) == ("ls-1", "ls", ["error"])
    assert [(change.action, change.line) for change in found.changes] == [("answered", 3)]
    assert not repair_file(found.output).is_broken


def test_a_gemini_cli_chat_in_one_document_keeps_its_look() -> None:
    """Before 2026 a chat was one JSON document: only the record that changes is written anew, indented as it was."""
    lines = [json.loads(line) for line in gemini_cli(answered=False).splitlines()]
    chat = {**lines[0], "messages": [line for line in lines[1:] if "id" in line]}
    data = json.dumps(chat, indent=2).encode()
    found = repair_file(data)
    assert found.kind == "gemini-cli"
    assert json.dumps(json.loads(found.output), indent=2).encode() == found.output
    assert json.loads(found.output)["messages"][1]["toolCalls"][0]["result"]


def test_lines_that_are_nobodys_are_only_mended() -> None:
    """Events of an agent that is not known here: only their text is repaired (F108, F109)."""
    whole = b'{"type":"tool.execution_start","data":{},"id":"1"}\n{"type":"assistant.turn_end","data":{},"id":"2"}\n'
    found = repair_file(whole + b"\0" * 10 + b'{"type":"assis')
    assert (found.kind, found.output, found.messages) == ("unknown", whole, 0)


def test_codex_has_habits_of_its_own() -> None:
    """Reasoning without an id, and a shell call whose output is a function's, are as the agent writes them."""
    items: list[dict[str, object]] = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "List."}]},
        {"type": "reasoning", "summary": [], "content": None, "encrypted_content": "x"},
        {
            "type": "local_shell_call",
            "call_id": "c",
            "status": "completed",
            "action": {"type": "exec", "command": ["ls"]},
        },
        {"type": "function_call_output", "call_id": "c", "output": "a b"},
        {"type": "ghost_snapshot", "ghost_commit": {"id": "0"}},
    ]
    lines = [{"timestamp": "t", "type": "response_item", "payload": item} for item in items]
    assert not repair_file(b"".join(json.dumps(line).encode() + b"\n" for line in lines)).is_broken
    found = repair_file(b"".join(json.dumps(line).encode() + b"\n" for line in lines[:3]))
    assert json.loads(found.output.splitlines()[-1])["payload"]["type"] == "function_call_output"


def test_other_lines_stay_between_messages() -> None:
    """A file of messages may have lines of something else, and blank ones: they stay where they are."""
    lines = CHAT.write(TALK[:2]).splitlines(keepends=True)
    note = b'{"note": 1}\n'
    found = repair_file(b"".join([note, lines[0], b"\n", lines[1], note]))
    assert found.output.startswith(b"".join([note, lines[0], b"\n", lines[1]]))
    assert found.output.count(note) == 2
    assert CHAT.events(b"".join(line for line in found.output.splitlines(keepends=True) if b"role" in line))[-1] == (
        "result",
        "call_1",
    )
