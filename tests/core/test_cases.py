"""Public failure cases of other agent runtimes, as the log that each would be here, and what the model is told.

`Log.told` checks that all four wire formats accept what it returns.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.core.logs import ANTHROPIC, Log, all_text, call, draft, results, shape, user_text
from tests.core.strategies import FAMILIES, searched, signed_thought

from heaveto.core.close import Ending
from heaveto.core.project import View, project
from heaveto.core.request import ModelProfile, ModelRequest
from heaveto.events.contents import Content, FunctionCall, Opaque, ProviderCall, Thought, calls_of
from heaveto.events.records import (
    CallSettled,
    CallStarted,
    Cause,
    Compacted,
    ErrorInfo,
    Message,
    Rewound,
    RunEnded,
    RunStarted,
    WaitingCall,
)
from heaveto.models.wire import anthropic, gemini, openai_chat, openai_responses


def asked(*calls: str, said: str = "task A") -> Log:
    """A run whose agent `a` was asked something and made these calls."""
    log = Log()
    log.run("r1", said)
    log.say("r1", *(call(call_id) for call_id in calls))
    return log


def statuses(log: Log) -> list[str]:
    """What the model is told of each call, in one word; a plain result is ``ok``."""
    return [response.get("status", "failed" if is_error else "ok") for _, response, is_error in results(log.told())]


# --- a call without its result ------------------------------------------------------------------------------------


def test_a_process_that_dies_during_a_tool_leaves_an_unknown_outcome() -> None:
    """F01: the started call is closed once, before the next user text, as unknown; nobody is blamed for it."""
    log = asked("c1")
    log.start("r1", "c1")
    log.crash("r1")
    log.run("r2", "hi")
    told = log.told()
    assert shape(told) == "umtu"
    ((call_id, response, is_error),) = results(told)
    assert (call_id, response["status"], is_error) == ("c1", "unknown", True)
    assert "the process died" in response["error"] and "user" not in response["error"]
    assert user_text(told[-1]).endswith("hi")


def test_a_log_that_just_stops_is_a_valid_request_too() -> None:
    """F01: even before anyone has closed the run, what its death left can be asked about."""
    log = asked("c1", "c2")
    log.start("r1", "c1")
    log.run("r2", "hi")
    assert statuses(log) == ["unknown", "not_started"]


@pytest.mark.parametrize("cause", ["user", "superseded", "shutdown"])
def test_a_stop_during_a_tool_answers_its_call(cause: Cause) -> None:
    """F02: the closing batch of a stop holds the result of every open call, so the next message is accepted."""
    log = asked("c1")
    log.start("r1", "c1")
    log.ask_to_stop("r1", cause)
    batch = log.cancel("r1", cause, work={"c1": "stopped"})
    assert [record.status for record in batch if isinstance(record, CallSettled)] == ["cancelled"]
    log.run("r2", "do something else")
    assert (shape(log.told()), statuses(log)) == ("umtu", ["cancelled"])


def test_each_provider_gets_result_and_text_in_its_own_shape() -> None:
    """F03: one user message, results first, for Anthropic; tool messages, then the user, for Chat; two for Gemini."""
    log = asked("c1", "c2")
    log.cancel("r1")
    log.run("r2", "stop, do X")
    request = ModelRequest(turns=log.told())
    last = anthropic.encode(request)["messages"][-1]
    assert [block["type"] for block in last["content"]] == ["tool_result", "tool_result", "text", "text"]
    assert [message["role"] for message in openai_chat.encode(request)["messages"]] == [
        "user", "assistant", "tool", "tool", "user",
    ]  # fmt: skip
    contents = gemini.encode(request)["contents"]
    assert [sum("functionResponse" in part for part in content["parts"]) for content in contents] == [0, 0, 2, 0]


def test_a_result_without_a_call_is_left_out() -> None:
    """F04: an orphan result makes nothing raise, and nothing of it is sent as a result."""
    log = Log()
    log.run("r1", "q")
    log.settle("r1", "c9", response={"value": "x"})
    told = log.told()
    assert (shape(told), results(told)) == ("u", [])


def test_a_pair_is_quoted_together_or_not_at_all() -> None:
    """F05: another agent's call and result are both quoted; those of a branch that is not seen are both left out."""
    log = asked("c1")
    log.settle("r1", "c1", response={"value": "one"})
    log.say("r1", call("c2", "hidden"), author="p1", branch="par.p1")
    log.settle("r1", "c2", response={"value": "two"})
    quoted = log.told("b", branch="par.p2")
    assert "[a called t with {}]" in all_text(quoted) and "one" in all_text(quoted)
    assert "hidden" not in all_text(quoted) and "two" not in all_text(quoted)


