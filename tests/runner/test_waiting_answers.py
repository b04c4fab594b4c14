"""Which answers are taken: every rule has an error of its own, which says how things stand, and writes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.runner.desk import SESSION, USER, Desk, Held
from tests.runner.test_waiting_confirmations import gated
from tests.runner.waiting import (
    GOES_ON,
    HERE,
    Counted,
    MakeDesk,
    Medium,
    Shelf,
    answer,
    of,
    paused,
    question,
    questions,
    reply,
    response,
)  # fmt: skip

from heaveto import (
    Answered,
    App,
    LlmAgent,
    Paused,
    Plugin,
    RequestInputTool,
    ResumabilityConfig,
    RunConfig,
    RunEnd,
    RunPausedError,
    Text,
)  # fmt: skip
from heaveto.errors import (
    AnswerConflictError,
    AnswerError,
    AnswerKindError,
    ConfigError,
    InputError,
    MixedAnswerError,
    NotWaitingError,
    RunFailedError,
    UnknownCallError,
    UnknownRunError,
    UnknownSessionError,
)  # fmt: skip
from heaveto.events.contents import Content
from heaveto.events.records import RunEnded, RunStarted
from heaveto.stores.base import Store
from heaveto.testing import ScriptedModel, call, gate, say

KEEP = RunConfig(on_text="keep", cancel_grace_seconds=0.02)


def waits(desk: MakeDesk, *steps: Any, store: Store | None = None, **options: Any) -> Desk:
    """A desk whose first step is a gated call."""
    return desk(call("pay", order=1), *steps, store=store, tools=[gated(Counted("paid"))], **options)


async def test_an_app_that_is_not_resumable_does_not_wait(desk: MakeDesk) -> None:
    """Its run fails, and names the call; it does not pretend to have asked."""
    at = waits(desk, app_options={"resumability_config": ResumabilityConfig(resumable=False)})
    run = await at.start()
    with pytest.raises(RunFailedError, match="not resumable"):
        await run.result()
    (ended,) = await at.endings()
    assert ended.error is not None
    assert ended.error.type == "NotResumableError"
    assert "pay" in ended.error.message
    assert await at.runner.questions(**HERE) == []


def test_the_flag_and_the_config_must_not_contradict() -> None:
    """ADK's older flag is taken only where it says the same."""
    agent = LlmAgent("root", ScriptedModel())
    with pytest.raises(ConfigError, match="contradicts"):
        App("x", agent, resumable=False, resumability_config=ResumabilityConfig(resumable=True))
    assert App("x", agent).resumability_config.resumable


async def test_an_unknown_call_is_an_error_that_lists_what_is_open(desk: MakeDesk, store: Store) -> None:
    """Answering a random id never looks like success (F88, F91)."""
    at = waits(desk, store=store)
    run = await paused(at)
    before = await at.log()
    for attempt in (
        at.runner.answer(run.run_id, "nosuchcall"),
        reply(at, response("nosuchcall", confirmed=True)),
    ):
        with pytest.raises(UnknownCallError) as unknown:
            await attempt
        assert unknown.value.known == ((await question(at)).call_id,)
    assert await at.log() == before


async def test_an_unknown_run_is_an_error_and_no_model_call(desk: MakeDesk) -> None:
    """Whatever is asked of it."""
    at = waits(desk)
    await paused(at)
    calls = at.model.calls
    unknown = "nosuchrun"
    for attempt in (
        at.runner.answer(unknown, "c"),
        at.runner.resume(unknown),
        at.runner.pause(unknown),
        at.runner.start(run_id=unknown, **HERE),
        anext(at.runner.run_async(run_id=unknown, **HERE)),
    ):
        with pytest.raises(UnknownRunError):
            await attempt
    assert at.model.calls == calls


async def test_neither_message_nor_run_is_an_error(desk: MakeDesk) -> None:
    """There is nothing to do, and the caller is told what to pass."""
    at = waits(desk)
    with pytest.raises(InputError, match="run_id"):
        await at.runner.start(**HERE)


async def test_a_call_of_another_run_is_unknown_to_this_one(desk: MakeDesk) -> None:
    """An answer that is addressed to one run never lands in another."""
    at = desk(call("pay"), call("pay"), tools=[gated(Counted())])
    first, second = await paused(at), await paused(at, config=KEEP)
    asked = {one.run_id: one.call_id for one in await at.runner.questions(**HERE)}
    with pytest.raises(UnknownCallError):
        await at.runner.answer(first.run_id, asked[second.run_id])


