"""Several workers on one store: each a runner with a store instance of its own, as separate processes have them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from heaveto import LlmAgent, MemoryStore, Plugin, Run, RunConfig, RunEnd, Runner
from heaveto.events.contents import text_of
from heaveto.events.records import Record, RunEnded, RunStarted, SessionKey
from heaveto.runner.application.config import BusyPolicy
from heaveto.stores.base import Store
from heaveto.stores.memory import MemoryData
from heaveto.stores.sqlite import SqliteStore
from heaveto.testing import ScriptedModel, say

HERE: dict[str, Any] = {"user_id": "u", "session_id": "s"}
KEY = SessionKey("lanes", "u", "s")
Medium: TypeAlias = Literal["memory", "sqlite"]


class Bell(Plugin):
    """Notes what end hooks are told."""

    def __init__(self) -> None:
        self.ends: list[RunEnd] = []
        self._rang = asyncio.Event()

    async def on_run_end(self, end: RunEnd) -> None:
        self.ends.append(end)
        self._rang.set()

    async def rang(self, times: int) -> None:
        """Wait until it was told so often."""
        while len(self.ends) < times:
            self._rang.clear()
            await self._rang.wait()


class Worker:
    """One process's runner."""

    def __init__(self, store: Store, *steps: Any, tools: Sequence[Any] = (), plugins: Sequence[Plugin] = ()) -> None:
        self.store = store
        self.model = ScriptedModel(*(steps or (say("fine"),)), strict=bool(steps))
        self.bell = Bell()
        agent = LlmAgent("root", self.model, tools=tools)
        self.runner = Runner(agent, app_name="lanes", store=store, plugins=[self.bell, *plugins])

    async def start(self, text: str, policy: BusyPolicy = "queue", **more: Any) -> Run:
        config = RunConfig(busy_policy=policy, cancel_grace_seconds=0.2, on_crash="seal")
        return await self.runner.start(new_message=text, run_config=config, **HERE, **more)

    async def ask(self, text: str, policy: BusyPolicy = "queue", **more: Any) -> RunEnded:
        return await (await self.start(text, policy, **more)).wait()

    async def log(self) -> list[Record]:
        return await self.runner.records(**HERE)

    async def inbox(self) -> list[str]:
        return [queued.input.text for queued in await self.runner.inbox(**HERE)]

    async def inputs(self) -> list[str]:
        """The inputs of the runs, in the order in which they started."""
        return [record.input.text for record in await self.log() if isinstance(record, RunStarted)]

    def told(self, index: int = -1) -> str:
        """What users said in a request to the model, as text."""
        turns = self.model.requests[index].turns
        return "\n".join(text_of(turn.parts) for turn in turns if turn.role == "user")

    async def idle(self) -> None:
        """Wait until nobody holds the session."""
        changed = asyncio.Event()
        unsubscribe = self.store.subscribe(KEY, lambda _: changed.set())
        while await self.store.holder(KEY) is not None:
            await changed.wait()
            changed.clear()
        unsubscribe()


class Yard:
    """Makes workers on one store, and closes them."""

    def __init__(self, medium: Medium, place: Path) -> None:
        self._medium, self._place, self._data = medium, place, MemoryData()
        self._workers: list[Worker] = []

    def store(self) -> Store:
        if self._medium == "memory":
            return MemoryStore(self._data)
        return SqliteStore(self._place / "store.db", ttl_seconds=2.0)

    def worker(self, *steps: Any, store: Store | None = None, **options: Any) -> Worker:
        worker = Worker(store or self.store(), *steps, **options)
        self._workers.append(worker)
        return worker

    async def close(self) -> None:
        for worker in self._workers:
            await worker.runner.aclose()
