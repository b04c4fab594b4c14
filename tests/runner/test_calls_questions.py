"""Questions that running calls ask: durable, answered once, by anyone, from anywhere, and ended by a stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.runner.desk import SESSION, USER, Desk, Held

from heaveto import RunConfig, SqliteStore, ToolContext
from heaveto.errors import AnswerConflictError, AnswerInvalidError, NotWaitingError, UnknownCallError
from heaveto.events.records import Answered, Paused
from heaveto.runner.session.desk import Question
from heaveto.stores.base import Store
from heaveto.testing import call, say, settle
from heaveto.tools.function import FunctionTool

MakeDesk = Callable[..., Desk]
SHORT = RunConfig(cancel_grace_seconds=0.02)
AMOUNT: dict[str, Any] = {"type": "object", "properties": {"euros": {"type": "integer"}}, "required": ["euros"]}


async def pay(ctx: ToolContext) -> dict[str, Any]:
    """Pay."""
    reply = await ctx.ask("How much?", AMOUNT)
    return {"accepted": reply.accepted, "value": reply.value, "by": reply.by}


async def asked(at: Desk, count: int = 1) -> list[Question]:
    """Wait until so many questions were asked; return those that are open."""
    await at.until(lambda log: sum(isinstance(record, Paused) for record in log) >= count)
    return await at.runner.questions(user_id=USER, session_id=SESSION)


async def test_an_answer_comes_to_the_call_that_asked(desk: MakeDesk, store: Store) -> None:
    """The question is listed with its schema; the answer is what `ask` returns, with who gave it (P8)."""
    at = desk(call("pay"), say("ok"), store=store, tools=[pay])
    run = await at.start()
    (question,) = await asked(at)
    assert (question.tool, question.hint, question.schema) == ("pay", "How much?", AMOUNT)
    answered = await at.runner.answer(run.run_id, question.call_id, {"euros": 5}, by="ann")
    assert (answered.decision, answered.by) == ("value", "ann")
    assert (await run.wait()).outcome == "completed"
    assert (await at.settled())["pay"].response == {"accepted": True, "value": {"euros": 5}, "by": "ann"}
    assert await at.runner.questions(user_id=USER, session_id=SESSION) == []


async def test_the_first_answer_wins(desk: MakeDesk, store: Store) -> None:
    """Of two at the same moment one is taken; the other is told which (P8)."""
    at = desk(call("pay"), say("ok"), store=store, tools=[pay])
    run = await at.start()
    (question,) = await asked(at)
    outcomes = await asyncio.gather(
        *(at.runner.answer(run.run_id, question.call_id, {"euros": euros}) for euros in (1, 2)),
        return_exceptions=True,
    )
    first = next(one for one in outcomes if isinstance(one, Answered))
    conflict = next(one for one in outcomes if isinstance(one, AnswerConflictError))
    assert conflict.first == first
    await run.wait()
    assert (await at.settled())["pay"].response["value"] == first.value  # type: ignore[index]
    assert len([record for record in await at.log() if isinstance(record, Answered)]) == 1


@pytest.mark.parametrize("when", ["while it works", "when it has ended", "when its run has ended"])
async def test_the_same_answer_again_is_harmless(desk: MakeDesk, when: str) -> None:
    """A double click, however late, gets the first answer back and writes nothing; another one is told of it (P8)."""
    held = Held()

    async def ask_and_work(ctx: ToolContext) -> str:
        await ctx.ask("Go?")
        if when == "while it works":
            await held()
        return "done"

    other = Held()
    at = desk((call("ask_and_work"), call("other")), say("ok"), tools=[ask_and_work, other.tool("other")])
    run = await at.start()
    (question,) = await asked(at)
    first = await at.runner.answer(run.run_id, question.call_id, True, by="ann")
    if when == "while it works":
        await held.began.wait()
    else:
        await at.until_settled("ask_and_work")
    if when == "when its run has ended":
        other.may_end.set()
        await run.wait()
    length = len(await at.log())
    assert await at.runner.answer(run.run_id, question.call_id, True, by="bob") == first
    with pytest.raises(AnswerConflictError):
        await at.runner.answer(run.run_id, question.call_id, False)
    assert len(await at.log()) == length
    held.may_end.set()
    other.may_end.set()
    await run.wait()


async def test_an_answer_that_does_not_fit_is_refused_where_it_is_given(desk: MakeDesk) -> None:
    """The question stays open, and nothing is written."""
    at = desk(call("pay"), say("ok"), tools=[pay])
    run = await at.start()
    (question,) = await asked(at)
    for value in ({"euros": "five"}, {}, None):
        with pytest.raises(AnswerInvalidError):
            await at.runner.answer(run.run_id, question.call_id, value)
    assert await at.runner.questions(user_id=USER, session_id=SESSION) == [question]
    await at.runner.answer(run.run_id, question.call_id, {"euros": 5})
    await run.wait()


async def test_a_question_is_declined(desk: MakeDesk) -> None:
    """The reason need not fit the schema; the tool sees that nobody accepted."""
    at = desk(call("pay"), say("ok"), tools=[pay])
    run = await at.start()
    (question,) = await asked(at)
    await at.runner.answer(run.run_id, question.call_id, "not today", accept=False)
    await run.wait()
    response = (await at.settled())["pay"].response
    assert response is not None
    assert (response["accepted"], response["value"]) == (False, "not today")


async def test_who_asks_nothing_is_not_answered(desk: MakeDesk) -> None:
    """A typed error tells the state; unknown calls are told as that."""
    held = Held()
    at = desk(call("held"), say("ok"), tools=[held.tool()])
    run = await at.start()
    await held.began.wait()
    with pytest.raises(NotWaitingError):
        await at.runner.answer(run.run_id, await at.call_id("held"), 1)
    with pytest.raises(UnknownCallError):
        await at.runner.answer(run.run_id, "no-such-call", 1)
    held.may_end.set()
    await run.wait()


@pytest.mark.parametrize("whom", ["run", "call"])
async def test_a_stop_ends_the_wait(desk: MakeDesk, store: Store, whom: str) -> None:
    """The question is gone with the call; an answer that comes then is refused (P3, P8)."""
    at = desk(call("pay"), say("ok"), store=store, tools=[pay])
    run = await at.start("go", SHORT)
    (question,) = await asked(at)
    if whom == "run":
        await run.cancel()
    else:
        await at.runner.cancel_call(run.run_id, question.call_id)
        await run.wait()
    assert await at.settlements("pay") == [("cancelled", "user", False)]
    assert await at.runner.questions(user_id=USER, session_id=SESSION) == []
    with pytest.raises((NotWaitingError, UnknownCallError)):
        await at.runner.answer(run.run_id, question.call_id, {"euros": 5})


async def test_an_answer_and_a_stop_at_the_same_moment(desk: MakeDesk) -> None:
    """Whichever is first, the call is settled once, by what happened (F17)."""
    for tick in range(10):
        at = desk(call("pay"), say("ok"), tools=[pay])
        run = await at.start("go", SHORT)
        (question,) = await asked(at)
        stopping = asyncio.ensure_future(at.runner.cancel_call(run.run_id, question.call_id))
        for _ in range(tick):
            await asyncio.sleep(0)
        with suppress(NotWaitingError):
            await at.runner.answer(run.run_id, question.call_id, {"euros": 5})
        await stopping
        await run.wait()
        ((status, _, _),) = await at.settlements("pay")
        assert status in ("succeeded", "cancelled")


async def test_a_call_asks_several_things_one_after_another(desk: MakeDesk) -> None:
    """Each question has its own answer; the answer to the first is not taken for the second."""

    async def book(ctx: ToolContext) -> list[Any]:
        return [(await ctx.ask(what)).value for what in ("From?", "To?")]

    at = desk(call("book"), say("ok"), tools=[book])
    run = await at.start()
    (question,) = await asked(at)
    await at.runner.answer(run.run_id, question.call_id, "Rome")
    (second,) = await asked(at, 2)
    assert second.hint == "To?"
    await at.runner.answer(run.run_id, second.call_id, "Oslo")
    await run.wait()
    assert (await at.settled())["book"].response == {"result": ["Rome", "Oslo"]}


async def test_several_calls_ask_at_the_same_time(desk: MakeDesk) -> None:
    """They are listed side by side and answered in any order."""

    async def ask(what: str, ctx: ToolContext) -> Any:
        return (await ctx.ask(what)).value

    at = desk((call("ask", what="one"), call("ask", what="two")), say("ok"), tools=[ask])
    run = await at.start()
    questions = {question.hint: question for question in await asked(at, 2)}
    for hint in ("two", "one"):
        await at.runner.answer(run.run_id, questions[hint].call_id, f"answer to {hint}")
    await run.wait()
    assert "answer to one" in at.told()
    assert "answer to two" in at.told()


async def test_another_process_answers(desk: MakeDesk, tmp_path: Path) -> None:
    """It lists the question and answers it; the call in the first process goes on (P8)."""
    at = desk(call("pay"), say("ok"), store=SqliteStore(tmp_path / "s.db"), tools=[pay])
    other = desk(store=SqliteStore(tmp_path / "s.db"), tools=[pay])
    run = await at.start()
    (question,) = await asked(other)
    await other.runner.answer(run.run_id, question.call_id, {"euros": 7}, by="boss")
    assert (await run.wait()).outcome == "completed"
    with pytest.raises(AnswerConflictError):
        await at.runner.answer(run.run_id, question.call_id, {"euros": 8})


async def test_a_call_in_the_background_may_ask(desk: MakeDesk) -> None:
    """Also when its run has ended: the question is listed, and its answer goes to the call."""

    async def job(ctx: ToolContext) -> Any:
        await ctx.detach()
        await ended.wait()
        return (await ctx.ask("Which one?")).value

    ended = asyncio.Event()
    at = desk(call("job"), say("ok"), say("heard"), tools=[job])
    run = await at.start()
    await run.wait()
    ended.set()
    (question,) = await asked(at)
    await at.runner.answer(run.run_id, question.call_id, "that one")
    assert (await at.until_settled("job", late=True)).response == {"result": "that one"}
    await settle()


async def test_a_question_outlasts_its_time_limit_only_as_long_as_the_limit_says(desk: MakeDesk) -> None:
    """The time limit of the tool counts the wait as well; the question is then gone."""
    at = desk(call("pay"), say("ok"), tools=[FunctionTool(pay, timeout_seconds=0.01)])
    assert (await at.ask()).outcome == "completed"
    assert await at.settlements("pay") == [("cancelled", "timeout", False)]
    assert await at.runner.questions(user_id=USER, session_id=SESSION) == []