async def test_answers_for_several_runs_are_refused(desk: MakeDesk) -> None:
    """A message goes on with one run; the error names those that were meant."""
    at = desk(call("pay"), call("pay"), tools=[gated(Counted())])
    first, second = await paused(at), await paused(at, config=KEEP)
    ids = [one.call_id for one in await at.runner.questions(**HERE)]
    with pytest.raises(MixedAnswerError) as mixed:
        await reply(at, *(response(call_id, confirmed=True) for call_id in ids))
    assert first.run_id in str(mixed.value) and second.run_id in str(mixed.value)
    with pytest.raises(MixedAnswerError, match=second.run_id):
        await reply(at, response(ids[0], confirmed=True), run_id=second.run_id)
    assert of(await at.log(), Answered) == []


async def test_text_beside_answers_is_refused(desk: MakeDesk) -> None:
    """It is neither dropped nor taken for a message that declines what the answer approves."""
    at = waits(desk)
    await paused(at)
    before = await at.log()
    with pytest.raises(MixedAnswerError, match="something else"):
        await reply(at, Text(text="and hurry"), response((await question(at)).call_id, confirmed=True))
    assert await at.log() == before


async def test_another_answer_after_the_first_is_a_conflict(desk: MakeDesk, store: Store) -> None:
    """The error shows the answer that counts, before and after the call is settled (F88)."""
    at = waits(desk, say("ok"), store=store)
    run = await paused(at)
    asked = await question(at)
    await at.runner.answer(run.run_id, asked.call_id, by="bob")
    for when in ("at once", "at the end"):
        if when == "at the end":
            await run.wait()
        with pytest.raises(AnswerConflictError) as conflict:
            await at.runner.answer(run.run_id, asked.call_id, accept=False, by="eve")
        assert (conflict.value.first.by, conflict.value.first.decision) == ("bob", "approve")
        with pytest.raises(AnswerConflictError):
            await reply(at, response(asked.call_id, confirmed=False))


async def test_a_conflict_says_in_words_what_was_answered(desk: MakeDesk) -> None:
    """Who, what, and with which arguments: all that a page has to show to whoever came too late."""
    at = waits(desk, say("ok"))
    run = await paused(at)
    asked = await question(at)
    await at.runner.answer(run.run_id, asked.call_id, args={"order": 2}, by="bob")
    with pytest.raises(AnswerConflictError, match=r"by bob: approve with the arguments \{'order': 2\}$"):
        await at.runner.answer(run.run_id, asked.call_id, accept=False, by="eve")


async def test_the_same_answer_again_is_harmless(desk: MakeDesk, store: Store) -> None:
    """While the run goes on, when its call is settled, when it has ended: nothing is written or run (F88)."""
    pay, then = Counted("paid"), gate()
    at = desk(call("pay", order=1), (then, say("ok")), store=store, tools=[gated(pay)])
    run = await paused(at)
    asked = await question(at)
    given = await at.runner.answer(run.run_id, asked.call_id, by="bob")
    await then.reached()
    assert await at.runner.answer(run.run_id, asked.call_id, by="carl") == given
    then.open()
    await run.wait()
    before = await at.log()
    assert await at.runner.answer(run.run_id, asked.call_id) == given
    assert await reply(at, response(asked.call_id, confirmed=True)) == []
    assert await reply(at, response(asked.call_id + ":confirmation", confirmed=True), run_id=run.run_id) == []
    assert await at.log() == before
    assert len(pay.executed) == 1


async def test_of_many_who_answer_at_once_one_counts(desk: MakeDesk, store: Store) -> None:
    """The others are told the first, whoever it is; the call is settled once (F90)."""
    at = waits(desk, say("ok"), store=store)
    run = await paused(at)
    asked = await question(at)
    answers = (at.runner.answer(run.run_id, asked.call_id, accept=bool(n % 2), by=str(n)) for n in range(8))
    results = await asyncio.gather(*answers, return_exceptions=True)
    (counts,) = of(await at.log(), Answered)
    for number, result in enumerate(results):
        if bool(number % 2) == (counts.decision == "approve"):
            assert result == counts
        else:
            assert isinstance(result, AnswerConflictError)
            assert result.first == counts
    await run.wait()
    assert len(of(await at.log(), Answered)) == 1