@pytest.mark.parametrize("finished", [0, 1])
def test_a_stop_is_told_the_same_whether_or_not_a_sibling_had_finished(finished: int) -> None:
    """F06: calls received and none finished, or one of two finished: the open ones are answered, the stop is told."""
    log = asked("c1", "c2")
    for call_id in ("c1", "c2")[:finished]:
        log.start("r1", call_id)
        log.settle("r1", call_id)
    log.cancel("r1")
    log.run("r2", "x")
    told = log.told()
    assert statuses(log) == [*["ok"] * finished, *["not_started"] * (2 - finished)]
    assert user_text(told[-1]).startswith("[The user stopped the task above.")


def test_an_aborted_answer_and_its_repetition_are_two_turns() -> None:
    """F07: what is said after an abort never lands in the message that holds the call; the result stands between."""
    log = Log()
    log.run("r1", "q")
    log.cancel("r1", drafts=[draft(log, "r1", "I look.", call("c1"))])
    log.run("r2", "again")
    log.say("r2", Thought(text="hm"), "Here it is.")
    told = log.told()
    assert shape(told) == "umtumu"
    assert [len(calls_of(turn.parts)) for turn in told] == [0, 1, 0, 0, 0, 0]


def test_a_late_result_takes_the_calls_place_or_is_told_where_it_came() -> None:
    """F08: before the model has spoken again it is the result; afterwards it is news; never are there two results."""
    log = asked("c1")
    log.start("r1", "c1")
    log.cancel("r1", work={"c1": "still_running"})
    log.run("r2", "next")
    early, late = Log(), Log()
    for record in log.records:
        early.put(record)
        late.put(record)
    early.settle("", "c1", response={"value": "late"}, late=True)
    assert [response for _, response, _ in results(early.told())] == [{"value": "late"}]
    late.say("r2", "I know nothing of it.")
    late.settle("", "c1", response={"value": "late"}, late=True)
    assert statuses(late) == ["unknown"]
    assert (
        user_text(late.told()[-1]).count('[Late result of the earlier call c1 to t, succeeded: {"value":"late"}]') == 1
    )


def test_a_call_that_was_told_as_waiting_is_told_as_started_until_its_outcome_is_known() -> None:
    """The last word on a call is what is known now; the outcome takes the place of the news that no model has read."""
    log = asked("c1")
    log.pause("r1", WaitingCall(call_id="c1", kind="confirmation"))
    log.run("r2", "meanwhile")
    log.say("r2", "It waits for a yes.")
    log.end("r2")
    log.answer("r1", "c1")
    log.go_on("r1")
    log.start("r1", "c1")
    assert user_text(log.told()[-1]).startswith("[News of the earlier call c1 to t, unknown:")
    log.settle("r1", "c1", response={"value": "done"})
    assert user_text(log.told()[-1]) == '[Late result of the earlier call c1 to t, succeeded: {"value":"done"}]'


def test_finished_running_and_unstarted_siblings_are_told_apart() -> None:
    """F10: three calls, three different truths, in one turn and in the order of the calls."""
    log = asked("a", "b", "c")
    log.start("r1", "a", "b")
    log.settle("r1", "a", response={"value": 1})
    log.cancel("r1", work={"b": "stopped"})
    log.run("r2", "go on")
    (first, second, third) = [response for _, response, _ in results(log.told())]
    assert first == {"value": 1}
    assert "may have had partial effect" in second["error"]
    assert "had no effect" in third["error"]


def test_parallel_results_are_one_turn_in_call_order_and_pending_ones_hold_their_place() -> None:
    """F11: Gemini counts parts; a call that waits is told as pending and stays open in the log."""
    log = asked("a", "b")
    log.start("r1", "a", "b")
    log.pause("r1", WaitingCall("a", "long_running"))
    log.settle("r1", "b", response={"value": 2})
    log.run("r2", "how long?")
    assert [(call_id, response.get("status"), is_error) for call_id, response, is_error in results(log.told())] == [
        ("a", "pending", False),
        ("b", None, False),
    ]
    assert log.state.calls["a"].settled is None


