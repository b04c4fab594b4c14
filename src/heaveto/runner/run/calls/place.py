"""A call's place among the calls that run at the same time, where its tool, its app or its user has a limit."""

from __future__ import annotations

import asyncio

from heaveto.core.fold import calls_around
from heaveto.core.gate import Key, SlotRequest
from heaveto.runner.run.live import LiveRun
from heaveto.tools.base import Tool


class Place:
    """One call's way through the gate. A call that nothing limits needs no place."""

    __slots__ = ("_branch", "_call_id", "_live", "_taken", "_tool")

    def __init__(self, live: LiveRun, tool: Tool, call_id: str, branch: str) -> None:
        self._live, self._tool, self._call_id, self._branch = live, tool, call_id, branch
        self._taken: SlotRequest | None = None
        """What was asked for, and is had or waited for."""

    def enter_at_once(self) -> bool:
        """Take a place if one is free, or none is needed."""
        wanted = self._wanted()
        if wanted is None:
            return True
        if not self._live.services.gate.enter_at_once(wanted):
            return False
        self._taken = wanted
        return True

    def enter(self) -> asyncio.Future[None] | None:
        """Begin to wait for a place; None if none is needed. Cancelling the future ends the wait."""
        wanted = self._wanted()
        if wanted is None:
            return None
        self._taken = wanted
        return asyncio.ensure_future(self._live.services.gate.enter(wanted))

    def leave(self) -> None:
        """Give the place back, or stop waiting for one. Idempotent."""
        if self._taken is not None:
            self._live.services.gate.leave(self._taken.ref)
            self._taken = None

    def _wanted(self) -> SlotRequest | None:
        app, user = self._live.services.app, self._live.key.user
        limits: dict[Key, int | None] = {
            ("app",): app.max_concurrent_calls,
            ("user", user): app.max_concurrent_calls_per_user,
            ("tool", self._tool.name): self._tool.max_concurrency,
        }
        slots = {key: limit for key, limit in limits.items() if limit is not None}
        if not slots:
            return None
        # A call of an agent that works as a tool is inside that tool's call: its branch tells.
        inside = tuple((self._live.run_id, call_id) for call_id in calls_around(self._branch))
        return SlotRequest(self._live.run_id, self._call_id, user, slots, inside)
