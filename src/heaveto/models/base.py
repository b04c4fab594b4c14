"""The model interface: a request in, a stream of chunks out, closable at any moment."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import TypeAlias

import msgspec

from heaveto.core.request import ModelProfile, ModelRequest
from heaveto.errors import ModelError
from heaveto.events.contents import Json, Part
from heaveto.events.records import Usage
from heaveto.models.prices import Prices


class TextChunk(msgspec.Struct, frozen=True):
    """More text of the answer."""

    text: str


class ThoughtChunk(msgspec.Struct, frozen=True):
    """More reasoning text."""

    text: str


class CallChunk(msgspec.Struct, frozen=True):
    """More of a tool call. Fragments of one call share `index`; `args` are concatenated.

    `name` and `provider_id` stand in the first fragment that knows them.
    """

    index: int
    name: str = ""
    provider_id: str = ""
    args: str = ""
    data: dict[str, Json] | None = None
    """The provider's own fields of the call, verbatim; the last one counts."""


class PartChunk(msgspec.Struct, frozen=True):
    """A complete part, in order.

    It takes the place of what was streamed of it right before: a `Thought` of thought text, all of it if the end of
    that is not the part's own text, and a `Text` with provider data of the same text at its end.
    """

    part: Part


class UsageChunk(msgspec.Struct, frozen=True):
    """The usage so far; the last one counts.

    With `estimated` set, the input is what the provider counted, and its count of the output is still to come: if the
    answer is cut before that, the output is estimated from what was received (F126).
    """

    usage: Usage


class PauseChunk(msgspec.Struct, frozen=True):
    """The provider paused tools that it executes itself, and goes on with this answer when it is asked again (F22).

    What follows is a further request: the runtime counts it against the budgets before it reads on.

    With `failed`, that request failed in a way that may pass, and nothing new came of it. Who sends True into the
    generator has it sent again; anybody else gets the error.
    """

    failed: ModelError | None = None


class EndChunk(msgspec.Struct, frozen=True):
    """The provider closed the answer. Without it the answer counts as cut off and its last call as truncated.

    `reason` is the provider's own word; `cut` is true where it says that a limit cut the answer (F30).
    """

    reason: str = "stop"
    cut: bool = False
    model: str = ""
    data: dict[str, Json] | None = None


Chunk: TypeAlias = TextChunk | ThoughtChunk | CallChunk | PartChunk | UsageChunk | PauseChunk | EndChunk


class Model(ABC):
    """A model that can be asked.

    `generate` is an asynchronous generator. The runtime iterates it in one task, closes it in the same task on every
    path, and cancels that task to stop: an implementation holds its connection in ``async with`` inside the generator,
    so that closing it, before the first byte as well as in mid-stream, closes the socket (F51). Nothing is read on
    behind a stop for the sake of the true count (F149, ADR 0019). It must not retry: the runtime owns retries. Errors
    are raised as `ModelError`, with `retryable` set where trying again may help. `prices`, if there are any, are what
    `priced` goes by.
    """

    name: str
    profile: ModelProfile
    prices: Prices | None = None

    @abstractmethod
    def generate(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Stream the answer to a request. Sends nothing before the first iteration; closed or cancelled at any moment.

        Raises:
            ModelError: the request was refused, the way to the model failed, or the answer broke off.
        """

    def priced(self, usage: Usage) -> Usage:
        """Return the usage with its cost, where the prices are known; for the estimate of a cut stream too (F126)."""
        return usage if self.prices is None else self.prices.priced(usage)

    async def aclose(self) -> None:
        """Close what the model holds open between requests. Idempotent."""
