"""Long conversations that are summarised: when, what of them, what is more urgent, and what it costs to ask."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs
from tests.core.judge import breach_of
from tests.runner.desk import QUICK, SESSION, USER, Desk, Held, as_text

from heaveto import AgentTool, Compaction, FunctionTool, LlmAgent, SequentialAgent
from heaveto.core.compact import CompactionPoint, compaction_point
from heaveto.core.fold import SessionState, effective, fold
from heaveto.core.request import ModelProfile
from heaveto.errors import ConfigError
from heaveto.events.contents import Content, text_of
from heaveto.events.records import (
    Compacted,
    Message,
    Record,
    Rewound,
    RunEnded,
    RunStarted,
    SessionKey,
    Usage,
)
from heaveto.runner.lane.summary import ASK, HEADING
from heaveto.stores.base import Store
from heaveto.stores.memory import MemoryData, MemoryStore
from heaveto.testing import ScriptedModel, call, fault, gate, say, usage
from heaveto.testing.promises import check_promises
from heaveto.tools.outside import LongRunningFunctionTool

MakeDesk = Callable[..., Desk]
HERE: dict[str, Any] = {"user_id": USER, "session_id": SESSION}
FAMILIES = ["openai", "openai-responses", "anthropic", "gemini"]


async def look(what: str) -> str:
    """Look something up."""
    return f"looked at {what}"


def summaries(records: list[Record]) -> list[Compacted]:
    return [record for record in records if isinstance(record, Compacted)]


def ends(records: list[Record]) -> list[int]:
    return [record.seq for record in records if isinstance(record, RunEnded)]


async def until_idle(desk: Desk) -> list[Record]:
    """Wait until nobody holds the session: what is to be summarised is."""
    key, changed = SessionKey("desk", USER, SESSION), asyncio.Event()
    unsubscribe = desk.runner.store.subscribe(key, lambda _: changed.set())
    async with asyncio.timeout(5):
        while await desk.runner.store.holder(key) is not None:
            await changed.wait()
            changed.clear()
    unsubscribe()
    return await desk.log()


async def talk(desk: Desk, *texts: str) -> list[Record]:
    for text in texts:
        await desk.ask(text)
        await until_idle(desk)
    return await desk.log()


def of(writer: ScriptedModel, **options: Any) -> dict[str, Any]:
    return {"app_options": {"compaction": Compaction(model=writer, **options)}}


# --- when, and what ---------------------------------------------------------------------------------------------------


async def test_by_runs(desk: MakeDesk, store: Store) -> None:
    """After so many runs beside those that are kept, the older ones stand as a summary; the log is untouched, and the
    summary's cost is recorded with it."""
    writer = ScriptedModel((say("They met."), usage(90, 7)))
    one = desk(*(say(f"A{n}") for n in range(5)), store=store, **of(writer, after_runs=2, keep_runs=1))
    log = await talk(one, "m0", "m1")
    assert summaries(log) == []
    before = log
    log = await talk(one, "m2")
    [summary] = summaries(log)
    assert summary.upto == ends(log)[1]
    assert summary.usage == Usage(90, 7)
    assert log[: len(before)] == before
    [request] = writer.requests
    assert [text_of(turn.parts) for turn in request.turns] == ["m0", "A0", "m1", "A1", ASK]
    assert request.tools == ()
    await talk(one, "m3")
    told = [text_of(turn.parts) for turn in one.model.requests[-1].turns]
    assert told == [f"{HEADING}\nThey met.m2", "A2", "m3"]


async def test_by_tokens(desk: MakeDesk) -> None:
    """After a request of so many tokens, whatever the number of runs; not again before another one is as large."""
    writer = ScriptedModel(say("S1"), say("S2"))
    sizes = [10, 50, 101, 20, 99, 300]
    one = desk(*((say("A"), usage(size, 1)) for size in sizes), **of(writer, after_tokens=100, keep_runs=1))
    counts = [len(summaries(await talk(one, f"m{n}"))) for n in range(len(sizes))]
    assert counts == [0, 0, 1, 1, 1, 2]


