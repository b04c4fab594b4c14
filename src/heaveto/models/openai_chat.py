"""Models behind OpenAI's Chat Completions, and the many servers that speak it.

The official SDK does authentication, addresses and framing; answers are read from its raw events, so that fields it
does not know are kept.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from heaveto.clock import Clock, SystemClock
from heaveto.core.request import ModelRequest, Profile
from heaveto.errors import MissingExtraError, ModelError
from heaveto.events.records import Usage
from heaveto.models.base import Chunk, Model
from heaveto.models.prices import Prices
from heaveto.models.sdk import SdkClient, mapped, model_error, priced_chunk
from heaveto.models.wire.openai_chat import OpenAIChatEncoder
from heaveto.models.wire.openai_chat_answer import ChatAnswerReader

if TYPE_CHECKING:
    from openai import AsyncOpenAI, AsyncStream

_PATH = "/chat/completions"
_FINAL_CODES = ("insufficient_quota", "billing_hard_limit_reached")
"""Codes that come with status 429 although waiting does not help."""
_FINAL_TYPES = ("invalid_request_error", "authentication_error", "permission_error")


class OpenAIChat(Model):
    """A model that is asked through ``/chat/completions``.

    Args:
        model: the model's name.
        api_key: by default that of the environment, ``OPENAI_API_KEY``. Servers at a `base_url` may need none.
        base_url: where the server is, such as ``http://localhost:11434/v1``.
        client: an own ``AsyncOpenAI`` client, Azure's included, instead of the two above. It stays open.
        prices: what makes usage cost something.
        timeout_seconds: how long one read may take; the SDK's default is 600.
        stream: whether to ask for a stream. Both ways can be stopped at any moment.
        provider: the family under which provider data is kept: name another one for another vendor's server, so that
            one's data is not sent to the other.
        reasoning_content: see `OpenAIChatEncoder`.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        client: AsyncOpenAI | None = None,
        prices: Prices | None = None,
        timeout_seconds: float | None = None,
        stream: bool = True,
        provider: str = "openai",
        reasoning_content: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.name = model
        self.profile = Profile(name=provider, thoughts=False)
        self._api_key, self._base_url, self._timeout_seconds = api_key, base_url, timeout_seconds
        self._prices, self._stream = prices, stream
        self._clock = clock or SystemClock()
        self._encoder = OpenAIChatEncoder(provider=provider, reasoning_content=reasoning_content)
        given = None if client is None else client.with_options(max_retries=0)
        self._client = SdkClient(self._connect, lambda made: made.close(), given)

    async def generate(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        """Stream the answer. Closing this generator, or cancelling who iterates it, closes the socket (F51).

        Raises:
            ModelError: the server refused, failed, or broke off. Never after it gave its finish reason.
            MissingExtraError: the SDK is not installed.
        """
        client = await self._client.get()
        body = {"model": self.name, **self._encoder.encode(request)}
        reader = ChatAnswerReader()
        with _mapped(self._clock, reader):
            if self._stream:
                async with _opened(client, body) as events:
                    async for event in events:
                        for chunk in reader.feed(event):
                            yield priced_chunk(self, chunk)
            else:
                answer: object = await client.post(_PATH, body=body, cast_to=object)
                for chunk in reader.feed(answer):
                    yield priced_chunk(self, chunk)
        for chunk in reader.end():
            yield chunk

    def priced(self, usage: Usage) -> Usage:
        """Return the usage with its cost by the prices that were given."""
        return usage if self._prices is None else self._prices.priced(usage)

    async def aclose(self) -> None:
        """Close the connections. A client that was passed in is left open."""
        await self._client.aclose()

    def _connect(self) -> AsyncOpenAI:
        try:
            import openai
        except ImportError:
            raise MissingExtraError("openai", "OpenAIChat") from None
        timeout = openai.NOT_GIVEN if self._timeout_seconds is None else self._timeout_seconds
        try:
            return openai.AsyncOpenAI(api_key=self._key(), base_url=self._base_url, timeout=timeout, max_retries=0)
        except openai.OpenAIError as error:
            raise ModelError(f"cannot connect to {self.name}: {error}") from error

    def _key(self) -> str | None:
        if self._api_key is None and self._base_url is not None and not os.environ.get("OPENAI_API_KEY"):
            return "none"  # local servers want none, the SDK insists on one
        return self._api_key


@asynccontextmanager
async def _opened(client: AsyncOpenAI, body: dict[str, Any]) -> AsyncGenerator[AsyncStream[object], None]:
    """Ask for a stream, and close its socket on every way out."""
    from openai import AsyncStream

    body = {"stream_options": {"include_usage": True}, **body, "stream": True}
    stream = await client.post(_PATH, body=body, cast_to=object, stream=True, stream_cls=AsyncStream[object])
    async with stream:
        yield stream


@contextmanager
def _mapped(clock: Clock, reader: ChatAnswerReader) -> Generator[None, None, None]:
    import openai

    with mapped((openai.APIError,), lambda error: _model_error(error, clock), reader):
        yield


def _model_error(error: Exception, clock: Clock) -> ModelError:
    import openai

    judged = model_error(error, openai, clock)
    if isinstance(error, openai.APIError):
        in_mid_stream = judged.status is None
        is_final = error.code in _FINAL_CODES or (in_mid_stream and error.type in _FINAL_TYPES)
        judged.retryable = judged.retryable and not is_final
    return judged
