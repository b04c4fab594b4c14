"""What the connectors on OpenAI's SDK share."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from heaveto.clock import Clock
from heaveto.errors import MissingExtraError, ModelError
from heaveto.models.sdk import AnswerReader, SdkClient, checked_address, mapped, model_error, received

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_FINAL_CODES = ("insufficient_quota", "billing_hard_limit_reached")
"""Codes that come with status 429 although waiting does not help."""
_FINAL_TYPES = ("invalid_request_error", "authentication_error", "permission_error")


def openai_client(
    wanted_by: str, api_key: str | None, base_url: str | None, timeout_seconds: float | None, given: AsyncOpenAI | None
) -> SdkClient[AsyncOpenAI]:
    """Return a client that makes itself at its first use, or the one that was given; both without retries.

    Raises:
        ConfigError: `base_url` is no address.
    """
    checked_address(base_url)

    def connect() -> AsyncOpenAI:
        try:
            import openai
        except ImportError:
            raise MissingExtraError("openai", wanted_by) from None
        key = api_key
        if key is None and base_url is not None and not os.environ.get("OPENAI_API_KEY"):
            key = "none"  # local servers want none, the SDK insists on one
        timeout = openai.NOT_GIVEN if timeout_seconds is None else timeout_seconds
        try:
            return openai.AsyncOpenAI(api_key=key, base_url=base_url, timeout=timeout, max_retries=0)
        except openai.OpenAIError as error:
            raise ModelError(f"{wanted_by} cannot connect: {error}") from error

    patient = None if given is None else given.with_options(max_retries=0)
    return SdkClient(connect, lambda made: made.close(), patient)


@asynccontextmanager
async def opened(client: AsyncOpenAI, path: str, asked: dict[str, Any]) -> AsyncGenerator[AsyncIterator[object], None]:
    """Ask for a stream and give its events; its socket is closed on every way out."""
    from openai import AsyncStream

    stream = await client.post(path, cast_to=object, stream=True, stream_cls=AsyncStream[object], **asked)
    async with stream:
        yield received(stream)


@contextmanager
def openai_errors(clock: Clock, reader: AnswerReader) -> Generator[None, None, None]:
    """Raise the SDK's errors as ours."""
    import httpx2
    import openai

    # While it reads the body of a refusal the SDK lets the errors of its HTTP library through.
    with mapped((openai.OpenAIError, httpx2.HTTPError), lambda error: _model_error(error, clock), reader):
        yield


def _model_error(error: Exception, clock: Clock) -> ModelError:
    import openai

    if isinstance(error, openai.OpenAIError) and not isinstance(error, openai.APIError):
        return ModelError(f"the credentials cannot be used: {error}")
    judged = model_error(error, openai, clock)
    if isinstance(error, openai.APIError):
        in_mid_stream = judged.status is None
        is_final = error.code in _FINAL_CODES or (in_mid_stream and error.type in _FINAL_TYPES)
        judged.retryable = judged.retryable and not is_final
    return judged
