"""What one worker does to what another one carries."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.crash.workers import HERE, KEY, Medium, Yard
from tests.runner.desk import Desk, Held

from heaveto import AgentTool, LlmAgent, RunConfig, ToolContext
from heaveto.errors import LogMovedError, RunIdTakenError, RunStoppedError, SessionErasedError
from heaveto.events.contents import text_of
from heaveto.events.records import Message, StateChanged
from heaveto.testing import ScriptedModel, call, gate, hang, say

REJECT = RunConfig(busy_policy="reject")
MEDIA = pytest.mark.parametrize("medium", ["memory", "sqlite"])


@MEDIA
async def test_erasing_stops_what_another_worker_carries(medium: Medium, tmp_path: Path) -> None:
    """Whoever erases a session stops its run first, wherever that is carried; its followers are told."""
    yard, held = Yard(medium, tmp_path), Held()
    first, second = yard.worker(call("held"), tools=[held.tool()]), yard.worker()
    run = await first.start("one")
    waiting = await first.start("two")
    await held.began.wait()
    await second.runner.erase_session(**HERE, by="dpo")
    assert held.left.is_set()
    assert held.effects == 0
    for handle in (run, waiting):
        assert handle.status == "cancelled"
    with pytest.raises(SessionErasedError):
        await first.log()
    await yard.close()


@MEDIA
async def test_a_run_id_of_another_session_is_refused(medium: Medium, tmp_path: Path) -> None:
    """Run ids are unique in the store, so that a stop or an attach by id means one run, whoever chose the id."""
    yard = Yard(medium, tmp_path)
    worker = yard.worker()
    await (await worker.runner.start(user_id="ann", session_id="a", new_message="hi", run_id="tab-1")).wait()
    with pytest.raises(RunIdTakenError):
        await worker.runner.start(user_id="eve", session_id="e", new_message="hi", run_id="tab-1")
    await yard.close()


@MEDIA
async def test_a_repeated_start_is_no_busy_session(medium: Medium, tmp_path: Path) -> None:
    """With ``reject``, the same key from another worker finds the run that it began (F115)."""
    for number in range(12):
        yard = Yard(medium, tmp_path)
        workers = [yard.worker((say("half"), gate())) for _ in range(3)]
        here = {"user_id": "u", "session_id": f"s{number}", "new_message": "go"}
        key = f"key-{number}"
        runs = await asyncio.gather(
            *(worker.runner.start(**here, run_config=REJECT, idempotency_key=key) for worker in workers)
        )
        assert len({run.run_id for run in runs}) == 1
        await yard.close()


async def test_the_result_of_a_stopped_run_is_not_half_an_answer() -> None:
    """`result` gives an answer or says why there is none; text of a tool's own branch is never it."""
    inner = LlmAgent("inner", ScriptedModel((say("private"), hang())))
    desk = Desk(call("inner", request="look"), tools=[AgentTool(inner)])
    run = await desk.start()
    async for item in run.stream():
        if getattr(item, "text", "") == "private":
            break
    await run.cancel(by="ann")
    with pytest.raises(RunStoppedError) as stopped:
        await run.result()
    assert stopped.value.report.by == "ann"
    await desk.runner.aclose()


async def test_sessions_are_listed_page_by_page() -> None:
    """A listing can be continued at any row, so that nothing is left out silently."""
    desk = Desk()
    for number in range(7):
        await desk.runner.create_session(user_id="ann", session_id=f"s{number}")
    seen: list[str] = []
    before: float | None = None
    while rows := await desk.runner.list_sessions(limit=3, before=before):
        seen.extend(row.key.session for row in rows)
        before = rows[-1].updated
    assert seen == [f"s{number}" for number in reversed(range(7))]
    await desk.runner.aclose()


@MEDIA
async def test_two_runs_of_one_session_lose_nothing_of_each_other(medium: Medium, tmp_path: Path) -> None:
    """Two workers that take a turn each in one session at once: both turns are there whole, and both writes (F82)."""

    async def note(ctx: ToolContext) -> None:
        """Note which run this is."""
        ctx.state["runs"] = [*ctx.state.get("runs", []), ctx.run_id]

    yard = Yard(medium, tmp_path)
    turn = (call("note"), say("noted"))  # either may carry out what the other one left in the inbox
    workers = [yard.worker(*turn, *turn, tools=[note]) for _ in range(2)]
    runs = await asyncio.gather(*(worker.start("go") for worker in workers))
    assert [(await run.wait()).outcome for run in runs] == ["completed", "completed"]
    log = await workers[0].log()
    said = [record.run_id for record in log if isinstance(record, Message) and text_of(record.parts)]
    expected = sorted(run.run_id for run in runs)
    assert sorted(said) == expected
    assert sorted((await workers[0].runner.state(**HERE))["runs"]) == expected
    stale = StateChanged(id="stale", time=1.0, delta={"names": []})
    with pytest.raises(LogMovedError):  # whoever still decides on an older log is told
        await workers[1].store.append(KEY, [stale], token=None, expect=1)
    await yard.close()