# --- summaries ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("upto", range(8))
def test_a_summary_may_cut_anywhere(upto: int) -> None:
    """F12: wherever the cut falls, also within a batch, the request is valid and no result behind it is lost."""
    log = asked("a", "b")
    log.start("r1", "a", "b")
    log.settle("r1", "a", response={"value": "one"})
    log.settle("r1", "b", response={"value": "two"})
    log.add(Compacted, upto=upto, summary=Content.of("Earlier: much."))
    log.run("r2", "go on")
    told = log.told()
    text = all_text(told) + str(results(told))
    assert user_text(told[0]).startswith("Earlier: much.")
    assert ("one" in text, "two" in text) == (upto < 5, upto < 6)


def test_what_stood_in_for_a_result_goes_with_its_call() -> None:
    """F14: repairs are not in the log, so a summary that takes a call away leaves no synthetic result behind."""
    log = asked("c1")
    log.run("r2", "hi")
    assert statuses(log) == ["not_started"]
    log.add(Compacted, upto=2, summary=Content.of("Earlier: much."))
    assert results(log.told()) == []


def test_work_that_is_still_open_survives_a_summary() -> None:
    """P2: a straggler's late result, and the end of the run that was summarised, are told behind the summary."""
    log = asked("c1")
    log.start("r1", "c1")
    log.settle("r1", "c1", "unknown", cause="user")
    log.add(Compacted, upto=log.last_seq, summary=Content.of("Earlier: c1."))
    log.cancel("r1")
    log.settle("", "c1", response={"value": "late"}, late=True)
    (turn,) = log.told()
    first, stopped, late = user_text(turn).splitlines()
    assert (first, stopped.startswith("[The user stopped"), '{"value":"late"}' in late) == ("Earlier: c1.", True, True)


def test_a_summary_stands_first_also_before_an_answer_that_did_not_see_it() -> None:
    """P9: an answer under way while the summary is written is told behind it."""
    log = Log()
    log.run("r1", "one")
    log.say("r1", "first")
    log.say("r1", "two", author="user")
    seen = log.last_seq
    log.say("r1", "three", author="user")
    log.say("r1", "second", seen=seen)
    log.add(Compacted, upto=2, summary=Content.of("Earlier: one."))
    told = log.told()
    assert [user_text(turn) for turn in told] == ["Earlier: one.\ntwo", "second", "three"]


def test_a_summary_covers_nothing_that_came_after_it() -> None:
    """F12: whatever number it names, and however often the view is built anew."""
    log = asked("c1")
    log.add(Compacted, upto=99, summary=Content.of("Earlier: c1."))
    log.run("r2", "after it")
    log.add(Rewound, to=log.last_seq)
    assert all_text(log.told()) == "Earlier: c1.\nafter it"


# --- arguments and ids --------------------------------------------------------------------------------------------


def wire_arguments(log: Log) -> list[Any]:
    """The arguments of each call as each format carries them, parsed where they are text."""
    request = ModelRequest(turns=log.told())
    chat = [
        c["function"]["arguments"] for m in openai_chat.encode(request)["messages"] for c in m.get("tool_calls", [])
    ]
    items = openai_responses.encode(request)["input"]
    texts = [*chat, *(item["arguments"] for item in items if item.get("type") == "function_call")]
    blocks = [block for message in anthropic.encode(request)["messages"] for block in message["content"]]
    parts = [part for content in gemini.encode(request)["contents"] for part in content["parts"]]
    return [
        *(msgspec.json.decode(text) for text in texts),
        *(block["input"] for block in blocks if block["type"] == "tool_use"),
        *(part["functionCall"]["args"] for part in parts if "functionCall" in part),
    ]


def test_long_arguments_stay_whole_objects() -> None:
    """F16: nothing shortens arguments as text; on every wire they are the object that the model made."""
    args = {"body": "x" * 200_000, "quote": '"\\'}
    log = Log()
    log.run("r1", "q")
    log.say("r1", call("c1", "write", args=args))
    assert wire_arguments(log) == [args] * 4


