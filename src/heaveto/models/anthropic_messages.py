"""Models behind Anthropic's Messages, on Anthropic's own servers, Bedrock and Vertex.

The official SDK does authentication, addresses and framing; answers are read from its raw events, so that fields and
blocks it does not know are kept.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from heaveto.clock import Clock, SystemClock
from heaveto.core.request import ModelProfile, ModelRequest
from heaveto.errors import MissingExtraError, ModelError
from heaveto.events.contents import Json
from heaveto.models.base import Chunk, Model, PauseChunk, UsageChunk
from heaveto.models.prices import Prices
from heaveto.models.sdk import (
    STATUS_OF,
    SdkClient,
    as_json,
    checked_address,
    is_retryable,
    mapped,
    model_error,
    priced_chunk,
    received,
    refuse_error,
    require_end,
)
from heaveto.models.wire.anthropic import DEFAULT_MAX_TOKENS, AnthropicEncoder, CacheTime, continued
from heaveto.models.wire.anthropic_answer import AnthropicAnswerReader

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from anthropic.lib.bedrock import AsyncAnthropicBedrock
    from anthropic.lib.vertex import AsyncAnthropicVertex

    AnthropicClient: TypeAlias = AsyncAnthropic | AsyncAnthropicBedrock | AsyncAnthropicVertex

_PATH = "/v1/messages"
_IN_MID_STREAM = 200


class AnthropicMessages(Model):
    """A model that is asked through ``/v1/messages``.

    An answer that the provider pauses, because tools that it executes itself take long, is continued within the same
    `generate`, by sending back what came so far (F22): see `PauseChunk`.

    Args:
        model: the model's name.
        api_key: by default that of the environment, ``ANTHROPIC_API_KEY``. Servers at a `base_url` may need none.
        base_url: where the server is, without ``/v1``.
        client: an own client instead of the two above, also for Bedrock or Vertex. It stays open.
        prices: what makes usage cost something.
        timeout_seconds: how long one read may take; the SDK's default is 600.
        stream: whether to ask for a stream. Both ways can be stopped at any moment.
        max_tokens: the limit of an answer where `Generation.max_output_tokens` says nothing: this API wants one.
        cache: keep what was said in the provider's cache, for 5 minutes (True) or an hour.
        provider_tools: declarations of tools that the provider executes, such as
            ``{"type": "web_search_20260209", "name": "web_search"}``.
        provider: the family under which provider data is kept: name another one for another vendor's server, so that
            one's data is not sent to the other.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        client: AnthropicClient | None = None,
        prices: Prices | None = None,
        timeout_seconds: float | None = None,
        stream: bool = True,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        cache: bool | Literal["5m", "1h"] = False,
        provider_tools: Sequence[dict[str, Json]] = (),
        provider: str = "anthropic",
        clock: Clock | None = None,
    ) -> None:
        self.name = model
        self.profile = ModelProfile(name=provider)
        self._api_key, self._base_url = api_key, checked_address(base_url)
        self._timeout_seconds = timeout_seconds
        self.prices, self._stream, self._provider = prices, stream, provider
        self._clock = clock or SystemClock()
        self._encoder = AnthropicEncoder(
            provider=provider, max_tokens=max_tokens, cache=_cache_time(cache), provider_tools=provider_tools
        )
        given: AnthropicClient | None = None if client is None else client.with_options(max_retries=0)
        self._client: SdkClient[AnthropicClient] = SdkClient(self._connect, lambda made: made.close(), given)

    async def generate(self, request: ModelRequest) -> AsyncGenerator[Chunk, bool | None]:
        """Stream the answer. Closing this generator, or cancelling who iterates it, closes the socket (F51).

        Raises:
            ModelError: the server refused, failed, or broke off. Never after it gave its stop reason.
            MissingExtraError: the SDK is not installed.
        """
        client = await self._client.get()
        asked = body = {"model": self.name, **self._encoder.encode(request)}
        reader = AnthropicAnswerReader(provider=self._provider)
        while True:
            is_new = False
            try:
                with _mapped(self._clock, reader):
                    async with _answer(client, body, stream=self._stream) as events:
                        async for event in events:
                            refuse_error(event)
                            for chunk in reader.feed(event):
                                is_new = is_new or not isinstance(chunk, UsageChunk)
                                yield priced_chunk(self, chunk)
                require_end(reader)
            except ModelError as error:
                # The first request is the runtime's to repeat. A further one is known only here.
                may_repeat = error.retryable and body is not asked and not is_new
                if not (may_repeat and (yield PauseChunk(error))):
                    raise
                reader.begin_again()
                continue
            if not reader.is_paused:
                break
            yield PauseChunk()
            reader.go_on()
            body = continued(asked, reader.blocks, reader.container)
        for chunk in reader.end():
            yield chunk

    async def aclose(self) -> None:
        """Close the connections. A client that was passed in is left open."""
        await self._client.aclose()

    def _connect(self) -> AnthropicClient:
        try:
            import anthropic
        except ImportError:
            raise MissingExtraError("anthropic", "AnthropicMessages") from None
        timeout = anthropic.NOT_GIVEN if self._timeout_seconds is None else self._timeout_seconds
        try:
            made = anthropic.AsyncAnthropic(
                api_key=self._key(), base_url=self._base_url, timeout=timeout, max_retries=0
            )
        except anthropic.AnthropicError as error:
            raise ModelError(f"cannot connect to {self.name}: {error}") from error
        if made.api_key is None and made.auth_token is None and made.credentials is None:
            raise ModelError(f"cannot connect to {self.name}: give an api_key, or set ANTHROPIC_API_KEY")
        return made

    def _key(self) -> str | None:
        if self._api_key is None and self._base_url is not None and not os.environ.get("ANTHROPIC_API_KEY"):
            return "none"  # local servers want none, the SDK insists on one
        return self._api_key


