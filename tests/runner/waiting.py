"""What the tests of waiting calls share: desks at their pauses, stores that outlive a runner, tools to approve."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tests.runner.desk import SESSION, USER, Desk

from heaveto import Answered, CallSettled, MemoryStore, Paused, Question, Record, Run, RunConfig, SqliteStore
from heaveto.events.contents import Content, FunctionResponse, Json
from heaveto.events.records import Delta, RunStarted
from heaveto.stores.base import Store
from heaveto.stores.memory import MemoryData

HERE: dict[str, Any] = {"user_id": USER, "session_id": SESSION}
MakeDesk = Callable[..., Desk]
Medium: TypeAlias = Literal["memory", "sqlite"]
GOES_ON = RunConfig(cancel_grace_seconds=0.02)


class Shelf:
    """Gives one store after another over the same data, as one process after another has them."""

    def __init__(self, medium: Medium, place: Path) -> None:
        self._medium, self._place, self._data = medium, place, MemoryData()

    def store(self) -> Store:
        return MemoryStore(self._data) if self._medium == "memory" else SqliteStore(self._place / "shelf.db")


class Counted:
    """A tool's function that counts what it was executed with."""

    def __init__(self, result: Any = "done") -> None:
        self.executed: list[dict[str, Any]] = []
        self._result = result

    async def __call__(self, order: int = 0) -> Any:
        """Do something with an order."""
        self.executed.append({"order": order})
        return self._result


async def paused(at: Desk, text: str = "go", config: RunConfig | None = None, **more: Any) -> Run:
    """Start a run and wait until it waits for answers."""
    run = await at.start(text, config or GOES_ON, **more)
    assert isinstance(await run.ending_or_pause(), Paused)
    return run


async def questions(at: Desk) -> dict[str, Question]:
    """What is open in the session, by tool; of several calls of one tool the last."""
    return {question.tool: question for question in await at.runner.questions(**HERE)}


async def question(at: Desk) -> Question:
    """The one that is open."""
    (only,) = await at.runner.questions(**HERE)
    return only


async def answer(at: Desk, tool: str, value: Json = None, **more: Any) -> Answered:
    """Answer the open call of a tool."""
    asked = (await questions(at))[tool]
    return await at.runner.answer(asked.run_id, asked.call_id, value, **more)


def response(call_id: str, /, **told: Json) -> FunctionResponse:
    """An answer as clients of ADK send it."""
    return FunctionResponse(call_id=call_id, name="", response=told)


async def reply(at: Desk, *parts: Any, run_id: str | None = None) -> list[Record]:
    """Send parts as a message, and return the records that the stream then shows."""
    stream = at.runner.run_async(new_message=Content(tuple(parts)), run_id=run_id, **HERE)
    return [item async for item in stream if not isinstance(item, Delta)]


def of(records: Iterable[Record], kind: type[Any]) -> list[Any]:
    return [record for record in records if isinstance(record, kind)]


def statuses(records: Iterable[Record]) -> list[tuple[str, str, str | None]]:
    """Tool, status and cause of each settlement, in order."""
    return [(record.name, record.status, record.cause) for record in of(records, CallSettled)]


def attempts(records: Iterable[Record]) -> list[tuple[int, str]]:
    """Number and trigger of each attempt of a run."""
    return [(record.attempt, record.trigger) for record in of(records, RunStarted)]