def test_broken_arguments_are_sent_as_an_empty_object() -> None:
    """F31: the raw text stays in the log for diagnosis; on every wire there is an object, also for no arguments."""
    log = Log()
    log.run("r1", "q")
    said = log.say(
        "r1", call("c1", raw_args='{"q":"hel', defect="truncated", args={"q": "hel"}), call("c2", "now", raw_args="")
    )
    assert wire_arguments(log) == [{}] * 8
    assert isinstance(said.parts[0], FunctionCall) and said.parts[0].raw_args == '{"q":"hel'


def test_the_first_result_of_a_call_is_the_only_one() -> None:
    """F17: two writers answer one call; the model gets one result, the first."""
    log = asked("c1")
    log.settle("r1", "c1", "failed", response={"error": "invalid input"})
    log.settle("r1", "c1", response={"value": "from the handler"})
    assert [response for _, response, _ in results(log.told())] == [{"error": "invalid input"}]


@pytest.mark.parametrize("second", ["x", "y"])
def test_a_result_that_is_posted_twice_counts_once(second: str) -> None:
    """F18: repeated after a network retry, the same or not, the one that came first stays at its place."""
    log = asked("c1")
    log.settle("r1", "c1", response={"value": "x"})
    log.say("r1", "It is x.")
    before = list(log.told())
    log.settle("r1", "c1", response={"value": second})
    log.settle("", "c1", response={"value": second}, late=True)
    assert list(log.told()) == before


def repeating() -> Log:
    """Three turns whose provider gives every call the same id."""
    log = Log()
    log.run("r1", "q")
    for number in range(3):
        log.say("r1", call(f"c{number}", provider="anthropic", provider_id="call_0"))
        log.settle("r1", f"c{number}", response={"value": number})
    return log


def test_ids_that_repeat_are_paired_by_position() -> None:
    """F20: a provider that names every call alike loses no result; on the wire the ids are unique."""
    told = repeating().told()
    assert [response["value"] for _, response, _ in results(told)] == [0, 1, 2]
    assert [call_id for call_id, _, _ in results(told)] == ["call_0", "c1", "c2"]


def test_our_own_ids_may_repeat_as_well() -> None:
    """F20: where a callback names its calls alike, each call gets the result that followed it."""
    log = Log()
    log.run("r1", "q")
    for value in ("1", "2"):
        log.say("r1", call("X"))
        log.settle("r1", "X", response={"value": value})
    assert [response["value"] for _, response, _ in results(log.told())] == ["1", "2"]


def test_a_call_that_is_sent_twice_in_one_answer_is_one_call() -> None:
    """F19: a reconnect that repeats a call leads to one call and one result."""
    log = Log()
    log.run("r1", "q")
    log.say("r1", call("c1"), call("c1"))
    log.settle("r1", "c1")
    told = log.told()
    assert (results(told), len(told[1].parts)) == ([("c1", {}, False)], 1)


def test_asking_again_and_again_adds_nothing() -> None:
    """F21: the projection keeps nothing of a call to it; after ten of them there are as many results as calls."""
    log = repeating()
    view = View("a", "", ANTHROPIC)
    first = list(view.turns(log.records))
    for _ in range(10):
        assert list(view.turns(log.records)) == first
    assert len(results(first)) == 3


def test_what_the_provider_executes_itself_is_not_repaired() -> None:
    """F23: a search without its result is left out and never answered; with it both go back as they came."""
    log = Log()
    log.run("r1", "q")
    log.say("r1", *searched("anthropic", "srvtoolu_1", answered=False), "Let me see.")
    log.say("r1", *searched("anthropic", "srvtoolu_2", answered=True), "Found.")
    told = log.told()
    assert results(told) == []
    assert [part.id for turn in told for part in turn.parts if isinstance(part, ProviderCall)] == ["srvtoolu_2"]
    kinds = [block["type"] for m in anthropic.encode(ModelRequest(turns=told))["messages"] for block in m["content"]]
    assert kinds == ["text", "text", "text", "server_tool_use", "web_search_tool_result", "text", "text"]


# --- thinking and empty answers -----------------------------------------------------------------------------------


def test_thinking_that_was_cut_off_is_never_sent_back() -> None:
    """F25: it has no signature; it stays in the log for display, and its text is in no request."""
    log = Log()
    log.run("r1", "q")
    batch = log.cancel("r1", drafts=[draft(log, "r1", Thought(text="half a thought", provider="anthropic"))])
    assert isinstance(batch[0], Message) and batch[0].parts == (Thought(text="half a thought", provider="anthropic"),)
    log.run("r2", "go on")
    told = log.told()
    assert (shape(told), "half" in str(list(told))) == ("u", False)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("thoughts", [True, False])
