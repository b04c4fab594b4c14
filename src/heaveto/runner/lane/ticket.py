"""A message on its way to becoming a run."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, field

import msgspec

from heaveto.errors import NotSerializableError
from heaveto.events.contents import Content, Json
from heaveto.events.records import ParentCall, Trigger
from heaveto.runner.application.config import RunConfig
from heaveto.stores.base import Guard


@dataclass(slots=True, eq=False)
class Ticket:
    """A message on its way to becoming a run.

    Attributes:
        agent: the path of the agent that takes the message; empty for the session's active one.
        parent: the call that the run works for.
        admitted: resolved when the message is durable, as a run or in the inbox; the run id may have become another's.
        failure: why this process gave the run up, where its log cannot tell.
        cause: the original error of a failed run.
    """

    run_id: str
    content: Content
    config: RunConfig
    idempotency_key: str | None = None
    fingerprint: str = ""
    state_delta: dict[str, Json] = field(default_factory=dict[str, Json])
    trigger: Trigger = "message"
    agent: str = ""
    parent: ParentCall | None = None
    admitted: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    failure: BaseException | None = None
    cause: BaseException | None = None

    def __post_init__(self) -> None:
        # Whoever waited may have gone away: an error that nobody takes is not a warning then.
        self.admitted.add_done_callback(lambda admitted: admitted.cancelled() or admitted.exception())

    @property
    def guard(self) -> Guard | None:
        """The unique key of a repeatable start; it names the run that the message went into."""
        if self.idempotency_key is None:
            return None
        return Guard(guard_name(self.idempotency_key), f"{self.run_id} {self.fingerprint}")

    @property
    def recorded_delta(self) -> dict[str, Json]:
        """The state that is recorded with the message; ``temp:`` values never are."""
        return {key: value for key, value in self.state_delta.items() if not key.startswith("temp:")}

    def admit(self) -> None:
        if not self.admitted.done():
            self.admitted.set_result(None)

    def refuse(self, error: BaseException) -> None:
        self.failure = error
        if not self.admitted.done():
            self.admitted.set_exception(error)
            self.admitted.exception()  # looked at: who asked may have gone away


def guard_name(idempotency_key: str) -> str:
    """Return the unique key under which a start is kept."""
    return f"start:{idempotency_key}"


def fingerprint_of(content: Content) -> str:
    """Return what tells a message from another one that is sent with the same idempotency key.

    Raises:
        NotSerializableError: no log can hold the message.
    """
    try:
        return hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:16]
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise NotSerializableError("new_message", str(error)) from error
