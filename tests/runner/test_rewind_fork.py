"""Sessions that are taken back, branched off, rolled back, and runs that are tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.runner.desk import QUICK, SESSION, USER, Desk, Ends, Held, as_text

from heaveto import Blob, FunctionTool, RunConfig, ToolContext
from heaveto.core.fold import effective
from heaveto.core.project import project
from heaveto.core.request import ModelProfile
from heaveto.errors import (
    InputError,
    RewindPointError,
    RunnerClosedError,
    SessionExistsError,
    StoreClosedError,
    UnknownRunError,
)
from heaveto.events.contents import text_of
from heaveto.events.records import (
    CallSettled,
    CancelRequested,
    Message,
    Queued,
    Record,
    Rewound,
    RunEnded,
    RunStarted,
    SessionKey,
    StateChanged,
)
from heaveto.stores.base import Store
from heaveto.stores.memory import MemoryData, MemoryStore
from heaveto.stores.sqlite import SqliteStore
from heaveto.testing import FakeClock, call, fault, gate, say
from heaveto.testing.promises import check_promises
from heaveto.tools.outside import LongRunningFunctionTool

MakeDesk = Callable[..., Desk]
HERE: dict[str, Any] = {"user_id": USER, "session_id": SESSION}
FORKED = "forked"
PROFILE = ModelProfile("test")


async def set_state(ctx: ToolContext, value: str) -> str:
    """Set state, a shared key too."""
    ctx.state["own"] = value
    ctx.state["user:shared"] = value
    return f"set {value}"


async def send_mail(to: str) -> str:
    """Send an e-mail."""
    return f"sent to {to}"


async def look(what: str) -> str:
    """Look something up."""
    return f"looked at {what}"


def tools() -> list[FunctionTool]:
    return [FunctionTool(set_state, replay="safe"), FunctionTool(send_mail), FunctionTool(look, replay="safe")]


async def rewind(desk: Desk, **point: Any) -> Rewound:
    return await asyncio.wait_for(desk.runner.rewind(**HERE, **point), 5)


def ask_boss() -> LongRunningFunctionTool:
    """A tool whose run waits for an answer."""

    async def ask_boss() -> None:
        """Ask the boss."""

    return LongRunningFunctionTool(ask_boss)


async def paused(desk: Desk, text: str = "ask") -> str:
    run = await desk.start(text, replace(QUICK, on_text="keep"))
    await run.ending_or_pause()
    return run.run_id


# --- rewind -----------------------------------------------------------------------------------------------------------


async def test_a_session_is_as_it_was_and_says_what_remains(desk: MakeDesk, store: Store) -> None:
    """The conversation and the session's own state are as before the run; shared state and the e-mail remain, and the
    e-mail is listed, the harmless look-up is not (F137)."""
    steps = [call("set_state", value="a"), say("A"), (call("set_state", value="b"), call("send_mail", to="bob"),
             call("look", what="x")), say("B"), say("C")]  # fmt: skip
    one = desk(*steps, store=store, tools=tools())
    await one.ask("first")
    before = await one.log()
    run = await one.start("second")
    await run.wait()
    mail = await one.call_id("send_mail")
    assert (await one.state())["own"] == "b"

    rewound = await rewind(one, before_run=run.run_id)
    log = await one.log()
    assert rewound == log[-1]
    assert (rewound.to, rewound.not_undone) == (len(before), (f"send_mail {mail}: succeeded",))
    assert await one.state() == {"own": "a", "user:shared": "b"}
    assert log[: len(before)] == before, "nothing is deleted"
    assert effective(log) == [*before, rewound]
    await one.ask("third")
    assert "first" in one.told()
    assert "second" not in one.told()
    assert "bob" not in one.told()


async def test_the_points_a_session_can_be_taken_back_to(desk: MakeDesk) -> None:
    """In the middle of a run there is none; the error names those before and behind it. The beginning is one (F137)."""
    one = desk(call("look", what="x"), say("A"), say("B"), tools=tools())
    await one.ask("first")
    last = len(await one.log())
    for inside in (1, last - 1):
        with pytest.raises(RewindPointError) as refused:
            await rewind(one, to=inside)
        assert (refused.value.to, refused.value.before, refused.value.behind) == (inside, 0, last)
    with pytest.raises(RewindPointError) as refused:
        await rewind(one, to=last + 5)
    assert (refused.value.before, refused.value.behind) == (last, None)
    with pytest.raises(UnknownRunError):
        await rewind(one, before_run="nobody")
    for wrong in ({}, {"to": 0, "before_run": "x"}):
        with pytest.raises(InputError):
            await rewind(one, **wrong)
    assert len(await one.log()) == last, "nothing was written"
    assert (await rewind(one, to=0)).to == 0
    await one.ask("second")
    assert "first" not in one.told()


async def test_a_rewind_waits_for_the_run_and_passes_those_that_wait(desk: MakeDesk) -> None:
    """It happens behind the run that runs and before the messages that wait, which keep their turn (F137)."""
    door = gate()
    one = desk((say("fir"), door, say("st")), say("second"), say("third"))
    running = await one.start("first")
    await door.reached()
    waits = await one.start("second")
    rewinding = asyncio.create_task(rewind(one, before_run=running.run_id))
    await asyncio.sleep(0)
    assert not rewinding.done()
    door.open()
    await rewinding
    assert (await waits.wait()).outcome == "completed"
    assert "first" not in one.told()
    kinds = [type(record) for record in await one.log()]
    assert kinds.index(Rewound) > kinds.index(RunEnded)
    assert await one.runner.inbox(**HERE) == []


async def test_stop_and_rewind(desk: MakeDesk, store: Store) -> None:
    """Stop the run, take the session back to before its message: as if it had not been, but for the e-mail (F137)."""
    held = Held()
    one = desk(
        (call("set_state", value="a"), call("send_mail", to="bob")), call("held"), say("B"), store=store,
        tools=[*tools(), held.tool()],
    )  # fmt: skip
    run = await one.start("first")
    await held.began.wait()
    report = await run.cancel(by="ann")
    assert report.outcome == "cancelled"
    rewound = await rewind(one, before_run=run.run_id)
    assert [effect.split()[0] for effect in rewound.not_undone] == ["send_mail", "held"]
    assert rewound.not_undone[1].endswith(": cancelled")
    assert "own" not in await one.state()
    await one.ask("second")
    assert as_text(one.model.requests[-1].turns) == "user: second"


async def test_paused_runs_that_are_taken_back_end(desk: MakeDesk, store: Store) -> None:
    """A run that waits for an answer ends with the rewind, its end hook is told at once and once, and its answer is
    refused from then on; one that began before the point waits on (F86)."""
    ends = Ends()
    one = desk(
        call("ask_boss"), say("A"), call("ask_boss"), say("B"), store=store, tools=[ask_boss()], plugins=[ends]
    )  # fmt: skip
    kept = await paused(one, "first")
    keep = replace(QUICK, on_text="keep")
    between = await one.start("between", keep)
    await between.wait()
    gone = await paused(one, "gone")
    with pytest.raises(RewindPointError):
        await rewind(one, before_run=gone)  # `kept` is open there
    await rewind(one, to=0)
    await ends.come(3)
    log = await one.log()
    outcomes = {record.run_id: (record.outcome, record.cause) for record in log if isinstance(record, RunEnded)}
    assert outcomes[kept] == outcomes[gone] == ("cancelled", "superseded")
    assert sorted(end.run_id for end in ends.ends) == sorted([kept, between.run_id, gone])
    assert not any(end.redelivered for end in ends.ends)
    assert await one.runner.questions(**HERE) == []
    check_promises(log, told=[end.run_id for end in ends.ends])
    await released(one)


async def released(desk: Desk) -> None:
    """Wait until no run has any business left."""
    changed = asyncio.Event()
    unsubscribe = desk.runner.store.subscribe(SessionKey("desk", USER, SESSION), lambda _: changed.set())
    async with asyncio.timeout(5):
        while await desk.runner.store.unfinished():
            await changed.wait()
            changed.clear()
    unsubscribe()


async def test_work_in_the_background_that_is_taken_back_is_stopped(desk: MakeDesk) -> None:
    """A call that went into the background behind the point is stopped, and wakes no agent with what it came to (F47,
    F138)."""
    held = Held()
    one = desk(call("held"), say("A"), say("B"), tools=[held.tool()])
    run = await one.start("first")
    await held.began.wait()
    call_id = await one.call_id("held")
    await one.runner.detach(run.run_id, call_id)
    await run.wait()
    rewound = await rewind(one, before_run=run.run_id)
    assert rewound.not_undone == (f"held {call_id}: cancelled",)
    await held.left.wait()
    log = await one.log()
    assert not any(isinstance(record, Queued) for record in log)
    await one.ask("second")
    assert as_text(one.model.requests[-1].turns) == "user: second"


async def test_rewinding_twice(desk: MakeDesk) -> None:
    """To a point before an earlier rewind, and to one behind it; a run that no longer counts cannot be gone behind."""
    one = desk(say("A"), say("B"), say("C"), say("D"))
    first = await one.start("a")
    await first.wait()
    second = await one.start("b")
    await second.wait()
    await rewind(one, before_run=second.run_id)
    with pytest.raises(InputError, match="taken back before"):
        await rewind(one, before_run=second.run_id)
    third = await one.start("c")
    await third.wait()
    await rewind(one, before_run=third.run_id)
    await rewind(one, before_run=first.run_id)
    await one.ask("d")
    assert as_text(one.model.requests[-1].turns) == "user: d"
    assert [text_of(turn.parts) for turn in one.model.requests[2].turns] == ["a", "A", "c"]


@pytest.mark.parametrize("medium", ["memory", "sqlite"])
async def test_other_processes_follow(desk: MakeDesk, tmp_path: Path, medium: str) -> None:
    """A second process that has the session in its memory is told what the first one took back, in the request and in
    the state, and may take it back itself (F72)."""
    data = MemoryData()

    def open_store() -> Store:
        return MemoryStore(data) if medium == "memory" else SqliteStore(tmp_path / "store.db")

    one = desk(call("set_state", value="a"), say("A"), call("set_state", value="b"), say("B"), tools=tools(),
               store=open_store())  # fmt: skip
    other = desk(say("C"), say("D"), tools=tools(), store=open_store())
    await one.ask("first")
    second = await one.start("second")
    await second.wait()
    await other.ask("third")
    assert "second" in other.told()
    await rewind(one, before_run=second.run_id)
    await other.ask("fourth")
    told = [text_of(turn.parts) for turn in other.model.requests[-1].turns if turn.role == "user"]
    assert told == ["first", "fourth"]
    assert (await other.state())["own"] == "a"
    assert (await rewind(other, to=0)).to == 0
    assert "own" not in await one.state()


class Dying(MemoryStore):
    """A store whose process dies at the append of a rewind: just before, or just behind it."""

    def __init__(self, data: MemoryData, *, lands: bool) -> None:
        super().__init__(data)
        self._lands = lands
        self.died, self.buried = asyncio.Event(), asyncio.Event()

    async def append(self, key: SessionKey, records: Sequence[Record], **more: Any) -> int:
        if not any(isinstance(record, Rewound) for record in records):
            return await super().append(key, records, **more)
        if self._lands:
            await super().append(key, records, **more)
        self.abandon()
        self.died.set()
        await self.buried.wait()
        raise StoreClosedError


@pytest.mark.parametrize("lands", [False, True])
async def test_a_crash_at_the_rewind(desk: MakeDesk, lands: bool) -> None:
    """It has happened whole, with the endings of the paused runs, or not at all; their end hooks are told once by the
    next process (P7)."""
    data, ends = MemoryData(), Ends()
    store = Dying(data, lands=lands)
    one = desk(call("ask_boss"), store=store, tools=[ask_boss()])
    run_id = await paused(one)
    rewinding = asyncio.create_task(one.runner.rewind(**HERE, to=0))
    await store.died.wait()
    other = desk(say("fine"), store=MemoryStore(data), tools=[ask_boss()], plugins=[ends])
    await asyncio.wait_for(other.runner.recover(), 5)
    log = await other.log()
    assert [record.run_id for record in log if isinstance(record, RunEnded)] == ([run_id] if lands else [])
    assert any(isinstance(record, Rewound) for record in log) is lands
    assert [end.run_id for end in ends.ends] == ([run_id] if lands else [])
    await other.runner.recover()
    assert len(ends.ends) == int(lands)
    store.buried.set()
    with pytest.raises(StoreClosedError):
        await rewinding


async def test_a_rewind_of_a_closed_runner(desk: MakeDesk) -> None:
    """Nobody waits for ever: a rewind that waits when the runner closes is refused, and nothing is taken back."""
    held = Held(swallow=1)
    one = desk(call("held"), tools=[held.tool()])
    run = await one.start("first")
    await held.began.wait()
    rewinding = asyncio.create_task(one.runner.rewind(**HERE, before_run=run.run_id))
    await asyncio.sleep(0)
    held.may_end.set()
    await one.runner.aclose()
    with pytest.raises(RunnerClosedError):
        await asyncio.wait_for(rewinding, 5)


# --- fork -------------------------------------------------------------------------------------------------------------


async def fork(desk: Desk, at: int, name: str = FORKED) -> list[Record]:
    await desk.runner.fork(**HERE, at=at, new_session_id=name)
    return await desk.runner.records(user_id=USER, session_id=name)


async def test_a_fork_tells_the_same_and_is_independent(desk: MakeDesk, store: Store) -> None:
    """The copy tells a model exactly what the original told it, has run ids of its own, and the two never meet again:
    each goes on by itself."""
    one = desk(
        (say("Let me see."), call("look", what="x"), call("send_mail", to="bob")), say("A"), say("in the fork"),
        say("in the original"), store=store, tools=tools(),
    )  # fmt: skip
    await one.ask("first")
    original = await one.log()
    copy = await fork(one, len(original))
    assert project(copy, "root", PROFILE) == project(original, "root", PROFILE)
    assert {record.run_id for record in copy if record.run_id}.isdisjoint({record.run_id for record in original})
    assert [type(record) for record in copy] == [type(record) for record in original]
    check_promises(copy)
    run = await one.runner.start(user_id=USER, session_id=FORKED, new_message="more")
    assert await run.result() == "in the fork"
    assert await one.log() == original
    await one.ask("other")
    assert "more" not in one.told()
    assert len(await one.runner.records(user_id=USER, session_id=FORKED)) > len(copy)


async def test_a_fork_leaves_shared_state_as_it_is(desk: MakeDesk, store: Store) -> None:
    """Copying an old record that set a shared value does not set it again: it would undo what came since."""
    one = desk(call("set_state", value="a"), say("A"), call("set_state", value="b"), say("B"), store=store,
               tools=tools())  # fmt: skip
    await one.ask("first")
    at = len(await one.log())
    await one.ask("second")
    await fork(one, at)
    assert await one.runner.state(user_id=USER, session_id=FORKED) == {"own": "a", "user:shared": "b"}
    assert await one.state() == {"own": "b", "user:shared": "b"}


async def test_a_fork_at_every_seq_of_a_run_is_whole(desk: MakeDesk) -> None:
    """Cut anywhere, the copy closes what is open there: the promises hold, nothing is executed, no hook is told, and
    the next message is answered (P1, P7)."""
    ends = Ends()
    one = desk(
        (say("Hm."), call("look", what="x"), call("send_mail", to="bob")), call("ask_boss"), say("A"),
        tools=[*tools(), ask_boss()], plugins=[ends],
    )  # fmt: skip
    run_id = await paused(one)
    call_id = await one.call_id("ask_boss")
    await one.runner.answer(run_id, call_id, "yes")
    await (await one.runner.attach(run_id)).wait()
    await ends.come(1)
    await released(one)
    log = await one.log()
    for at in range(len(log) + 1):
        copy = await fork(one, at, f"fork {at}")
        check_promises(copy)
        ended = [record for record in copy if isinstance(record, RunEnded)]
        assert len(ended) == bool(at)
        if at < len(log) and ended:
            assert (ended[0].outcome, ended[0].cause) == ("cancelled", "superseded")
    assert len(ends.ends) == 1
    assert await one.runner.store.unfinished() == []


async def test_what_works_on_in_the_original_is_unknown_in_the_copy(desk: MakeDesk) -> None:
    """A call in the background, and a message that waits, belong to the original: the copy says that nobody knows what
    came of the one, and has the other ended (P2)."""
    held, door = Held(), gate()
    one = desk(call("held"), say("A"), (say("B"), door), say("C"), tools=[held.tool()])
    run = await one.start("first")
    await held.began.wait()
    await one.runner.detach(run.run_id, await one.call_id("held"))
    await run.wait()
    second = await one.start("second")
    await door.reached()
    waits = await one.start("third")
    copy = await fork(one, len(await one.log()))
    check_promises(copy)
    late = [record for record in copy if isinstance(record, CallSettled)][-1]
    assert (late.status, late.late) == ("unknown", True)
    assert sum(isinstance(record, RunEnded) for record in copy) == 3
    door.open()
    held.may_end.set()
    assert (await second.wait()).outcome == (await waits.wait()).outcome == "completed"
    assert await one.runner.records(user_id=USER, session_id=FORKED) == copy


async def test_a_fork_has_the_artifacts(desk: MakeDesk, store: Store) -> None:
    """All versions of the session's artifacts are copied, and are its own from then on; the user's are shared."""

    async def save(ctx: ToolContext) -> str:
        """Save two versions."""
        for text in ("one", "two"):
            await ctx.save_artifact("note.txt", Blob(mime_type="text/plain", content=text.encode()))
        return "saved"

    one = desk(call("save"), say("A"), store=store, tools=[save])
    await one.ask("first")
    await fork(one, len(await one.log()))
    artifacts = one.runner._services.artifacts  # pyright: ignore[reportPrivateUsage]
    here, there = SessionKey("desk", USER, SESSION), SessionKey("desk", USER, FORKED)
    assert await artifacts.versions(there, "note.txt") == [0, 1]
    await artifacts.delete(here, "note.txt")
    kept = await artifacts.load(there, "note.txt", 0)
    assert kept is not None
    assert kept.content == b"one"


async def test_forks_that_cannot_be(desk: MakeDesk) -> None:
    """A seq that the session does not have, and a name that is taken: an error, and nothing is made."""
    one = desk(say("A"))
    await one.ask("first")
    with pytest.raises(InputError, match="the seqs 1 to"):
        await fork(one, 99)
    assert await one.runner.get_session(user_id=USER, session_id=FORKED) is None
    await fork(one, 0)
    with pytest.raises(SessionExistsError):
        await fork(one, 1)


class Counting(MemoryStore):
    """Counts what is appended to sessions."""

    def __init__(self, data: MemoryData | None = None) -> None:
        super().__init__(data)
        self.appends: list[int] = []

    async def append(self, key: SessionKey, records: Sequence[Record], **more: Any) -> int:
        self.appends.append(len(records))
        return await super().append(key, records, **more)


async def test_a_large_session_is_copied_in_one_append(desk: MakeDesk) -> None:
    """10,000 records come in one append: a process that dies in the midst leaves no half session, whose open run others
    would go on with."""
    store = Counting()
    one = desk(say("A"), store=store)
    await one.ask("first")
    key = SessionKey("desk", USER, SESSION)
    more: list[Record] = []
    for number in range(2500):
        stamp: dict[str, Any] = {"time": 1.0, "run_id": f"r{number}"}
        more.append(RunStarted(id=f"s{number}", input=(await one.log())[0].input, **stamp))  # type: ignore[union-attr]
        more.append(Message(id=f"m{number}", author="root", parts=(), **stamp))
        more.append(StateChanged(id=f"c{number}", delta={"n": number}, **stamp))
        more.append(RunEnded(id=f"e{number}", outcome="completed", **stamp))
    await released(one)
    lease = await store.claim(key)
    await store.append(key, more, token=lease.token)
    await store.release(lease, settled=[record.run_id for record in more])
    store.appends.clear()
    copy = await fork(one, len(more))
    assert store.appends == [len(copy)]
    assert (await one.runner.state(user_id=USER, session_id=FORKED))["n"] == 2499 - 1


# --- rollback ---------------------------------------------------------------------------------------------------------

ROLLBACK = replace(QUICK, busy_policy="rollback")


async def test_rollback_is_as_if_the_run_had_not_been(desk: MakeDesk, store: Store) -> None:
    """The running run is stopped as superseded and taken back, its state with it; what it has done outside is listed
    in the log (F77)."""
    held = Held()
    one = desk(
        say("A"), (call("set_state", value="b"), call("send_mail", to="bob")), call("held"), say("C"), store=store,
        tools=[*tools(), held.tool()],
    )  # fmt: skip
    await one.ask("first")
    run = await one.start("second")
    await held.began.wait()
    third = await one.start("third", ROLLBACK)
    assert ((await run.wait()).cause, (await third.wait()).outcome) == ("superseded", "completed")
    assert [text_of(turn.parts) for turn in one.model.requests[-1].turns] == ["first", "A", "third"]
    assert "own" not in await one.state()
    [rewound] = [record for record in await one.log() if isinstance(record, Rewound)]
    assert rewound.run_id == third.run_id
    assert [effect.split()[0] for effect in rewound.not_undone] == ["send_mail", "held"]


async def test_rollback_with_a_queue(desk: MakeDesk) -> None:
    """What waits before the message is taken back with the run; what comes behind it has its turn, in order."""
    door = gate()
    one = desk((say("fir"), door), say("C"), say("D"))
    runs = [await one.start("first")]
    await door.reached()
    runs.append(await one.start("second"))
    runs.append(await one.start("third", ROLLBACK))
    runs.append(await one.start("fourth"))
    ended = [await run.wait() for run in runs]
    assert [end.outcome for end in ended] == ["cancelled", "cancelled", "completed", "completed"]
    assert [text_of(turn.parts) for turn in one.model.requests[-1].turns] == ["third", "C", "fourth"]


async def test_rollback_of_an_idle_session(desk: MakeDesk) -> None:
    """Where nothing runs, nothing is taken back: not the run that was interrupted before, nor one that has ended."""
    door = gate()
    one = desk((say("fir"), door), say("B"), say("C"), say("D"))
    first = await one.start("first")
    await door.reached()
    await (await one.start("second", replace(QUICK, busy_policy="interrupt"))).wait()
    await first.wait()
    await released(one)
    await one.ask("third", ROLLBACK)
    told = one.told()
    assert [text for text in ("first", "second", "third") if text not in told] == []
    assert not any(isinstance(record, Rewound) for record in await one.log())


async def test_rollback_ends_paused_runs_that_it_takes_back(desk: MakeDesk) -> None:
    """A run that began behind the one that is rolled back, and waits, is taken back with it, and ends (F86)."""
    held, ends = Held(), Ends()
    one = desk(
        call("ask_boss"), call("ask_boss"), call("held"), say("D"), tools=[ask_boss(), held.tool()], plugins=[ends]
    )  # fmt: skip
    old = await paused(one, "old")
    young = await paused(one, "young")
    first_call = next(one_ for one_ in await one.runner.questions(**HERE) if one_.run_id == old)
    await one.runner.answer(old, first_call.call_id, "yes")
    await held.began.wait()
    last = await one.start("last", replace(ROLLBACK, on_text="keep"))
    assert (await last.wait()).outcome == "completed"
    log = await one.log()
    outcomes = {record.run_id: (record.outcome, record.cause) for record in log if isinstance(record, RunEnded)}
    assert outcomes[old] == outcomes[young] == ("cancelled", "superseded")
    await ends.come(3)
    check_promises(log, told=[end.run_id for end in ends.ends])
    assert as_text(one.model.requests[-1].turns) == "user: last"


async def test_rollback_stops_the_background_of_the_run(desk: MakeDesk) -> None:
    """What the run had put into the background is stopped too: nobody shall hear of it."""
    held, more = Held(), Held()
    one = desk(call("held"), call("more"), say("C"), tools=[held.tool(), more.tool("more")])
    run = await one.start("first")
    await held.began.wait()
    await one.runner.detach(run.run_id, await one.call_id("held"))
    await more.began.wait()
    await (await one.start("second", ROLLBACK)).wait()
    await held.left.wait()
    await one.until_settled("held", late=True)
    assert (await one.settled())["held"].status == "cancelled"
    await released(one)
    assert as_text(one.model.requests[-1].turns) == "user: second"


async def test_rollback_of_a_run_whose_process_died(desk: MakeDesk) -> None:
    """A message with `rollback` that finds a crashed run does not have it continued, but takes it back (F107)."""
    data, held = MemoryData(), Held()
    dying = MemoryStore(data)
    one = desk(call("held"), store=dying, tools=[held.tool()])
    run = await one.start("first", replace(QUICK, on_crash="resume"))
    await held.began.wait()
    dying.abandon()
    other = desk(say("B"), store=MemoryStore(data), tools=[held.tool()])
    assert (await asyncio.wait_for(other.ask("second", ROLLBACK), 5)).outcome == "completed"
    log = await other.log()
    ended = next(record for record in log if isinstance(record, RunEnded) and record.run_id == run.run_id)
    assert (ended.outcome, ended.cause) == ("cancelled", "superseded")
    assert as_text(other.model.requests[-1].turns) == "user: second"
    [rewound] = [record for record in log if isinstance(record, Rewound)]
    assert [effect.split()[0] for effect in rewound.not_undone] == ["held"]
    check_promises(log)


async def test_the_process_dies_between_the_stop_and_the_rollback(desk: MakeDesk) -> None:
    """What a message wanted is stored with it: whoever carries it out takes the run back that it had stopped (F164)."""
    data, held = MemoryData(), Held()
    store = Dying(data, lands=False)
    one = desk(call("held"), store=store, tools=[held.tool()])
    await one.start("first")
    await held.began.wait()
    sending = asyncio.create_task(one.start("second", ROLLBACK))
    await store.died.wait()
    other = desk(say("B"), store=MemoryStore(data), tools=[held.tool()])
    await asyncio.wait_for(other.runner.recover(), 5)
    assert as_text(other.model.requests[-1].turns) == "user: second"
    log = await other.log()
    assert sum(isinstance(record, Rewound) for record in log) == 1
    assert [record.outcome for record in log if isinstance(record, RunEnded)] == ["cancelled", "completed"]
    check_promises(log)
    store.buried.set()
    await asyncio.wait({sending})


# --- retry ------------------------------------------------------------------------------------------------------------


async def test_a_failed_run_is_tried_again(desk: MakeDesk) -> None:
    """A new run with the same settings, whose agent sees how far the failed one came; a run that has not failed is not
    tried again."""
    one = desk(call("send_mail", to="bob"), fault("the provider is down"), say("done"), tools=tools())
    config = replace(QUICK, max_llm_calls=7, model_retries=0, busy_policy="interrupt")
    failed = await one.start("write to bob", config)
    assert (await failed.wait()).outcome == "failed"
    again = await one.runner.retry(failed.run_id, note="Once more.")
    assert await again.result() == "done"
    assert again.run_id != failed.run_id
    assert "sent to bob" in one.told()
    assert "Once more." in one.told()
    started = [record for record in await one.log() if isinstance(record, RunStarted)][-1]
    assert started.limits.llm_calls == 7
    assert started.settings.get("busy_policy", "queue") == "queue"
    with pytest.raises(InputError, match="only a run that has failed"):
        await one.runner.retry(again.run_id)
    with pytest.raises(UnknownRunError):
        await one.runner.retry("nobody")


async def test_a_retry_waits_for_its_turn_and_lives_behind_its_deadline(desk: MakeDesk) -> None:
    """Whatever the failed run's message did to a busy session, trying it again interrupts nobody; a deadline that has
    passed does not end it."""
    clock, door = FakeClock(), gate()
    one = desk(fault("down"), (say("B"), door), say("done"), clock=clock)
    config = RunConfig(busy_policy="interrupt", model_retries=0, deadline=clock.time() + 10)
    failed = await one.start("first", config)
    assert (await failed.wait()).outcome == "failed"
    running = await one.start("second")
    await door.reached()
    await clock.advance(20)
    retrying = await one.runner.retry(failed.run_id)
    door.open()
    assert (await running.wait()).outcome == "completed"
    assert await retrying.result() == "done"
    assert not any(isinstance(record, CancelRequested) for record in await one.log())
