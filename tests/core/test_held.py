"""What a provider holds of a conversation, as the log tells it."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.core.logs import Log
from tests.core.strategies import grammatical_logs
from tests.effort import examples

from heaveto.core.project import View, project
from heaveto.core.request import Held, ModelProfile, ModelRequest
from heaveto.events.contents import Content, FunctionCall
from heaveto.events.records import Compacted, Message, Record, Rewound

RESPONSES = ModelProfile("openai-responses")


def held_answer(log: Log, response_id: str, *parts: Any, **more: Any) -> Message:
    fields = {"provider": RESPONSES.name, "data": {"id": response_id, "held": True}, **more}
    return log.say("r", *(parts or (f"answer {response_id}",)), **fields)


def held(log: Log, agent: str = "a", **more: Any) -> Held:
    return project(log.records, agent, RESPONSES, **more).held


def test_nothing_is_held_before_the_first_answer() -> None:
    """The first request carries everything."""
    log = Log()
    log.run("r", "hi")
    assert held(log) == Held("", 0)


def test_what_is_new_follows_the_last_held_answer() -> None:
    """The provider has all turns up to its answer, that one included (P9)."""
    log = Log()
    log.run("r", "hi")
    held_answer(log, "resp_1", FunctionCall(call_id="c1", name="t"))
    log.start("r", "c1")
    log.settle("r", "c1", response={"result": 1})
    assert held(log) == Held("resp_1", 2)
    turns = project(log.records, "a", RESPONSES)
    assert [turn.role for turn in turns[held(log).turns :]] == ["tool"]
    held_answer(log, "resp_2")
    log.run("r2", "more")
    assert held(log) == Held("resp_2", 4)


def test_an_answer_that_is_not_held_is_told_by_what_follows_the_last_one_that_is() -> None:
    """Stopped in mid-stream, made by another provider, or changed by a callback: the pointer steps back (F39)."""
    for fields in (
        {"interrupted": "user", "data": None},
        {"interrupted": "guardrail"},
        {"provider": "anthropic"},
        {"data": None},
        {"data": {"id": "resp_2"}},
    ):
        log = Log()
        log.run("r", "hi")
        held_answer(log, "resp_1")
        log.run("r2", "more")
        held_answer(log, "resp_2", **fields)
        log.run("r3", "go on")
        assert held(log) == Held("resp_1", 2)


def test_another_agent_and_another_branch_have_their_own() -> None:
    """What they were told is not what this one is told."""
    log = Log()
    log.run("r", "hi")
    held_answer(log, "resp_a")
    held_answer(log, "resp_b", author="b")
    held_answer(log, "resp_below", branch="x")
    assert held(log) == Held("resp_a", 2)
    assert held(log, "b").response_id == "resp_b"
    assert held(log, branch="x").response_id == "resp_below"
    assert held(log, branch="y").response_id == ""


def test_a_rewind_steps_back_to_the_answer_before_it() -> None:
    """The provider keeps the abandoned answers, but nothing points to them any more."""
    log = Log()
    log.run("r", "hi")
    first = held_answer(log, "resp_1")
    log.run("r2", "more")
    held_answer(log, "resp_2")
    log.add(Rewound, run_id="", to=first.seq)
    log.run("r3", "other")
    assert held(log) == Held("resp_1", 2)
    assert len(project(log.records, "a", RESPONSES)) == 3


def test_a_summary_ends_what_was_held_before_it() -> None:
    """Otherwise the provider would go on with all that the summary stands for."""
    log = Log()
    log.run("r", "hi")
    first = held_answer(log, "resp_1")
    log.run("r2", "more")
    second = held_answer(log, "resp_2")
    log.add(Compacted, run_id="", upto=first.seq, summary=Content.of("They greeted."))
    assert held(log) == Held("", 0)
    log.run("r3", "on")
    held_answer(log, "resp_late", seen=second.seq)
    assert held(log) == Held("", 0)
    held_answer(log, "resp_3")
    assert held(log).response_id == "resp_3"


def test_turns_that_a_callback_made_are_not_held() -> None:
    """They are not what the log will say at the next request."""
    log = Log()
    log.run("r", "hi")
    held_answer(log, "resp_1")
    log.run("r2", "more")
    request = ModelRequest(turns=project(log.records, "a", RESPONSES))
    assert request.held == Held("resp_1", 2)
    assert replace(request, instruction="Be brief.").held == request.held
    assert replace(request, turns=[*request.turns]).held is None


@settings(max_examples=examples(300), deadline=None)
@given(grammatical_logs(rewrites=True), st.sampled_from(("", "root.left", "root.right")))
def test_what_the_provider_holds_is_what_its_request_said(records: list[Record], branch: str) -> None:
    """Whatever came since, rewinds and summaries too: the held turns are those of the request, and its answer (F39)."""
    held_ones = [_as_held(record) for record in records]
    for agent in sorted({record.author for record in records if isinstance(record, Message)} - {"user"}):
        view = View(agent, branch, RESPONSES)
        for end in range(1, len(held_ones) + 1):
            turns = view.turns(held_ones[:end])
            if turns.held.response_id:
                answer = next(record for record in held_ones[:end] if _response_id(record) == turns.held.response_id)
                asked = project(held_ones[: answer.seen], agent, RESPONSES, branch=branch)
                assert list(turns)[: turns.held.turns - 1] == list(asked)
                assert (answer.author, answer.branch) == (agent, branch)


def _as_held(record: Record) -> Record:
    if isinstance(record, Message) and record.interrupted is None and record.author != "user":
        return replace(record, data={"id": f"resp_{record.seq}", "held": True}, provider=RESPONSES.name)
    return record


def _response_id(record: Record) -> str:
    return record.data["id"] if isinstance(record, Message) and record.data and "held" in record.data else ""
