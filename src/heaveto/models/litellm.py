"""Models behind LiteLLM: a community adapter, for providers without a connector of their own here.

Prefer the connectors: LiteLLM translates, and what it loses on the way nobody can give back. See `LiteLLM`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import aclosing, contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any, cast

from heaveto.clock import Clock, SystemClock
from heaveto.core.request import ModelProfile, ModelRequest
from heaveto.errors import MissingExtraError, ModelError
from heaveto.events.contents import Json
from heaveto.models.base import Chunk, Model
from heaveto.models.prices import Prices
from heaveto.models.sdk import checked_address, is_retryable, mapped, model_error, priced_chunk
from heaveto.models.wire.openai_chat import OpenAIChatEncoder
from heaveto.models.wire.openai_chat_answer import ChatAnswerReader

_NO_OPTIONS: dict[str, Json] = {}


class LiteLLM(Model):
    """A model that is asked through ``litellm.acompletion``, always as a stream.

    Not promised, because it is out of our hands (as of LiteLLM 1.110):

    - That a stop closes the socket. It does for the providers that were measured, OpenAI, Anthropic and Gemini, in
      mid-stream and before the answer; a hundred others were not, and LiteLLM hides an error of closing.
    - That `aclose` closes connections: LiteLLM keeps them for the process.
    - That an error has the status that the server gave: a refused connection has one of 500, for example.
    - That provider data goes back as it came: signatures, encrypted reasoning and blocks of the provider's own pass
      through two translations. Thinking is not sent back at all.
    - That requests are sent as they were encoded. ``litellm.modify_params``, which rewrites and deletes messages in
      silence, is switched off for the process; much else is changed without being told.
    - That the process starts quickly: importing LiteLLM takes some seconds, and fetches a list of prices from the
      network unless ``LITELLM_LOCAL_MODEL_COST_MAP=True`` is in the environment. It is imported in a thread, at the
      first request.

    Args:
        model: the model's name with LiteLLM's prefix, such as ``bedrock/converse/…``.
        api_key, base_url: by default what LiteLLM finds for the provider.
        options: more arguments of ``acompletion``, as they are.
        prices: what makes usage cost something; LiteLLM's own are not used.
        timeout_seconds: LiteLLM's own is 600.
        provider: the family under which provider data is kept.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        options: Mapping[str, Json] = _NO_OPTIONS,
        prices: Prices | None = None,
        timeout_seconds: float | None = None,
        provider: str = "litellm",
        clock: Clock | None = None,
    ) -> None:
        self.name = model
        self.profile = ModelProfile(name=provider, thoughts=False)
        given = {"api_key": api_key, "api_base": checked_address(base_url), "timeout": timeout_seconds}
        self._options = {**{name: value for name, value in given.items() if value is not None}, **options}
        self.prices = prices
        self._clock = clock or SystemClock()
        self._encoder = OpenAIChatEncoder(provider=provider)

    async def generate(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        """Stream the answer. Closing this generator closes LiteLLM's stream, and with it the socket where that works.

        Raises:
            ModelError: LiteLLM or the provider refused, failed, or broke off. Never after the finish reason.
            MissingExtraError: LiteLLM is not installed.
        """
        litellm: Any = await asyncio.to_thread(_imported)
        reader = ChatAnswerReader()
        with _mapped(self._clock, reader):
            stream: Any = await litellm.acompletion(**self._arguments(request))
            async with aclosing(stream):
                async for chunk in stream:
                    for read in reader.feed(chunk.model_dump()):
                        yield priced_chunk(self, read)
        for read in reader.end():
            yield read

    def _arguments(self, request: ModelRequest) -> dict[str, Any]:
        fixed = {"model": self.name, "stream": True, "num_retries": 0, "max_retries": 0}
        return {"stream_options": {"include_usage": True}, **self._options, **self._encoder.encode(request), **fixed}


def _imported() -> ModuleType:
    try:
        litellm: Any = import_module("litellm")
    except ImportError:
        raise MissingExtraError("litellm", "LiteLLM") from None
    litellm.modify_params = False
    litellm.suppress_debug_info = True  # else it prints advice between the lines of whoever writes to standard output
    return cast("ModuleType", litellm)


@contextmanager
def _mapped(clock: Clock, reader: ChatAnswerReader) -> Generator[None, None, None]:
    import openai

    with mapped((openai.OpenAIError,), lambda error: _model_error(error, openai, clock), reader):
        yield


def _model_error(error: Exception, openai: ModuleType, clock: Clock) -> ModelError:
    """LiteLLM's errors are kinds of OpenAI's; one is a rest that has a status, as none of OpenAI's rest has."""
    made = model_error(error, openai, clock)
    status = getattr(error, "status_code", None)
    if made.status is not None or isinstance(error, openai.APIConnectionError) or not isinstance(status, int):
        return made
    return ModelError(str(error), status=status, retryable=is_retryable(status), body=made.body)