def test_signed_thinking_is_verbatim_or_gone(family: str, thoughts: bool) -> None:
    """F26, F27: its own provider gets the same object back, or nothing of it; nobody else ever gets it."""
    signed = signed_thought("anthropic", "")
    log = Log()
    log.run("r1", "q")
    log.say("r1", signed, call("c1"), signed, call("c2"), provider="anthropic")
    log.cancel("r1")
    log.run("r2", "go on")
    told = log.told(profile=ModelProfile(family, thoughts))
    sent = [part for turn in told for part in turn.parts if isinstance(part, Thought)]
    assert len(sent) == (2 if family == "anthropic" and thoughts else 0)
    assert all(part is signed for part in sent)


def test_an_answer_with_nothing_to_send_vanishes() -> None:
    """F28: only thoughts, only blanks, only what another provider understands: no empty turn is sent, however often."""
    log = Log()
    log.run("r1", "x")
    for parts in (
        (Thought(text="hm"),),
        (signed_thought("anthropic", "hm"),),
        ("",),
        (" \n",),
        (Opaque(provider="gemini", data={"a": 1}),),
        (),
    ):
        log.say("r1", *parts)
    assert [(turn.role, user_text(turn)) for turn in log.told()] == [("user", "x")]


def test_messages_in_quick_succession_are_all_heard() -> None:
    """F29: each supersedes the one before, before a token came; no empty answer is stored, all texts are there."""
    log = Log()
    for run_id in ("r1", "r2"):
        log.run(run_id, f"text of {run_id}")
        log.ask_to_stop(run_id, "superseded")
        batch = log.cancel(run_id, "superseded", drafts=[draft(log, run_id)])
        assert [type(record) for record in batch] == [RunEnded]
    log.run("r3", "text of r3")
    (turn,) = log.told()
    assert [f"text of {run_id}" in user_text(turn) for run_id in ("r1", "r2", "r3")] == [True] * 3
    assert user_text(turn).count("Take both into account.") == 2


# --- the truth ----------------------------------------------------------------------------------------------------

WHY: dict[Cause, str] = {
    "user": "the user stopped the run",
    "deadline": "deadline",
    "budget": "budget",
    "shutdown": "shutting down",
    "crash": "the process died",
    "error": "the run failed",
}


@pytest.mark.parametrize("cause", WHY)
def test_each_cause_is_told_as_what_it_is(cause: Cause) -> None:
    """F34: a deadline, a crash or a bug is never told as the user's wish; started and not started are two things."""
    log = asked("started", "proposed")
    log.start("r1", "started")
    log.close("r1", Ending("cancelled", cause))
    log.run("r2", "go on")
    texts = [response["error"] for _, response, _ in results(log.told())]
    assert all(WHY[cause] in text for text in texts)
    assert all(why not in text for other, why in WHY.items() if other != cause for text in texts)
    assert ["may have taken effect" in text for text in texts] == [True, False]


@pytest.mark.parametrize("status", ["cancelled", "unknown", "denied", "not_started", "failed"])
def test_what_a_stopped_tool_returned_does_not_look_like_success(status: Any) -> None:
    """F35: a tool that turned its abort into a value is told by its status; the value is shown as what was returned."""
    log = asked("c1")
    log.start("r1", "c1")
    log.settle("r1", "c1", status, response={"error": "operation aborted"}, cause="user")
    log.run("r2", "and?")
    ((_, response, is_error),) = results(log.told())
    assert is_error
    assert response == {"error": "operation aborted"} or response["returned"] == {"error": "operation aborted"}
    assert response.get("status", "failed") == status


def test_a_stopped_task_has_a_boundary() -> None:
    """F36: a call and its result at the end of a stopped run do not lead the model on: it is told of the stop."""
    log = asked("c1")
    log.start("r1", "c1")
    log.settle("r1", "c1")
    log.ask_to_stop("r1")
    log.cancel("r1")
    log.run("r2", "what is 2+2?")
    last = user_text(log.told()[-1])
    assert last == "[The user stopped the task above. Do not go on with it unless asked to.]\nwhat is 2+2?"