def _cache_time(cache: bool | Literal["5m", "1h"]) -> CacheTime | None:
    match cache:
        case True:
            return "5m"
        case False:
            return None
        case _:
            return cache


@asynccontextmanager
async def _answer(
    client: AnthropicClient, body: dict[str, Any], *, stream: bool
) -> AsyncGenerator[AsyncIterator[object], None]:
    """Ask for an answer, and close its socket on every way out."""
    from anthropic import AsyncStream

    if not stream:
        yield _only(await client.post(_PATH, cast_to=object, **_sent(client, body)))
        return
    asked = _sent(client, {**body, "stream": True})
    events = await client.post(_PATH, cast_to=object, stream=True, stream_cls=AsyncStream[object], **asked)
    async with events:
        yield received(events)


def _sent(client: AnthropicClient, body: dict[str, Any]) -> dict[str, Any]:
    """The clients of Bedrock and Vertex make a path of the body's model."""
    import anthropic

    return as_json(body) if isinstance(client, anthropic.AsyncAnthropic) else {"body": body}


async def _only(event: object) -> AsyncIterator[object]:
    yield event


@contextmanager
def _mapped(clock: Clock, reader: AnthropicAnswerReader) -> Generator[None, None, None]:
    import anthropic
    import httpx2

    # In mid-stream the SDK lets the errors of its HTTP library through.
    with mapped((anthropic.AnthropicError, httpx2.HTTPError), lambda error: _model_error(error, clock), reader):
        yield


def _model_error(error: Exception, clock: Clock) -> ModelError:
    import anthropic

    if isinstance(error, anthropic.AnthropicError) and not isinstance(error, anthropic.APIError):
        return ModelError(f"the credentials cannot be used: {error}")
    judged = model_error(error, anthropic, clock)
    if isinstance(error, anthropic.APIStatusError) and error.status_code == _IN_MID_STREAM:
        judged.status = STATUS_OF.get(error.type or "", 500)
        judged.retryable = is_retryable(judged.status)
    return judged
