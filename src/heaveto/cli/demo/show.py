"""What the scenes of the demo have in common: to follow a run live, to show the log, to check and count promises."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heaveto.cli.demo.shop import Printer, RefundService
from heaveto.cli.demo.stage import Check, Stage, Tally
from heaveto.cli.demo.told import calls, results
from heaveto.cli.describe import compact_json, one_line, parts_in_words
from heaveto.events.contents import calls_of
from heaveto.events.records import CallSettled, Delta, Message, Record
from heaveto.runner.application.config import RunConfig
from heaveto.runner.handle import RecordReader, Run, StreamItem
from heaveto.runner.runner import Runner
from heaveto.testing.emulator import Emulator, Exchange

PROMISES = {
    "P1": "Valid: the provider accepts the next request, whatever happened before",
    "P2": "Truthful: the model is told what is known of each call",
    "P3": "Stopped means stopped, except for what the report names",
    "P4": "Nothing that was seen is lost",
    "P5": "Effects are not doubled",
    "P6": "One run at a time, in order",
    "P7": "Every run has exactly one ending",
    "P8": "What waits for a person outlives its process; the first answer counts",
}
_PATIENCE_SECONDS = 10.0


class DemoError(Exception):
    """Something that a scene waited for did not come."""


@dataclass(slots=True)
class Show:
    """The demo's stage, its world, and the checks so far."""

    stage: Stage
    runner: Runner
    provider: str
    emulator: Emulator
    service: RefundService
    printer: Printer
    store: Path
    books: Path
    pause_seconds: float
    checks: list[Check] = field(default_factory=list[Check])
    sessions: dict[str, int] = field(default_factory=dict[str, int])
    """By session, user and id: the last seq that was shown."""

    # --- runs

    async def say(self, user: str, session: str, text: str, config: RunConfig | None = None) -> Run:
        """Send a message and show it."""
        self.stage.line("user", text)
        self.sessions.setdefault(f"{user}/{session}", 0)
        return await self.runner.start(user_id=user, session_id=session, new_message=text, run_config=config)

    async def follow(self, run: Run, until: Callable[[StreamItem], bool] | None = None) -> str:
        """Show a run live, to its end or until an item says so; return the text that was streamed."""
        async with run.stream() as items:
            return await self.read(items, until)

    async def read(self, items: RecordReader, until: Callable[[StreamItem], bool] | None = None) -> str:
        """Go on with following a run."""
        seen: list[str] = []
        async with asyncio.timeout(_PATIENCE_SECONDS):
            async for item in items:
                self._show(item)
                if isinstance(item, Delta) and item.kind == "text":
                    seen.append(item.text)
                if until is not None and until(item):
                    break
        return "".join(seen)

    def _show(self, item: StreamItem) -> None:
        match item:
            case Delta(kind="text", text=text):
                self.stage.stream(text)
            case Message(parts=parts) if calls_of(parts):
                self.stage.line("calls", parts_in_words(calls_of(parts)))
            case Message():
                self.stage.end_text()
            case CallSettled(status="succeeded", name=name, response=response):
                self.stage.line("result", f"{name}: {compact_json(response)}", "quiet")
            case _:
                pass

    # --- the log

    async def log(self, user: str, session: str, caption: str = "what the log now holds") -> list[Record]:
        """Show the records of a session that were not shown yet; return all of them."""
        records = await self.runner.records(user_id=user, session_id=session)
        shown = self.sessions.get(f"{user}/{session}", 0)
        self.stage.records([record for record in records if record.seq > shown], caption)
        self.sessions[f"{user}/{session}"] = len(records)
        self.stage.gap()
        return records

    async def record(self, user: str, session: str, wanted: Callable[[Record], bool]) -> Record:
        """Wait for a record.

        Raises:
            DemoError: it did not come.
        """
        found: list[Record] = []

        async def is_there() -> bool:
            records = await self.runner.records(user_id=user, session_id=session)
            found.extend(filter(wanted, records))
            return bool(found)

        await self.wait_for(is_there, f"a record in {user}/{session}")
        return found[0]

    async def wait_for(self, is_there: Callable[[], Any], what: str) -> None:
        """Wait until something outside of this process is so.

        Raises:
            DemoError: it did not come.
        """
        end = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < end:
            answer = is_there()
            if (await answer) if asyncio.iscoroutine(answer) else answer:
                return
            await asyncio.sleep(0.01)
        raise DemoError(f"waited in vain for {what}")

    async def is_settled(self) -> bool:
        """Whether the store comes to hold no run with business left."""

        async def is_empty() -> bool:
            return not await self.runner.store.unfinished()

        with suppress(DemoError):
            await self.wait_for(is_empty, "the end of all runs")
        return await is_empty()

    # --- the provider's side

    @property
    def last_request(self) -> Exchange:
        """The newest request that the provider got."""
        return self.emulator.exchanges[-1]

    async def request(self, number: int) -> Exchange:
        """Wait for the request with this number, counted from 0."""
        async with asyncio.timeout(_PATIENCE_SECONDS):
            return await self.emulator.exchange(number)

    async def closed_after(self, exchange: Exchange, since: float) -> float | None:
        """Wait for an answer to be over; return how many seconds after `since` the client closed the socket.

        None means that it did not: the answer came to its end, or still goes on.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(2.0):
                await exchange.over()
        return None if exchange.closed_at is None else exchange.closed_at - since

    def told(self, lines: Sequence[str]) -> None:
        """Show what the model was told."""
        for line in lines:
            self.stage.line("told", line, "warn")

    # --- promises

    def check(self, promise: str, words: str, kept: bool) -> None:
        """Put a promise to the test."""
        check = Check(promise, one_line(words), kept)
        self.checks.append(check)
        self.stage.check(check)

    def check_accepted(self, first: int) -> None:
        """Check that the provider accepted every request from a number on, and that each call has its one result."""
        exchanges = self.emulator.exchanges[first:]
        broken = next((str(exchange.violation) for exchange in exchanges if exchange.violation is not None), "")
        paired = all(calls(entry.body) == [result.call_id for result in results(entry.body)] for entry in exchanges)
        requests = "1 request" if len(exchanges) == 1 else f"{len(exchanges)} requests"
        words = f"{requests} accepted by the strict provider, each call with one result"
        self.check("P1", broken or words, not broken and paired and bool(exchanges))

    def tallies(self) -> list[Tally]:
        """Return what became of each promise."""
        found: list[Tally] = []
        for promise, words in PROMISES.items():
            checks = [check for check in self.checks if check.promise == promise]
            found.append(Tally(promise, words, sum(check.kept for check in checks), len(checks)))
        return [tally for tally in found if tally.checks]