def test_a_boundary_is_drawn_once() -> None:
    """P7: only the first ending of a run is told, and a further attempt does not repeat its input."""
    log = Log()
    log.run("r1", "task A")
    log.run("r1", "task A", attempt=2, trigger="recovery")
    log.cancel("r1")
    log.cancel("r1", "deadline")
    (first, second) = all_text(log.told()).splitlines()
    assert (first, second.startswith("[The user stopped")) == ("task A", True)


def test_a_completed_task_has_none() -> None:
    """F36: where nothing was stopped, nothing is said of it."""
    log = Log()
    log.run("r1", "task A")
    log.say("r1", "done")
    log.end("r1")
    log.run("r2", "what is 2+2?")
    assert user_text(log.told()[-1]) == "what is 2+2?"


def test_the_whole_history_is_looked_at() -> None:
    """F37: a friendly line after the dangling call does not hide it."""
    log = asked("c1")
    log.say("r1", "You interrupted me.")
    log.run("r2", "hm")
    assert (shape(log.told()), statuses(log)) == ("umtmu", ["not_started"])


def test_every_agents_request_is_projected() -> None:
    """F38: the one that resumes in mid-loop, one that took over, one in a branch, one that works as a tool."""
    log = asked("gated", "free")
    log.start("r1", "free")
    log.settle("r1", "free")
    log.pause("r1", WaitingCall("gated", "confirmation"))
    log.settle("r1", "gated", "denied")
    log.run("r1", "task A", attempt=2, trigger="answer")
    log.say("r1", call("asks", "helper_tool"))
    log.start("r1", "asks")
    log.say("r1", "the task", author="user", branch="@asks")
    log.say("r1", call("deep"), author="helper", branch="@asks")
    for agent, branch in (("a", ""), ("b", ""), ("p1", "par.p1"), ("helper", "@asks")):
        for family in FAMILIES:
            log.told(agent, ModelProfile(family), branch=branch)
    assert statuses(log) == ["denied", "ok", "unknown"]
    assert shape(log.told("helper", branch="@asks")) == "umt"


def test_a_finished_sibling_keeps_its_result() -> None:
    """F53: one of two fails or is cancelled; the other's result is told as it is."""
    log = asked("a", "b")
    log.start("r1", "a", "b")
    log.settle("r1", "a", response={"value": 1})
    log.settle("r1", "b", "failed", response={"error": "CancelledError"})
    assert [(response, is_error) for _, response, is_error in results(log.told())] == [
        ({"value": 1}, False),
        ({"error": "CancelledError"}, True),
    ]


def test_a_half_answer_is_marked_as_cut_off() -> None:
    """F61: the text is kept as the model's, and a mark says where it ended and why."""
    log = Log()
    log.run("r1", "q")
    batch = log.cancel("r1", drafts=[draft(log, "r1", "The answer is")])
    assert isinstance(batch[0], Message) and batch[0].interrupted == "user"
    log.run("r2", "continue with something else")
    told = log.told()
    assert user_text(told[1]) == "The answer is"
    assert (
        user_text(told[2]).splitlines()[0] == "[Your answer above was cut off there because the user stopped the run.]"
    )


def test_a_settled_effect_is_never_taken_out() -> None:
    """F68: stopped before the follow-up was spoken, the booking is still in the history."""
    log = asked("c1", said="book it")
    log.start("r1", "c1")
    log.settle("r1", "c1", response={"value": "booked #1"})
    log.cancel("r1", drafts=[draft(log, "r1")])
    log.run("r2", "ok?")
    assert results(log.told()) == [("c1", {"value": "booked #1"}, False)]


def test_started_and_cancelled_is_not_never_started() -> None:
    """F163: the log, the report and the model all tell the two apart."""
    log = asked("slow", "next")
    log.start("r1", "slow")
    batch = log.cancel("r1", work={"slow": "stopped"})
    assert [r.status for r in batch if isinstance(r, CallSettled)] == ["cancelled", "not_started"]
    ended = batch[-1]
    assert isinstance(ended, RunEnded) and ended.report is not None
    assert [operation.state for operation in ended.report.operations] == ["stopped", "not_started"]
    log.run("r2", "what did you do?")
    assert statuses(log) == ["cancelled", "not_started"]


# --- what a request has seen --------------------------------------------------------------------------------------