async def test_what_is_asked_apart_does_not_count(desk: MakeDesk) -> None:
    """A large request of an agent that works as a tool makes no summary: none would make it smaller."""
    inner = LlmAgent("inner", ScriptedModel((say("I"), usage(500, 1))))
    writer = ScriptedModel()
    one = desk((call("inner", request="x"), usage(10, 1)), (say("A"), usage(20, 1)), tools=[AgentTool(inner)],
               **of(writer, after_tokens=100, keep_runs=0))  # fmt: skip
    assert summaries(await talk(one, "m")) == []


async def test_one_summary_covers_the_one_before(desk: MakeDesk) -> None:
    """Several in a row: each request holds the summary before it and what came since, not the whole conversation, also
    where the summary was made behind the point (F14)."""
    writer = ScriptedModel(*(say(f"S{n}") for n in range(9)))
    one = desk(*(say(f"A{n}") for n in range(8)), **of(writer, after_runs=1, keep_runs=3))
    log = await talk(one, *(f"m{n}" for n in range(8)))
    assert [summary.upto for summary in summaries(log)] == ends(log)[:5]
    told = [[text_of(turn.parts) for turn in request.turns] for request in writer.requests]
    assert told[0] == ["m0", "A0", ASK]
    for number in range(1, 5):
        assert told[number] == [f"{HEADING}\nS{number - 1}m{number}", f"A{number}", ASK]
    assert as_text(one.model.requests[-1].turns).startswith(f"user: {HEADING}\nS3m4")


async def test_never_across_a_run_that_waits(desk: MakeDesk) -> None:
    """The summary ends before a run that waits for an answer; when that has ended, the next one goes further (F12)."""

    async def ask_boss() -> None:
        """Ask the boss."""

    writer = ScriptedModel(say("S0"), say("S1"))
    one = desk(say("A0"), call("ask_boss"), say("A2"), say("A3"), say("yes, then"),
               tools=[LongRunningFunctionTool(ask_boss)], **of(writer, after_runs=2, keep_runs=0))  # fmt: skip
    await talk(one, "m0")
    waiting = await one.start("m1", replace(QUICK, on_text="keep"))
    await waiting.ending_or_pause()
    for text in ("m2", "m3"):
        await (await one.start(text, replace(QUICK, on_text="keep"))).wait()
        await until_idle(one)
    log = await one.log()
    assert [summary.upto for summary in summaries(log)] == [ends(log)[0]]
    await one.runner.answer(waiting.run_id, await one.call_id("ask_boss"), "yes")
    await waiting.wait()
    log = await until_idle(one)
    assert summaries(log)[-1].upto == ends(log)[-1]
    check_promises(log)


async def test_never_across_a_call_in_the_background(desk: MakeDesk) -> None:
    """A call that works on keeps its message out of the summary, so that its result has something to belong to."""
    held = Held()
    writer = ScriptedModel(say("S0"), say("S1"))
    one = desk(call("held"), say("A0"), say("A1"), say("A2"), say("A3"), tools=[held.tool()],
               **of(writer, after_runs=1, keep_runs=0))  # fmt: skip
    run = await one.start("m0")
    await held.began.wait()
    await one.runner.detach(run.run_id, await one.call_id("held"))
    await run.wait()
    assert summaries(await talk(one, "m1")) == []
    held.may_end.set()
    await one.until(lambda log: len(ends(log)) == 3)  # its result woke the agent
    assert len(summaries(await until_idle(one))) == 1


async def test_a_failed_and_a_stopped_run_are_summarised_too(desk: MakeDesk) -> None:
    """They are part of the conversation; the writer is told how they ended."""
    writer = ScriptedModel(say("S0"))
    door = gate()
    one = desk(fault("down", retryable=False), (say("Half"), door), **of(writer, after_runs=2, keep_runs=0))
    await one.ask("m0")
    run = await one.start("m1")
    await door.reached()
    await run.cancel()
    await one.until(lambda log: bool(summaries(log)))
    told = as_text(writer.requests[-1].turns)
    assert "m0" in told
    assert "m1" in told


