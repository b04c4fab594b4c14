"""A session under everything at once, against a small model of what must come of it.

Hypothesis plays users, models, tools, killers and operators on two workers with one store; time stands still unless the
machine moves it. After each step the log keeps its promises; at the end nobody's message was lost or answered twice.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.effort import examples

from heaveto import LlmAgent, MemoryStore, Plugin, RunConfig, RunEnd, Runner, ToolContext
from heaveto.core.request import ModelProfile, ModelRequest
from heaveto.errors import SessionBusyError, UnknownRunError
from heaveto.events.contents import text_of
from heaveto.events.records import CallSettled, Message, Record, RunEnded, RunStarted, SessionKey
from heaveto.models.base import CallChunk, Chunk, EndChunk, Model, TextChunk
from heaveto.runner.application.config import BusyPolicy
from heaveto.stores.memory import MemoryData
from heaveto.testing import FakeClock
from heaveto.testing.clock import settle
from heaveto.testing.crash import CrashingStore
from heaveto.testing.promises import check_promises, lost_messages
from heaveto.testing.request_check import find_breach

HERE: dict[str, Any] = {"user_id": "u", "session_id": "s"}
KEY = SessionKey("machine", "u", "s")
NEVER = 10**9
T = TypeVar("T")


@dataclass(eq=False)
class Asked:
    """A request that waits for the machine to answer it."""

    request: ModelRequest
    answer: asyncio.Future[list[Chunk]]


class HeldModel(Model):
    """A model whose answers the machine gives."""

    name = "held"
    profile = ModelProfile(name="scripted")

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.breaches: list[str] = []

    async def generate(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        breach = find_breach(request)
        if breach is not None:
            self.breaches.append(breach)
        asked = Asked(request, asyncio.get_running_loop().create_future())
        self.asked.append(asked)
        try:
            for chunk in await asked.answer:
                yield chunk
        finally:
            self.asked.remove(asked)


@dataclass(eq=False)
class Digging:
    """A tool call that waits for the machine to let it end."""

    ctx: ToolContext
    stubborn: bool
    end: asyncio.Future[str]


class Process:
    """One worker: a runner on a store instance of its own, that may die."""

    def __init__(self, data: MemoryData, clock: FakeClock, executions: Counter[str], ends: list[RunEnd]) -> None:
        self.memory = MemoryStore(data, clock=clock)
        self.store = CrashingStore(self.memory, after=NEVER)
        self.model = HeldModel()
        self.digs: list[Digging] = []
        self._executions = executions

        async def dig(ctx: ToolContext, stubborn: bool = False) -> str:
            """Dig."""
            return await self._dig(ctx, stubborn)

        class Bell(Plugin):
            async def on_run_end(self, end: RunEnd) -> None:
                ends.append(end)

        agent = LlmAgent("root", self.model, tools=[dig])
        self.runner = Runner(agent, app_name=KEY.app, store=self.store, plugins=[Bell()], clock=clock)

    async def _dig(self, ctx: ToolContext, stubborn: bool) -> str:
        self._executions[ctx.call_id] += 1
        digging = Digging(ctx, stubborn, asyncio.get_running_loop().create_future())
        self.digs.append(digging)
        try:
            while True:
                try:
                    return await asyncio.shield(digging.end)
                except asyncio.CancelledError:
                    if not stubborn:
                        raise
        finally:
            self.digs.remove(digging)

    def kill(self) -> None:
        self.store.kill()
        self.memory.abandon()


@dataclass
class Sent:
    """A message that was accepted, and the run that it went into."""

    text: str
    run_id: str
    is_own: bool


class Lane(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.data, self.clock = MemoryData(), FakeClock()
        self.executions: Counter[str] = Counter()
        self.ends: list[RunEnd] = []
        self.sent: list[Sent] = []
        self.rejected: list[str] = []
        self.taken_back: set[str] = set()
        self.said: dict[str, str] = {}
        self.number = 0
        self.dead: list[Process] = []
        self.killed = False

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        async def bounded() -> T:
            task = asyncio.ensure_future(work)
            for _ in range(40):
                await settle()
                if task.done():
                    break
                await self.clock.advance(0.5)
            assert task.done(), f"hangs: {task}"
            await settle()
            return task.result()

        return self.loop.run_until_complete(bounded())

    @initialize()
    def open(self) -> None:
        self.processes = [self._process(), self._process()]

    def _process(self) -> Process:
        return Process(self.data, self.clock, self.executions, self.ends)

    @property
    def log(self) -> list[Record]:
        async def read() -> list[Record]:
            return await self.processes[0].memory.read(KEY)

        return self.loop.run_until_complete(read()) if KEY in self.data.sessions else []

    @property
    def asked(self) -> list[Asked]:
        return [asked for process in self.processes for asked in process.model.asked if not asked.answer.done()]

    @property
    def digs(self) -> list[Digging]:
        return [digging for process in self.processes for digging in process.digs if not digging.end.done()]

    # --- users

    @rule(where=st.integers(0, 1), policy=st.sampled_from(["queue", "reject", "interrupt", "merge", "steer"]))
    def start(self, where: int, policy: BusyPolicy) -> None:
        self.number += 1
        text = f"<m{self.number}>"
        config = RunConfig(busy_policy=policy, cancel_grace_seconds=1.0, on_crash="seal")
        own = f"run-{self.number}"
        runner = self.processes[where].runner
        try:
            run = self.do(runner.start(new_message=text, run_config=config, run_id=own, **HERE))
        except SessionBusyError:
            assert policy == "reject"
            self.rejected.append(text)
        else:
            self.sent.append(Sent(text, run.run_id, run.run_id == own))
            assert run.run_id == own or policy in ("merge", "steer")

    @precondition(lambda self: self.sent)
    @rule(where=st.integers(0, 1), data=st.data())
    def stop(self, where: int, data: st.DataObject) -> None:
        run_id = data.draw(st.sampled_from(sorted({sent.run_id for sent in self.sent})))
        before = [record for record in self.log if record.run_id == run_id]
        report = self.do(self.processes[where].runner.cancel(run_id, by="ann"))
        ended = [record for record in self.log if isinstance(record, RunEnded) and record.run_id == run_id]
        assert len(ended) == 1, "a stop returned before the ending was durable"
        assert report.outcome == ended[0].outcome
        if not any(isinstance(record, RunEnded) for record in before):
            assert report.outcome == "cancelled"
            if not any(isinstance(record, RunStarted) for record in before):
                self.taken_back.add(run_id)

    @rule(where=st.integers(0, 1))
    def stop_nobody(self, where: int) -> None:
        with pytest.raises(UnknownRunError):
            self.do(self.processes[where].runner.cancel("nobody"))

    # --- models and tools

    @precondition(lambda self: self.asked)
    @rule(calls=st.integers(0, 2), stubborn=st.booleans())
    def answer(self, calls: int, stubborn: bool) -> None:
        asked = self.asked[0]
        self.number += 1
        text = f"(a{self.number})"
        chunks: list[Chunk] = [TextChunk(text)]
        args = '{"stubborn": true}' if stubborn else "{}"
        chunks += [CallChunk(index, name="dig", provider_id=f"p{index}", args=args) for index in range(calls)]
        chunks.append(EndChunk())
        if not calls:
            self.said[asked.request.run_id] = text
        self._answer(asked, chunks)

    def _answer(self, asked: Asked, chunks: list[Chunk]) -> None:
        asked.answer.set_result(chunks)
        self.do(settle())

    @precondition(lambda self: self.digs)
    @rule(fails=st.booleans(), data=st.data())
    def end_tool(self, fails: bool, data: st.DataObject) -> None:
        digging = self.digs[data.draw(st.integers(0, len(self.digs) - 1))]
        if fails:
            digging.end.set_exception(ValueError("a stone"))
        else:
            digging.end.set_result("a hole")
        self.do(settle())

    # --- operators and accidents

    @rule(where=st.integers(0, 1))
    def crash(self, where: int) -> None:
        self.killed = True
        process = self.processes[where]
        process.kill()
        self.dead.append(process)
        self.processes[where] = self._process()
        self.do(settle())

    @rule(where=st.integers(0, 1))
    def close(self, where: int) -> None:
        process = self.processes[where]

        async def closing() -> None:
            runner = asyncio.ensure_future(process.runner.aclose())
            await settle()
            await self.clock.advance(5.0)
            for digging in process.digs:  # closing waits a little for what could not be stopped
                if not digging.end.done():
                    digging.end.set_result("a hole")
            await runner
            await process.memory.aclose()

        self.do(closing())
        self.dead.append(process)
        self.processes[where] = self._process()
        self.do(settle())

    @rule(where=st.integers(0, 1))
    def recover(self, where: int) -> None:
        self._recover(self.processes[where])

    def _recover(self, process: Process) -> None:
        async def begin() -> None:
            process_recovery = asyncio.ensure_future(process.runner.recover())
            await settle()
            if process_recovery.done():
                process_recovery.result()

        self.do(begin())

    @rule(seconds=st.sampled_from([0.1, 5.0]))
    def wait(self, seconds: float) -> None:
        self.do(self.clock.advance(seconds))

    # --- what must hold

    @invariant()
    def the_log_keeps_its_promises(self) -> None:
        log = self.log
        check_promises(log, executions=self.executions, open_runs=1)
        for process in [*self.processes, *self.dead]:
            assert not process.model.breaches, process.model.breaches
        assert lost_messages(log, self.rejected) == self.rejected
        assert not lost_messages(log, [sent.text for sent in self.sent])
        assert len({asked.request.run_id for asked in self.asked}) <= 1

    @invariant()
    def first_come_first_served(self) -> None:
        started = [record.run_id for record in self.log if isinstance(record, RunStarted)]
        accepted = [sent.run_id for sent in self.sent if sent.is_own]
        assert started == [run_id for run_id in accepted if run_id in set(started)]

    def teardown(self) -> None:
        try:
            self._run_out()
            self._check_the_end()
        finally:
            self.loop.run_until_complete(self._bury())
            self.loop.close()

    def _run_out(self) -> None:
        if not hasattr(self, "processes"):
            return
        for _ in range(200):
            self._recover(self.processes[0])
            for digging in self.digs:
                digging.end.set_result("a hole")
            for asked in self.asked:
                self.number += 1
                text = self.said[asked.request.run_id] = f"(a{self.number})"
                asked.answer.set_result([TextChunk(text), EndChunk()])
            self.do(self.clock.advance(5.0))
            if not self.asked and not self.digs and self._is_quiet():
                return
        pytest.fail("the session does not come to rest")

    def _is_quiet(self) -> bool:
        async def ask() -> bool:
            memory = self.processes[0].memory
            if KEY not in self.data.sessions:
                return True
            return await memory.holder(KEY) is None and not await memory.unfinished()

        return self.loop.run_until_complete(ask())

    def _check_the_end(self) -> None:
        log = self.log
        told = None if self.killed else [end.run_id for end in self.ends]
        check_promises(log, executions=self.executions, told=told)
        endings = {record.run_id: record for record in log if isinstance(record, RunEnded)}
        assert set(endings) == {sent.run_id for sent in self.sent if sent.is_own}
        assert {end.run_id for end in self.ends} == set(endings)
        assert len([end for end in self.ends if not end.redelivered]) <= len(endings)
        started = {record.run_id for record in log if isinstance(record, RunStarted)}
        assert {run_id for run_id in endings if run_id not in started} <= self.taken_back
        for run_id, ended in endings.items():
            if ended.outcome == "completed":
                messages = [r for r in log if isinstance(r, Message) and r.run_id == run_id and r.author == "root"]
                assert text_of(messages[-1].parts) == self.said[run_id]
        late = Counter(record.call_id for record in log if isinstance(record, CallSettled) and record.late)
        assert all(count == 1 for count in late.values())

    async def _bury(self) -> None:
        for process in [*self.dead, *getattr(self, "processes", [])]:
            process.store.bury()
            for digging in process.digs:
                if not digging.end.done():
                    digging.end.set_result("")
        others = asyncio.all_tasks() - {asyncio.current_task()}
        while others := {task for task in others if not task.done()}:
            for task in others:
                task.cancel()
            await asyncio.wait(others, timeout=0.01)


Lane.TestCase.settings = settings(
    max_examples=examples(60),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestLane = Lane.TestCase
