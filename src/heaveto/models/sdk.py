"""What connectors on official SDKs share: the client made once, the one seam for errors, what the server wants.

An SDK does authentication, addresses and framing, with its own retries off. Importing one takes a second or two and
blocks, as making its client does, so both are done in a thread at the first request.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import urlsplit

import msgspec

from heaveto.clock import Clock
from heaveto.errors import ConfigError, ModelError
from heaveto.models.base import Chunk, Model, UsageChunk
from heaveto.models.wire.reading import as_object, as_text

Client = TypeVar("Client")

_RETRYABLE = (408, 409, 425, 429)
_WISHES = {"true": True, "false": False}


class AnswerReader(Protocol):
    """Reads one answer of a provider, purely: every event is fed, then the end is asked for."""

    @property
    def is_finished(self) -> bool:
        """Whether the provider has said that it is done: nothing of the answer is missing then."""
        ...

    def feed(self, event: object) -> list[Chunk]:
        """Return the chunks of one event. Total: junk gives nothing."""
        ...

    def end(self) -> list[Chunk]:
        """Return what closes the answer; nothing of a close if the provider never gave it (F30)."""
        ...


class SdkClient(Generic[Client]):
    """The client of an SDK: one that was given, or one that is made at its first use.

    Args:
        make: imports the SDK and makes a client. It blocks, and is called in a thread.
        close: closes a client that was made; one that was given stays open.
        given: a client of the user.
    """

    def __init__(
        self, make: Callable[[], Client], close: Callable[[Client], Awaitable[None]], given: Client | None = None
    ) -> None:
        self._make, self._close = make, close
        self._client, self._is_own = given, given is None
        self._making = threading.Lock()

    async def get(self) -> Client:
        """Return the client.

        Raises:
            MissingExtraError: the SDK is not installed.
            ModelError: the SDK cannot make a client, for want of a key for example.
        """
        return self._client if self._client is not None else await asyncio.to_thread(self._made)

    async def aclose(self) -> None:
        """Close the client if it is our own. The next use makes another. Idempotent."""
        if self._is_own:
            client, self._client = self._client, None
            if client is not None:
                await self._close(client)

    def _made(self) -> Client:
        with self._making:
            if self._client is None:
                self._client = self._make()
            return self._client


@contextmanager
def mapped(
    errors: tuple[type[Exception], ...], as_model_error: Callable[[Exception], ModelError], reader: AnswerReader
) -> Generator[None, None, None]:
    """The one seam where an SDK's errors become ours. A connection that breaks behind the end is no error.

    Besides `errors` these are what reading an answer that is no JSON raises: broken UTF-8, numbers without end, nesting
    that nobody can follow.
    """
    expected: tuple[type[Exception], ...] = (*errors, ValueError, RecursionError)
    try:
        yield
    except expected as error:
        if not reader.is_finished:
            raise as_model_error(error) from error


def model_error(error: Exception, sdk: Any, clock: Clock) -> ModelError:
    """Return what an error of OpenAI's or Anthropic's SDK means: the two modules have the same family of errors.

    Whether to try again is the server's own word, ``x-should-retry``, or else judged by the status alone: a connector
    that knows more narrows it.
    """
    found: Any = error
    if isinstance(found, sdk.APIStatusError):
        headers = found.response.headers
        wish = _WISHES.get(headers.get("x-should-retry"))
        return ModelError(
            _words(found), status=found.status_code,
            retryable=is_retryable(found.status_code) if wish is None else wish,
            retry_after_seconds=retry_after_seconds(headers, clock), body=found.body,
        )  # fmt: skip
    if isinstance(found, sdk.APIConnectionError):
        return ModelError(f"{error} {error.__cause__ or ''}".strip(), retryable=True)
    if isinstance(found, sdk.APIError):  # an error event in mid-stream
        return ModelError(str(error), retryable=True, body=found.body)
    if isinstance(error, ValueError | RecursionError):
        return unreadable(error)
    return ModelError(f"the connection broke: {error}", retryable=True)


STATUS_OF = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""What an error that comes behind a status of 200, in mid-stream or instead of an answer, would have had as its status,
by the types that Anthropic documents and others took over."""


def refuse_error(answer: object) -> None:
    """Raise the error that came whole, behind a status of 200, instead of an answer. Gateways do that.

    Raises:
        ModelError: that is what came.
    """
    error = as_object(answer).get("error")
    if not error:
        return
    told = as_object(error)
    code = told.get("code")
    status = code if isinstance(code, int) else STATUS_OF.get(as_text(told.get("type")))
    words = as_text(told.get("message")) or str(error)
    raise ModelError(words, status=status, retryable=status is None or is_retryable(status), body=error)


async def received(events: Any) -> AsyncIterator[object]:
    """Give the events of an SDK's stream, or the one body in JSON that came instead of a stream: an error, an answer.

    The SDKs look for events in such a body, find none, and take it for a stream that has ended.
    """
    if events.response.headers.get("content-type", "").startswith("application/json"):
        yield json.loads(await events.response.aread())
        return
    async for event in events:
        yield event


def require_end(reader: AnswerReader) -> None:
    """Refuse an answer that stopped without its end, for providers that always give one.

    A proxy that gives up may close the response as if it were whole: what came must not pass for the answer.

    Raises:
        ModelError: the end is missing.
    """
    if not reader.is_finished:
        raise ModelError("the server closed the response before the answer had its end", retryable=True)


def unreadable(error: Exception) -> ModelError:
    """Return the error of an answer that is no JSON, or of a request that HTTP cannot say: a key with umlauts."""
    if isinstance(error, UnicodeEncodeError):
        return ModelError(f"the request cannot be sent: {error}")
    return ModelError(f"the server sent what is not JSON: {error}", retryable=True)


def checked_address(base_url: str | None) -> str | None:
    """Return the address of a server as it is.

    Raises:
        ConfigError: it is none that can be asked.
    """
    if base_url is None:
        return None
    try:
        parts = urlsplit(base_url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and base_url.isprintable()
        port = parts.port
    except ValueError:
        is_address, port = False, None
    if not is_address or port == 0:
        raise ConfigError(f"base_url {base_url!r} is no address: give one such as http://localhost:11434/v1")
    return base_url


def _words(error: Any) -> str:
    """Return what the server said: in the message of Anthropic's SDK that is lost among the rest of the body."""
    match error.body:
        case {"error": {"message": str(words)}}:
            return f"Error code: {error.status_code} - {words}"
        case _:
            return str(error)


def as_json(body: object) -> dict[str, Any]:
    """Return the arguments of an SDK's ``post`` for a body that is JSON already, or is made JSON here.

    Given objects, the SDKs copy and encode the whole conversation each time, much slower (P9). Clients that look into
    the body, to make a path of the model's name, need the object itself.
    """
    content = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return {"content": content, "options": {"headers": {"Content-Type": "application/json"}}}


def priced_chunk(model: Model, chunk: Chunk) -> Chunk:
    """Return a chunk of a model, with its cost where it is a usage."""
    return UsageChunk(model.priced(chunk.usage)) if isinstance(chunk, UsageChunk) else chunk


def is_retryable(status: int) -> bool:
    """Whether the same request may succeed later, by the status of its refusal."""
    return status in _RETRYABLE or status >= 500


def retry_after_seconds(headers: Mapping[str, str], clock: Clock) -> float | None:
    """Return how long the server wants us to wait: seconds, or an HTTP date against the server's own clock.

    `headers` finds names in lower case.
    """
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
    except (ValueError, OverflowError):
        return None