async def test_agents_that_hand_over(desk: MakeDesk) -> None:
    """Whoever speaks, the root agent's view is summarised; the agent that is active stays active."""
    child_model = ScriptedModel(say("I am the child"), say("still me"), say("me again"))
    writer = ScriptedModel(say("S0"), say("S1"))
    child = LlmAgent("child", child_model)
    one = desk(call("transfer_to_agent", agent_name="child"), sub_agents=[child],
               **of(writer, after_runs=1, keep_runs=0))  # fmt: skip
    log = await talk(one, "m0", "m1", "m2")
    assert len(summaries(log)) >= 2
    assert "I am the child" in as_text(writer.requests[0].turns)
    told = as_text(child_model.requests[-1].turns)
    assert told == f"user: {HEADING}\nS1m2"


async def test_the_root_needs_no_model_if_the_summaries_have_one(desk: MakeDesk) -> None:
    """A root agent without a model of its own is summarised by the one that is passed; with none it is refused when
    the app is made, not passed over in silence."""
    made: Callable[[], SequentialAgent] = lambda: SequentialAgent(  # noqa: E731
        "root", sub_agents=[LlmAgent("step", ScriptedModel(say("A0"), say("A1")))]
    )
    with pytest.raises(ConfigError, match="pass model="):
        desk(agent=made(), app_options={"compaction": Compaction(after_runs=1)})
    writer = ScriptedModel(say("S0"), say("S1"))
    one = desk(agent=made(), **of(writer, after_runs=1, keep_runs=0))
    assert len(summaries(await talk(one, "m0", "m1"))) == 2


async def test_the_roots_model_writes_if_none_is_passed(desk: MakeDesk) -> None:
    """The agent's own model is asked, between two runs."""
    one = desk(
        say("A0"), say("They met."), say("A1"), app_options={"compaction": Compaction(after_runs=1, keep_runs=0)}
    )
    log = await talk(one, "m0")
    assert text_of(summaries(log)[0].summary.parts) == f"{HEADING}\nThey met."


@pytest.mark.parametrize("options", [{}, {"after_runs": 0}, {"after_tokens": 0}, {"after_runs": 1, "keep_runs": -1}])
def test_what_never_could_happen_is_refused(options: dict[str, int]) -> None:
    """Settings with which it would never happen, or which mean nothing, are a `ConfigError`."""
    with pytest.raises(ConfigError):
        Compaction(**options)


# --- what is more urgent ----------------------------------------------------------------------------------------------


async def writing(desk: MakeDesk, *more: Any, **options: Any) -> tuple[Desk, ScriptedModel, Any]:
    """A desk whose first summary is being written."""
    door = gate()
    writer = ScriptedModel((say("They "), door, say("met.")), say("S1"), say("S2"))
    one = desk(say("A0"), say("A1"), say("A2"), *more, **options, **of(writer, after_runs=1, keep_runs=0))
    await one.ask("m0")
    await asyncio.wait_for(door.reached(), 5)
    return one, writer, door


async def test_a_message_does_not_wait_for_it(desk: MakeDesk, store: Store) -> None:
    """A new message ends the writing at once, and is told the whole conversation; the summary is tried again behind
    its run."""
    one, writer, _ = await writing(desk, store=store)
    assert (await asyncio.wait_for(one.ask("m1"), 5)).outcome == "completed"
    assert [text_of(turn.parts) for turn in one.model.requests[-1].turns] == ["m0", "A0", "m1"]
    log = await until_idle(one)
    assert [summary.upto for summary in summaries(log)] == [ends(log)[1]]
    assert len(writer.requests) == 2


async def test_a_message_of_another_process_does_not_wait_either(desk: MakeDesk) -> None:
    """The holder of the session gives the writing up for a message that comes from elsewhere (F72)."""
    data = MemoryData()
    await writing(desk, store=MemoryStore(data))
    other = desk(say("from the other"), store=MemoryStore(data))
    assert (await asyncio.wait_for(other.ask("m1"), 5)).outcome == "completed"