@pytest.mark.parametrize("medium", ["memory", "sqlite"])
async def test_of_many_workers_that_answer_at_once_one_counts(desk: MakeDesk, medium: Medium, tmp_path: Path) -> None:
    """Also over processes; whichever goes on with the run executes the call, once (F111, F116)."""
    shelf, pay = Shelf(medium, tmp_path), Counted("paid")
    first = desk(call("pay", order=1), store=shelf.store(), tools=[gated(pay)])
    run = await paused(first)
    others = [desk(say("ok"), store=shelf.store(), tools=[gated(pay)]) for _ in range(3)]
    asked = await question(first)
    given = await asyncio.gather(*(one.runner.answer(run.run_id, asked.call_id) for one in others))
    assert len({one.id for one in given}) == 1
    await others[0].until(lambda log: len(of(log, RunEnded)) == 1)
    assert pay.executed == [{"order": 1}]


async def test_a_repeated_start_finds_the_run_that_waits(desk: MakeDesk, store: Store) -> None:
    """The same key and message are the same run, also in its pause: nothing is declined or run twice (F115)."""
    at = waits(desk, say("ok"), store=store)
    run = await paused(at, idempotency_key="k")
    again = await at.start("go", GOES_ON, idempotency_key="k")
    assert again.run_id == run.run_id
    assert isinstance(await again.ending_or_pause(), Paused)
    await answer(at, "pay")
    assert await again.result() == "ok"
    assert len(of(await at.log(), RunStarted)) == 2


async def test_a_run_id_goes_on_with_what_is_there_to_do(desk: MakeDesk) -> None:
    """Without a message: a run that waits is left alone, one that has ended shows nothing more (F69)."""
    at = waits(desk, say("ok"))
    run = await paused(at)
    before = await at.log()
    assert [item async for item in at.runner.run_async(run_id=run.run_id, **HERE)] == []
    assert run.status == "paused"
    assert await at.log() == before
    await answer(at, "pay")
    await run.wait()
    before = await at.log()
    assert [item async for item in at.runner.run_async(run_id=run.run_id, **HERE)] == []
    assert await at.log() == before


async def test_leaving_the_stream_of_an_answer_does_not_stop_the_run(desk: MakeDesk) -> None:
    """Who only brought the answer does not own the run."""
    then = gate()
    at = desk(call("pay"), (then, say("ok")), tools=[gated(Counted())])
    run = await paused(at)
    stream = at.runner.run_async(new_message=Content((response((await question(at)).call_id, confirmed=True),)), **HERE)
    await anext(stream)
    await stream.aclose()
    then.open()
    assert await run.result() == "ok"


async def test_a_call_that_asks_nothing_is_not_answered(desk: MakeDesk) -> None:
    """A running call, such as one that was never gated, says so."""
    held = Held()
    at = desk(call("held"), say("ok"), tools=[held.tool()])
    run = await at.start()
    await held.began.wait()
    with pytest.raises(NotWaitingError, match="asks nothing"):
        await at.runner.answer(run.run_id, await at.call_id("held"), "x")
    held.may_end.set()
    await run.wait()


async def test_a_value_for_a_confirmation_is_the_wrong_kind(desk: MakeDesk) -> None:
    """The kind is in the error; nothing is decided by it (F94)."""
    at = waits(desk)
    await paused(at)
    with pytest.raises(AnswerKindError, match="confirmation"):
        await reply(at, response((await question(at)).call_id, paid=1))
    assert of(await at.log(), Answered) == []


async def test_a_message_is_not_an_answer_of_a_session_that_waits_for_none(desk: MakeDesk) -> None:
    """An orphan response is an error: no run begins with it, and no model is asked."""
    at = desk(say("hi"))
    await at.ask()
    with pytest.raises(UnknownCallError):
        await reply(at, response("nosuchcall", confirmed=True))
    assert at.model.calls == 1


async def test_a_response_in_an_unknown_session_is_refused(desk: MakeDesk) -> None:
    """It creates none."""
    at = desk()
    with pytest.raises(UnknownSessionError):
        await reply(at, response("nosuchcall", confirmed=True))
    assert await at.runner.get_session(**HERE) is None


async def test_the_result_of_a_waiting_run_says_what_it_waits_for(desk: MakeDesk) -> None:
    """`result` raises, with the questions; `wait` waits for the ending over all pauses."""
    at = waits(desk, say("ok"))
    run = await paused(at)
    with pytest.raises(RunPausedError) as waiting:
        await run.result()
    assert [(one.name, one.kind) for one in waiting.value.waiting] == [("pay", "confirmation")]
    ending = asyncio.ensure_future(run.wait())
    await answer(at, "pay")
    assert (await ending).outcome == "completed"


