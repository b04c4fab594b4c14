"""Models behind OpenAI's Chat Completions, and the many servers that speak it.

The official SDK does authentication, addresses and framing; answers are read from its raw events, so that fields it
does not know are kept.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from heaveto.clock import Clock, SystemClock
from heaveto.core.request import ModelProfile, ModelRequest
from heaveto.models.base import Chunk, Model
from heaveto.models.openai_sdk import openai_client, openai_errors, opened
from heaveto.models.prices import Prices
from heaveto.models.sdk import as_json, priced_chunk, refuse_error
from heaveto.models.wire.openai_chat import OpenAIChatEncoder
from heaveto.models.wire.openai_chat_answer import ChatAnswerReader

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_PATH = "/chat/completions"


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
        self.profile = ModelProfile(name=provider, thoughts=False)
        self.prices, self._stream = prices, stream
        self._clock = clock or SystemClock()
        self._encoder = OpenAIChatEncoder(provider=provider, reasoning_content=reasoning_content)
        self._client = openai_client("OpenAIChat", api_key, base_url, timeout_seconds, client)

    async def generate(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        """Stream the answer. Closing this generator, or cancelling who iterates it, closes the socket (F51).

        Raises:
            ModelError: the server refused, failed, or broke off. Never after it gave its finish reason.
            MissingExtraError: the SDK is not installed.
        """
        client = await self._client.get()
        body = {"model": self.name, **self._encoder.encode(request)}
        reader = ChatAnswerReader()
        with openai_errors(self._clock, reader):
            if self._stream:
                asked = {"stream_options": {"include_usage": True}, **body, "stream": True}
                async with opened(client, _PATH, _sent(client, asked)) as events:
                    async for event in events:
                        refuse_error(event)
                        for chunk in reader.feed(event):
                            yield priced_chunk(self, chunk)
            else:
                answer: object = await client.post(_PATH, cast_to=object, **_sent(client, body))
                refuse_error(answer)
                for chunk in reader.feed(answer):
                    yield priced_chunk(self, chunk)
        for chunk in reader.end():
            yield chunk

    async def aclose(self) -> None:
        """Close the connections. A client that was passed in is left open."""
        await self._client.aclose()


def _sent(client: AsyncOpenAI, body: dict[str, Any]) -> dict[str, Any]:
    """Azure's client makes a path of the body's model."""
    import openai

    return {"body": body} if isinstance(client, openai.AsyncAzureOpenAI) else as_json(body)