async def test_a_stop_and_a_rewind_do_not_wait(desk: MakeDesk) -> None:
    """Neither a stop of the run that has ended, nor someone who wants to take the session back, waits for a writer."""
    one, _, _ = await writing(desk)
    [ended] = await one.endings()
    report = await asyncio.wait_for(one.runner.cancel(ended.run_id), 5)
    assert report.outcome == "completed"
    assert summaries(await until_idle(one)) == []
    await one.ask("m1")
    await asyncio.wait_for(one.runner.rewind(**HERE, to=0), 5)


async def test_a_shutdown_does_not_wait(desk: MakeDesk) -> None:
    """A runner that closes gives it up; the next process tries it behind its next run (F107)."""
    data = MemoryData()
    one, _, _ = await writing(desk, store=MemoryStore(data))
    await asyncio.wait_for(one.runner.aclose(), 5)
    writer = ScriptedModel(say("S"))
    next_one = desk(say("A1"), store=MemoryStore(data), **of(writer, after_runs=1, keep_runs=0))
    assert len(summaries(await talk(next_one, "m1"))) == 1


class Stubborn(ScriptedModel):
    """A writer whose code does not want to end when it is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.left = asyncio.Event(), asyncio.Event()

    async def generate(self, request: Any) -> Any:
        self.begun.set()
        while not self.left.is_set():
            try:
                await self.left.wait()
            except asyncio.CancelledError:
                continue
        for chunk in ():
            yield chunk


async def test_a_writer_that_swallows_the_cancellation_holds_nobody_up(desk: MakeDesk) -> None:
    """The next message starts although the writer's code goes on, and what that comes to changes nothing (P3)."""
    writer = Stubborn()
    one = desk(say("A0"), say("A1"), **of(writer, after_runs=1, keep_runs=0))
    await one.ask("m0")
    await asyncio.wait_for(writer.begun.wait(), 5)
    assert (await asyncio.wait_for(one.ask("m1"), 5)).outcome == "completed"
    writer.left.set()
    assert summaries(await until_idle(one)) == []


@pytest.mark.parametrize("step", [fault("the writer is down"), say("  "), (say("Half a summ"), fault("cut"))])
async def test_a_writer_that_fails_is_harmless(desk: MakeDesk, caplog: pytest.LogCaptureFixture, step: Any) -> None:
    """A summary that fails or is empty is logged and not there; the conversation goes on in full, and it is tried again
    behind the next run (F15)."""
    writer = ScriptedModel(step, say("S1"))
    one = desk(say("A0"), say("A1"), **of(writer, after_runs=1, keep_runs=0))
    with caplog.at_level(logging.WARNING, "heaveto"):
        assert summaries(await talk(one, "m0")) == []
    assert [record.message for record in caplog.records] == ["session desk/ann/s could not be summarised"]
    assert len(summaries(await talk(one, "m1"))) == 1
    assert [text_of(turn.parts) for turn in one.model.requests[-1].turns] == ["m0", "A0", "m1"]


async def test_a_rewind_behind_a_summary_takes_it_back(desk: MakeDesk) -> None:
    """Going back to before a summary was made, the conversation is told in full again, and counted anew."""
    writer = ScriptedModel(say("S0"), say("S1"))
    one = desk(*(say(f"A{n}") for n in range(5)), **of(writer, after_runs=2, keep_runs=0))
    log = await talk(one, "m0", "m1")
    assert len(summaries(log)) == 1
    await one.runner.rewind(**HERE, to=ends(log)[0])
    await one.ask("m2")
    assert [text_of(turn.parts) for turn in one.model.requests[-1].turns] == ["m0", "A0", "m2"]
    log = await until_idle(one)
    assert [summary.upto for summary in effective(log) if isinstance(summary, Compacted)] == [ends(log)[-1]]


