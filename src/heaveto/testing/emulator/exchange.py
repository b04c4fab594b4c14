"""What an emulator remembers of each request."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from heaveto.core.validate import Violation


class Exchange:
    """One request and what became of it. Times are those of the emulator's clock (monotonic seconds).

    Attributes:
        api: ``openai``, ``openai-responses``, ``anthropic`` or ``gemini``.
        method: the HTTP method, and `path` the path without its query.
        model: the model that was asked; empty where there is none.
        body: the request body.
        headers: the request's headers, names in lower case.
        status: the status that was sent, or None before that.
        violation: the rule that the request broke, if it did.
        bytes_sent: how much of the answer's body was written.
        completed_at: when the answer was complete.
        closed_at: when the socket was seen closed before the answer was complete: the client gave up, or the script
            broke off.
    """

    def __init__(
        self,
        body: dict[str, Any],
        headers: Mapping[str, str],
        received_at: float,
        *,
        api: str = "",
        method: str = "POST",
        path: str = "",
    ) -> None:
        self.body, self.headers, self.received_at = body, headers, received_at
        self.api, self.method, self.path, self.model = api, method, path, ""
        self.status: int | None = None
        self.violation: Violation | None = None
        self.bytes_sent = 0
        self.completed_at: float | None = None
        self.closed_at: float | None = None
        self._over = asyncio.Event()

    @property
    def is_over(self) -> bool:
        """Whether the answer is complete or the socket closed."""
        return self._over.is_set()

    async def over(self) -> None:
        """Wait until the answer is complete or the socket closed."""
        await self._over.wait()

    def complete(self, now: float) -> None:
        """Note that the answer was sent as a whole."""
        if not self._over.is_set():
            self.completed_at = now
            self._over.set()

    def close(self, now: float) -> None:
        """Note that the socket closed; it is no news after the answer was complete."""
        if not self._over.is_set():
            self.closed_at = now
            self._over.set()

    def __repr__(self) -> str:
        end = "completed" if self.completed_at is not None else "closed" if self.closed_at is not None else "open"
        return f"Exchange({self.method} {self.path}, status={self.status}, {end})"