def test_text_for_a_run_that_the_answer_did_not_see_is_told_behind_it() -> None:
    """P9: a text and a late result that came during the request come after its answer, in order of arrival."""
    log = asked("c1")
    log.start("r1", "c1")
    log.cancel("r1", work={"c1": "still_running"})
    log.run("r2", "next")
    seen = log.last_seq
    log.say("r2", "wait", author="user")
    log.settle("", "c1", response={"value": "late"}, late=True)
    log.say("r2", "my answer", seen=seen)
    told = log.told()
    assert (shape(told), statuses(log)) == ("umtumu", ["unknown"])
    wait, news = user_text(told[-1]).splitlines()
    assert (wait, "late" in news) == ("wait", True)


def test_news_are_told_in_the_order_of_their_arrival() -> None:
    """P9: a result that came before a text is told before it, although both came behind the answer's request."""
    log = asked("c1")
    log.start("r1", "c1")
    seen = log.last_seq
    log.settle("r1", "c1", response={"value": "late"})
    log.say("r1", "wait", author="user")
    log.say("r1", "my answer", seen=seen)
    news, wait = user_text(log.told()[-1]).splitlines()
    assert ("late" in news, wait) == (True, "wait")


def test_what_is_no_news_is_not_told_again() -> None:
    """P2: a call that was told as unknown and is then settled as unknown gives the model nothing to react to."""
    log = asked("c1")
    log.start("r1", "c1")
    log.say("r1", "hm")
    before = list(log.told())
    log.settle("r1", "c1", "unknown", cause="user")
    assert list(log.told()) == before


def test_what_an_agent_said_in_a_side_branch_is_quoted_when_it_takes_over() -> None:
    """F27: those answers were bound to another history, so that they are not passed off as part of this one."""
    log = Log()
    log.run("r1", "q")
    log.say("r1", signed_thought("anthropic", "hm"), "left", author="p1", branch="par.p1", provider="anthropic")
    assert [(turn.role, user_text(turn)) for turn in log.told("p1")] == [("user", "q\n[p1 said:] left")]


def test_a_pause_that_the_answer_did_not_see_does_not_change_what_it_saw() -> None:
    """P9: what a request told of a call stays, although the call has gone on since, and its end is told as news."""
    log = asked("c1")
    before = list(log.told())
    seen = log.last_seq
    log.add(CallStarted, run_id="r1", call_id="c1")
    log.pause("r1", WaitingCall("c1", "long_running"))
    log.say("r1", "hm", seen=seen)
    assert list(log.told())[: len(before)] == before
    log.settle("r1", "c1", "unknown", cause="crash")
    assert "to t, unknown" in user_text(log.told()[-1])


def test_agents_that_come_after_parallel_ones_see_what_they_said() -> None:
    """P4: side by side they do not see each other; who comes later sees both, but not the inside of agent tools."""
    log = Log()
    log.run("r1", "q")
    log.say("r1", "left", author="p1", branch="par.p1")
    log.say("r1", "right", author="p2", branch="par.p2")
    log.say("r1", "inside", author="tool", branch="par.p2@c1")
    assert "left" not in all_text(log.told("p2", branch="par.p2"))
    assert all_text(log.told("a")) == "q\n[p1 said:] left\n[p2 said:] right"


def test_an_isolated_agent_sees_its_task_only() -> None:
    """P2: neither the conversation, nor a summary of it, nor how the run around it ended."""
    log = asked("c1")
    log.start("r1", "c1")
    log.say("r1", "the task", author="user", branch="@c1")
    log.add(Compacted, upto=log.last_seq, summary=Content.of("Earlier: much."))
    log.cancel("r1")
    assert all_text(log.told("tool", branch="@c1")) == "the task"


def test_a_failed_run_is_told_with_the_kind_of_error() -> None:
    """F34: the class of the error, not its message, which may hold anything."""
    log = Log()
    log.run("r1", "q")
    log.close("r1", Ending("failed", error=ErrorInfo("ModelError", "secret")))
    log.run("r2", "hi")
    assert all_text(log.told()).splitlines()[1].startswith("[The task above ended with an error (ModelError).")
    assert "secret" not in all_text(log.told())


def test_nothing_at_all_is_a_request_too() -> None:
    """F04: an empty log, and an input without content, are asked about with a plain word."""
    assert [user_text(turn) for turn in project([], "a", ANTHROPIC)] == ["Continue."]
    log = Log()
    log.run("r1", Content(()))
    assert isinstance(log.records[0], RunStarted)
    assert all_text(log.told()) == "Continue."