# --- validity and cost ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
async def test_all_requests_are_acceptable(desk: MakeDesk, family: str) -> None:
    """Those of the agent behind a summary, and those for a summary: of runs with calls, stopped runs, and another
    summary (P1, F14, F15)."""
    held = Held()
    writer = ScriptedModel(*(say(f"S{n}") for n in range(20)))
    steps = [(say("Hm."), call("look", what="x"), call("look", what="y")), say("A0"), call("held"), say("A1"),
             call("nothing"), say("A2"), fault("down", retryable=False), call("look", what="z"), say("A3"),
             say("A4")]  # fmt: skip
    one = desk(*steps, tools=[FunctionTool(look), held.tool()], **of(writer, after_runs=1, keep_runs=1))
    await talk(one, "m0")
    run = await one.start("m1")
    await held.began.wait()
    await run.cancel()
    for number in range(2, 7):
        await one.ask(f"m{number}")
        await until_idle(one)
    assert len(writer.requests) >= 4
    for request in [*one.model.requests, *writer.requests]:
        assert breach_of(request.turns, family) is None


def long_log(runs: int) -> list[Record]:
    records: list[Record] = []
    for number in range(runs):
        base: dict[str, Any] = {"time": 1.0, "run_id": f"r{number}"}
        records += [
            RunStarted(id=f"s{number}", input=Content.of("m"), **base),
            Message(
                id=f"m{number}",
                author="root",
                parts=Content.of("A").parts,
                usage=Usage(number, 1),
                seen=3 * number + 1,
                **base,
            ),
            RunEnded(id=f"e{number}", outcome="completed", **base),
        ]
    return [replace_seq(record, seq) for seq, record in enumerate(records, start=1)]


def replace_seq(record: Record, seq: int) -> Record:
    return structs.replace(record, seq=seq)


class Counted(list[Record]):
    """A log that counts how many of its records are looked at."""

    looks = 0

    def __iter__(self) -> Any:
        for record in super().__iter__():
            self.looks += 1
            yield record

    def __reversed__(self) -> Any:
        for record in super().__reversed__():
            self.looks += 1
            yield record

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        self.looks += len(found) if isinstance(index, slice) else 1
        return found


@pytest.mark.parametrize("runs", [10, 3000])
@pytest.mark.parametrize(("after_runs", "after_tokens"), [(10_000, None), (None, 10_000), (5, None), (None, 5)])
def test_asking_whether_it_is_time_looks_at_no_record(
    runs: int, after_runs: int | None, after_tokens: int | None
) -> None:
    """However long the session is, the question at the end of each turn looks at one record at most: the last one's
    seq (P9)."""
    state = fold(long_log(runs))
    counted = state.records = Counted(state.records)
    point = compaction_point(state, after_runs=after_runs, after_tokens=after_tokens, keep_runs=2)
    assert (point is not None) == (after_runs == 5 or after_tokens == 5)
    assert counted.looks <= 1


def test_what_is_counted_is_what_a_search_finds() -> None:
    """The counters agree with a search through the log, whatever summaries and rewinds it has."""
    records = long_log(12)
    more: list[Record] = [
        *records[:15],
        Compacted(id="c1", time=1.0, upto=9, summary=Content.of("S")),
        *records[15:21],
        Rewound(id="w1", time=1.0, to=18),
        *records[21:27],
        Compacted(id="c2", time=1.0, upto=12, summary=Content.of("S")),
        Rewound(id="w2", time=1.0, to=16),
        *records[27:],
    ]
    state = SessionState()
    for seq, record in enumerate(more, start=1):
        state.apply(replace_seq(record, seq))
        kept = effective(state.records)
        last = next((one for one in reversed(kept) if isinstance(one, Compacted)), None)
        upto = last.upto if last is not None else 0
        found = [one.seq for one in kept if isinstance(one, RunEnded) and one.seq > upto]
        since = [one for one in kept if isinstance(one, Message) and (last is None or one.seq > last.seq)]
        assert state.growth.ends == found
        assert state.growth.request_tokens == max((one.usage.input_tokens for one in since if one.usage), default=0)


def test_a_point_may_lie_before_the_summary_that_covers_its_beginning() -> None:
    """What is asked of the writer then begins with that summary."""
    records = [*long_log(4), Compacted(id="c1", time=1.0, upto=3, seq=13, summary=Content.of("S"))]
    turns = CompactionPoint(6).turns(records, "root", ModelProfile("test"))
    assert [text_of(turn.parts) for turn in turns][:2] == ["Sm", "A"]
