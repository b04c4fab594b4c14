"""Models behind OpenAI's Responses.

The log is the conversation. By default each request carries all of it and the provider stores nothing; with
``held=True`` the provider stores the answers, and a request carries what is new since the last one of them.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

import msgspec

from heaveto.clock import Clock, SystemClock
from heaveto.core.request import Held, ModelProfile, ModelRequest
from heaveto.errors import ModelError
from heaveto.events.contents import Json
from heaveto.models.base import Chunk, Model
from heaveto.models.openai_sdk import openai_client, openai_errors, opened
from heaveto.models.prices import Prices
from heaveto.models.sdk import as_json, priced_chunk, refuse_error, require_end
from heaveto.models.wire.openai_responses import OpenAIResponsesEncoder
from heaveto.models.wire.openai_responses_answer import ResponsesAnswerReader
from heaveto.models.wire.reading import as_object

if TYPE_CHECKING:
    from openai import AsyncOpenAI

logger = logging.getLogger("heaveto")

_PATH = "/responses"
_OURS = ("input", "model", "stream", "store", "previous_response_id", "conversation", "background")
"""What `Generation.extra` must not set: it would be another conversation than the log, or one that no stop reaches."""
_REASONING = "reasoning.encrypted_content"


class _Manner(msgspec.Struct, frozen=True):
    """How a request is sent. Each refusal that a provider may give for it leads to a simpler one.

    Attributes:
        held: what the provider holds; None to hold nothing.
        thoughts: whether earlier reasoning is sent.
        encrypted: whether the answer's reasoning is asked for.
    """

    held: Held | None
    thoughts: bool = True
    encrypted: bool = True

    @property
    def _points(self) -> bool:
        return self.held is not None and bool(self.held.response_id)

    def after(self, error: ModelError) -> _Manner | None:
        """Return the manner in which the same conversation may be accepted, or None if nothing better is known.

        A model without reasoning is not asked for it. Reasoning that cannot be read is left out (R13). A pointer that
        the provider does not know (R12), or from which it refuses to go on, gives way to the whole conversation.
        """
        match error.body:
            case {"param": "include"} if self.encrypted:
                return msgspec.structs.replace(self, encrypted=False)
            case {"code": "invalid_encrypted_content"} if self.thoughts:
                return msgspec.structs.replace(self, thoughts=False)
            case {"code": "previous_response_not_found"} if self._points:
                return msgspec.structs.replace(self, held=Held())
            case _ if self._points and error.status in (400, 404):
                return msgspec.structs.replace(self, held=Held())
            case _:
                return None


class OpenAIResponses(Model):
    """A model that is asked through ``/responses``.

    Reasoning is asked for encrypted and sent back with the calls it led to, for models that have it. Its effort and
    other settings stand in ``Generation.extra``. A response that would go on after a stop cannot be asked for there.

    Args:
        model: the model's name.
        api_key: by default that of the environment, ``OPENAI_API_KEY``. Servers at a `base_url` may need none.
        base_url: where the server is.
        client: an own ``AsyncOpenAI`` client, Azure's included, instead of the two above. It stays open.
        held: whether the provider stores the answers (``store``), so that a request carries only what is new and points
            to the last stored answer. Which one that is, the log tells: an answer that was stopped is not pointed to,
            nor one that was rewound, summarised or changed by a callback. If the provider does not know it any more,
            the whole conversation is sent.
        prices: what makes usage cost something.
        timeout_seconds: how long one read may take; the SDK's default is 600.
        stream: whether to ask for a stream. Both ways can be stopped at any moment.
        provider_tools: declarations of tools that the provider executes, such as ``{"type": "web_search"}``.
        provider: the family under which provider data is kept; see `OpenAIChat`.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        client: AsyncOpenAI | None = None,
        held: bool = False,
        prices: Prices | None = None,
        timeout_seconds: float | None = None,
        stream: bool = True,
        provider_tools: Sequence[dict[str, Json]] = (),
        provider: str = "openai-responses",
        clock: Clock | None = None,
    ) -> None:
        self.name = model
        self.profile = ModelProfile(name=provider)
        self._held, self.prices, self._stream = held, prices, stream
        self._clock = clock or SystemClock()
        self._encoder, self._thoughtless = (
            OpenAIResponsesEncoder(provider=provider, provider_tools=provider_tools, thoughts=thoughts)
            for thoughts in (True, False)
        )
        self._reasons = True
        self._client = openai_client("OpenAIResponses", api_key, base_url, timeout_seconds, client)

    async def generate(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        """Stream the answer. Closing this generator, or cancelling who iterates it, closes the socket (F51).

        Raises:
            ModelError: the server refused, failed, or broke off; or the request's settings are not the caller's to set.
            MissingExtraError: the SDK is not installed.
        """
        _check(request)
        manner = _Manner(request.held if self._held else None, encrypted=self._reasons)
        while True:
            received = False
            try:
                async with aclosing(self._ask(request, manner)) as chunks:
                    async for chunk in chunks:
                        received = True
                        yield priced_chunk(self, chunk)
                return
            except ModelError as error:
                simpler = None if received else manner.after(error)
                if simpler is None:
                    raise
                logger.info("%s is asked again, in a simpler manner: %s", self.name, error)
                self._reasons = self._reasons and simpler.encrypted
                manner = simpler

    async def aclose(self) -> None:
        """Close the connections. A client that was passed in is left open."""
        await self._client.aclose()

    async def _ask(self, request: ModelRequest, manner: _Manner) -> AsyncGenerator[Chunk, None]:
        client = await self._client.get()
        body = self._body(request, manner)
        reader = ResponsesAnswerReader(provider=self.profile.name, held=manner.held is not None)
        with openai_errors(self._clock, reader):
            if self._stream:
                async with opened(client, _PATH, as_json(body)) as events:
                    async for event in events:
                        _refuse(event)
                        for chunk in reader.feed(event):
                            yield chunk
                        if reader.failure is not None:
                            break
            else:
                answer: object = await client.post(_PATH, cast_to=object, **as_json(body))
                _refuse(answer)
                for chunk in reader.feed(answer):
                    yield chunk
        if reader.failure is not None:
            raise reader.failure
        require_end(reader)
        for chunk in reader.end():
            yield chunk

    def _body(self, request: ModelRequest, manner: _Manner) -> bytes:
        """The bytes that are sent: the SDK would turn the whole conversation into JSON again each time (P9)."""
        settings: dict[str, Json] = {"model": self.name, "stream": self._stream, "store": manner.held is not None}
        include = [*request.generation.extra.get("include", ()), *([_REASONING] if manner.encrypted else [])]
        if include:
            settings["include"] = include
        encoder = self._encoder if manner.thoughts else self._thoughtless
        return encoder.encode_json(request, manner.held, settings)


def _check(request: ModelRequest) -> None:
    wrong = [name for name in _OURS if name in request.generation.extra]
    if wrong:
        raise ModelError(f"Generation.extra must not set {', '.join(wrong)}: what is sent is the session's log")


def _refuse(event: object) -> None:
    """A response has its error in itself, with its items and its usage; anything else with an error is only that."""
    if as_object(event).get("object") != "response":
        refuse_error(event)
