"""One session in memory, and the processes that work on it one after another: each can be killed at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from heaveto import App, LlmAgent, MemoryStore, Plugin, Run, RunConfig, Runner
from heaveto.agents.base import BaseAgent
from heaveto.clock import Clock
from heaveto.events.contents import text_of
from heaveto.events.records import CallSettled, Record, RunEnded, RunStarted, SessionKey
from heaveto.stores.memory import MemoryData
from heaveto.testing import ScriptedModel, say
from heaveto.testing.script import Step

HERE: dict[str, Any] = {"user_id": "u", "session_id": "s"}
KEY = SessionKey("site", "u", "s")


class Process:
    """One process: a runner on a store instance of its own."""

    def __init__(self, app: App, model: ScriptedModel, store: MemoryStore, clock: Clock | None) -> None:
        self.store, self.model = store, model
        self.runner = Runner(app=app, store=store, clock=clock)

    async def start(self, text: str = "go", **config: Any) -> Run:
        return await self.runner.start(
            new_message=text, run_config=RunConfig(cancel_grace_seconds=0.2, **config), **HERE
        )

    def kill(self) -> None:
        """Let it be dead for all others, and reach nothing any more."""
        self.store.abandon()

    async def log(self) -> list[Record]:
        return await self.runner.records(**HERE)

    async def recover(self) -> list[Record]:
        """Recover what is there, and return the log."""
        await asyncio.wait_for(self.runner.recover(), 5)
        return await self.log()

    def told(self, index: int = -1) -> str:
        """Everything that the model was sent with a request, as text."""
        turns = self.model.requests[index].turns
        return "\n".join(f"{turn.role}: {text_of(turn.parts)} {list(turn.responses)}" for turn in turns)


class Site:
    """Where the processes are."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._data, self._clock = MemoryData(), clock
        self._processes: list[Process] = []

    def process(
        self,
        *steps: Step,
        tools: Sequence[Any] = (),
        agent: Callable[[ScriptedModel], BaseAgent] | None = None,
        store: Callable[..., MemoryStore] = MemoryStore,
        plugins: Sequence[Plugin] = (),
    ) -> Process:
        """Begin a process whose model plays these steps, or says that it is fine, for ever."""
        model = ScriptedModel(*(steps or (say("fine"),)), strict=bool(steps), clock=self._clock)
        made = LlmAgent("root", model, tools=tools) if agent is None else agent(model)
        inner = store(self._data) if self._clock is None else store(self._data, clock=self._clock)
        self._processes.append(Process(App(KEY.app, made, plugins=plugins), model, inner, self._clock))
        return self._processes[-1]

    async def close(self) -> None:
        for process in self._processes:
            await process.runner.aclose()


def ending(log: Sequence[Record], run_id: str) -> RunEnded:
    return next(record for record in log if isinstance(record, RunEnded) and record.run_id == run_id)


def attempts(log: Sequence[Record]) -> list[tuple[str, int]]:
    """The starts of runs: input and attempt, in order."""
    return [(record.input.text, record.attempt) for record in log if isinstance(record, RunStarted)]


def settlements(log: Sequence[Record]) -> list[tuple[str, str | None]]:
    return [(record.status, record.cause) for record in log if isinstance(record, CallSettled)]
