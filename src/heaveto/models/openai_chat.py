"""Models behind OpenAI's Chat Completions, and the many servers that speak it.

The official SDK does authentication, addresses and framing; answers are read from its raw events, so that fields it
does not know are kept. Importing it takes about a second and is done in a thread, at the first request.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, cast

from heaveto.clock import Clock, SystemClock
from heaveto.core.request import ModelRequest, Profile
from heaveto.errors import MissingExtraError, ModelError
from heaveto.events.records import Usage
from heaveto.models.base import Chunk, Model, UsageChunk
from heaveto.models.prices import Prices
from heaveto.models.wire.openai_chat import OpenAIChatEncoder
from heaveto.models.wire.openai_chat_answer import ChatAnswerReader

if TYPE_CHECKING:
    from openai import AsyncOpenAI, AsyncStream

_PATH = "/chat/completions"
_RETRYABLE = (408, 409, 425, 429)
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
        self._is_own = client is None
        self._client = None if client is None else client.with_options(max_retries=0)
        self._connecting = threading.Lock()

    async def generate(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        """Stream the answer. Closing this generator, or cancelling who iterates it, closes the socket (F51).

        Raises:
            ModelError: the server refused, failed, or broke off. Never after it gave its finish reason.
            MissingExtraError: the SDK is not installed.
        """
        client = self._client if self._client is not None else await asyncio.to_thread(self._connect)
        body = {"model": self.name, **self._encoder.encode(request)}
        reader = ChatAnswerReader()
        with _mapped(self._clock, reader):
            if self._stream:
                async with _opened(client, body) as events:
                    async for event in events:
                        for chunk in reader.feed(event):
                            yield self._priced(chunk)
            else:
                answer: object = await client.post(_PATH, body=body, cast_to=object)
                for chunk in reader.feed(answer):
                    yield self._priced(chunk)
        for chunk in reader.end():
            yield chunk

    def priced(self, usage: Usage) -> Usage:
        """Return the usage with its cost by the prices that were given."""
        return usage if self._prices is None else self._prices.priced(usage)

    async def aclose(self) -> None:
        """Close the connections. A client that was passed in is left open."""
        if self._is_own:
            client, self._client = self._client, None
            if client is not None:
                await client.close()

    def _connect(self) -> AsyncOpenAI:
        """Import the SDK and make a client; both block, so this runs in a thread."""
        try:
            import openai
        except ImportError:
            raise MissingExtraError("openai", "OpenAIChat") from None
        with self._connecting:
            if self._client is None:
                timeout = openai.NOT_GIVEN if self._timeout_seconds is None else self._timeout_seconds
                key, base_url = self._key(), self._base_url
                try:
                    self._client = openai.AsyncOpenAI(api_key=key, base_url=base_url, timeout=timeout, max_retries=0)
                except openai.OpenAIError as error:
                    raise ModelError(f"cannot connect to {self.name}: {error}") from error
            return self._client

    def _key(self) -> str | None:
        if self._api_key is None and self._base_url is not None and not os.environ.get("OPENAI_API_KEY"):
            return "none"  # local servers want none, the SDK insists on one
        return self._api_key

    def _priced(self, chunk: Chunk) -> Chunk:
        return UsageChunk(self.priced(chunk.usage)) if isinstance(chunk, UsageChunk) else chunk


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
    """The one seam where the SDK's errors become ours. After the finish reason a broken connection is no error."""
    import openai

    try:
        yield
    except (openai.APIError, json.JSONDecodeError) as error:
        if reader.is_finished:
            return
        raise _model_error(error, clock) from error


def _model_error(error: Exception, clock: Clock) -> ModelError:
    import openai

    match error:
        case openai.APIStatusError(status_code=status):
            after = retry_after_seconds(dict(error.response.headers), clock)
            retryable = (status in _RETRYABLE or status >= 500) and error.code not in _FINAL_CODES
            return ModelError(
                str(error), status=status, retryable=retryable, retry_after_seconds=after, body=error.body
            )
        case openai.APIConnectionError():
            return ModelError(f"{error} {error.__cause__ or ''}".strip(), retryable=True)
        case openai.APIError(body=body):  # an error event in mid-stream
            return ModelError(str(error), retryable=error.type not in _FINAL_TYPES, body=cast("Any", body))
        case _:
            return ModelError(f"the server sent an event that is not JSON: {error}", retryable=True)


def retry_after_seconds(headers: dict[str, str], clock: Clock) -> float | None:
    """Return how long the server wants us to wait: seconds, or an HTTP date against the server's own clock."""
    value = headers.get("retry-after", "").strip()
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        until, now = _timestamp(value), _timestamp(headers.get("date", ""))
        return None if until is None else max(0.0, until - (clock.time() if now is None else now))


def _timestamp(http_date: str) -> float | None:
    try:
        return parsedate_to_datetime(http_date).timestamp()
    except ValueError:
        return None