async def test_streams_end_at_the_pause(desk: MakeDesk) -> None:
    """Normally: the last record is the pause; the stream of the answer begins behind it, and ends with the ending."""
    at = waits(desk, say("ok"))
    first = [item async for item in at.runner.run_async(new_message="go", **HERE) if not hasattr(item, "kind")]
    assert isinstance(first[-1], Paused) and not first[-1].held
    then = await reply(at, response((await question(at)).call_id, confirmed=True))
    assert isinstance(then[0], Answered)
    assert isinstance(then[-1], RunEnded)
    assert not {one.id for one in first} & {one.id for one in then}  # type: ignore[union-attr]


async def test_budgets_hold_over_pauses(desk: MakeDesk) -> None:
    """`max_llm_calls` counts the calls of all attempts, and the ending says how many there were."""
    at = desk(call("pay"), call("pay"), say("never"), tools=[gated(Counted())])
    run = await paused(at, config=RunConfig(max_llm_calls=2))
    await answer(at, "pay")
    await at.until(lambda log: len([one for one in of(log, Paused) if not one.held]) == 2)
    await answer(at, "pay")
    with pytest.raises(RunFailedError, match="2 model calls"):
        await run.result()
    (ended,) = await at.endings()
    assert ended.llm_calls == 2


async def test_end_hooks_come_once_and_not_at_a_pause(desk: MakeDesk) -> None:
    """`on_run_end` at the one ending; `before_run` once for each attempt, `after_run` at the normal end."""
    told: list[str] = []

    class Listens(Plugin):
        async def before_run(self, ctx: Any) -> None:
            told.append("before")

        async def after_run(self, ctx: Any) -> None:
            told.append("after")

        async def on_run_end(self, end: RunEnd) -> None:
            told.append(f"end {end.outcome.outcome}")

    at = waits(desk, say("ok"), plugins=[Listens()])
    run = await paused(at)
    assert told == ["before"]
    await answer(at, "pay")
    await run.wait()
    await at.runner.aclose()
    assert told == ["before", "before", "after", "end completed"]


async def test_the_user_and_the_session_of_an_answer_are_its_calls(desk: MakeDesk) -> None:
    """A response that names a call of another session finds nothing there."""
    at = waits(desk)
    await paused(at)
    asked = await question(at)
    await at.runner.create_session(user_id="eve", session_id=SESSION)
    with pytest.raises(UnknownCallError):
        await at.runner.start(
            user_id="eve", session_id=SESSION, new_message=Content((response(asked.call_id, confirmed=True),))
        )
    assert (await at.runner.get_session(user_id=USER, session_id=SESSION)) is not None


async def test_other_settings_with_the_answer_do_not_lose_it(desk: MakeDesk) -> None:
    """Decisions are in the log, not in what the caller passes along (F161)."""
    pay = Counted("paid")
    at = desk(call("pay", order=3), say("ok"), tools=[gated(pay)])
    run = await paused(at, config=RunConfig(max_llm_calls=7))
    asked = await question(at)
    await at.runner.start(
        new_message=Content((response(asked.call_id, confirmed=True),)), run_config=RunConfig(max_llm_calls=1), **HERE
    )
    await run.wait()
    assert pay.executed == [{"order": 3}]
    assert [record.limits.llm_calls for record in of(await at.log(), RunStarted)] == [7, 7]


async def test_a_session_goes_on_after_each_refused_answer(desk: MakeDesk) -> None:
    """Whatever was wrong with the answers before, the right one works."""
    at = waits(desk, say("ok"))
    run = await paused(at)
    asked = await question(at)
    wrong: Sequence[Any] = [
        (response(asked.call_id, paid=1),),
        (response(asked.call_id, confirmed=True), response(asked.call_id, confirmed=False)),
        (response("nosuchcall", confirmed=True),),
        (Text(text="x"), response(asked.call_id, confirmed=True)),
    ]
    for parts in wrong:
        with pytest.raises((AnswerError, UnknownCallError)):
            await reply(at, *parts)
    await answer(at, "pay")
    assert await run.result() == "ok"


async def test_input_and_confirmation_together(desk: MakeDesk) -> None:
    """Each in its own way, in one message."""
    pay = Counted("paid")
    tools = [gated(pay), RequestInputTool()]
    at = desk((call("pay", order=1), call("request_input", question="Why?")), say("ok"), tools=tools)
    await paused(at)
    asked = await questions(at)
    await reply(
        at, response(asked["request_input"].call_id, result="because"), response(asked["pay"].call_id, confirmed=True)
    )
    settled = await at.settled()
    assert settled["request_input"].response == {"result": "because"}
    assert settled["pay"].response == {"result": "paid"}
    assert at.model.calls == 2
