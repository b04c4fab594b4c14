"""Gemini, behind the Gemini API of AI Studio or behind Vertex AI.

The official SDK writes the head of each request: it finds credentials and renews tokens, knows the addresses of both
services and their headers. What it writes is caught at its documented seam, ``http_options.httpx_async_client``, and
sent with the request's own body by an httpx client of ours, because with google-genai 2.34 none of its ways to receive
an answer will do:

- Its streams leave the socket open when they are closed between two chunks: the connection is held by generators
  within generators, of which closing the outer one closes only itself (F51).
- Its types drop fields that they do not know, and decode signatures, which are to go back as they came (F26).
- Over aiohttp, its choice where that is installed, it sends a request again after a lost connection, behind a wait of
  its own. Here the runtime owns retries.
- Its ``extra_body``, for requests as they are, renames keys to match the case of its own.

Catching a request costs about a millisecond.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from heaveto.clock import Clock, SystemClock
from heaveto.core.request import ModelProfile, ModelRequest
from heaveto.core.wire_names import gemini_name, wants_signatures
from heaveto.errors import ConfigError, MissingExtraError, ModelError
from heaveto.events.contents import Json
from heaveto.models.base import Chunk, Model
from heaveto.models.httpx_stream import opened
from heaveto.models.prices import Prices
from heaveto.models.sdk import (
    SdkClient,
    checked_address,
    mapped,
    priced_chunk,
    require_end,
    retry_after_seconds,
    unreadable,
)
from heaveto.models.wire.gemini import GeminiEncoder
from heaveto.models.wire.gemini_answer import GeminiAnswerReader
from heaveto.models.wire.gemini_errors import refusal
from heaveto.models.wire.sse import EventReader

if TYPE_CHECKING:
    import httpx
    from google import genai

_SENT_BY_SDK = ("content-length", "host")
_READ_SECONDS, _CONNECT_SECONDS = 600.0, 10.0
_NO_OPTIONS: dict[str, Any] = {}


class Gemini(Model):
    """A model that is asked through ``:generateContent``.

    Args:
        model: the model's name, as the SDK takes it.
        api_key: by default what the SDK finds in the environment: ``GOOGLE_API_KEY`` or ``GEMINI_API_KEY``, or with
            ``GOOGLE_GENAI_USE_VERTEXAI`` the credentials of Google Cloud.
        base_url: where the server is, if not at Google.
        project: the project in Google Cloud; it or `location` alone chooses Vertex AI.
        location: the region there; by default ``global``.
        client_options: more arguments of ``genai.Client``, for anything else that the SDK can be told: credentials,
            ``http_options`` with headers. A client itself cannot be passed, since requests can be caught only on the
            way that it was made with.
        http: an own httpx client to send with, for a proxy or an own certificate. It stays open.
        prices: what makes usage cost something.
        timeout_seconds: how long one read may take, 600 by default.
        stream: whether to ask for a stream. Both ways can be stopped at any moment.
        signatures: whether the model insists on thought signatures (G10); by default by its name, from Gemini 3 on.
        provider_tools: declarations of tools that the provider executes, such as ``{"googleSearch": {}}``.
        provider: the family under which provider data is kept. The signatures of AI Studio are refused by Vertex AI and
            the other way round (G12): name another family for one of them where sessions move between both.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        project: str | None = None,
        location: str | None = None,
        client_options: Mapping[str, Any] = _NO_OPTIONS,
        http: httpx.AsyncClient | None = None,
        prices: Prices | None = None,
        timeout_seconds: float | None = None,
        stream: bool = True,
        signatures: bool | None = None,
        provider_tools: Sequence[dict[str, Json]] = (),
        provider: str = "gemini",
        clock: Clock | None = None,
    ) -> None:
        self.name = model
        self.profile = ModelProfile(name=provider)
        self._api_key, self._base_url = api_key, checked_address(base_url)
        self._project, self._location = project, location
        self._client_options, self._timeout_seconds = client_options, timeout_seconds
        self.prices, self._stream = prices, stream
        self._clock = clock or SystemClock()
        signed = wants_signatures(model) if signatures is None else signatures
        self._encoder = GeminiEncoder(provider=provider, signatures=signed, provider_tools=provider_tools)
        self._sdk = SdkClient(self._connect, _closed_sdk)
        self._http = SdkClient(self._open_http, lambda made: made.aclose(), http)

    async def generate(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        """Stream the answer. Closing this generator, or cancelling who iterates it, closes the socket (F51).

        Raises:
            ModelError: the server refused, failed, broke off, blocked the prompt, or gave no answer.
            MissingExtraError: the SDK is not installed.
        """
        sdk, http = await self._sdk.get(), await self._http.get()
        body = msgspec.json.encode(self._encoder.encode(request))
        names = {sent: tool.name for tool in request.tools if (sent := gemini_name(tool.name)) != tool.name}
        reader = GeminiAnswerReader(provider=self.profile.name, names=names)
        head = await _head(sdk, self.name)
        with _mapped(reader):
            async with self._sent(http, head, body) as response, aclosing(self._read(response)) as events:
                async for event in events:
                    for chunk in reader.feed(event):
                        yield priced_chunk(self, chunk)
        closing = reader.end()
        require_end(reader)
        for chunk in closing:
            yield priced_chunk(self, chunk)

    async def aclose(self) -> None:
        """Close the connections. An own httpx client is left open."""
        await self._http.aclose()
        await self._sdk.aclose()

    @asynccontextmanager
    async def _sent(
        self, http: httpx.AsyncClient, head: httpx.Request, body: bytes
    ) -> AsyncGenerator[httpx.Response, None]:
        """Send a request and give its answer, refusals raised; the socket is closed on every way out."""
        url = _streaming(head.url) if self._stream else head.url
        headers = {name: value for name, value in head.headers.items() if name not in _SENT_BY_SDK}
        async with opened(http, http.build_request("POST", url, content=body, headers=headers)) as response:
            if response.status_code != 200:
                wish = retry_after_seconds(response.headers, self._clock)
                raise refusal(_decoded(await response.aread()), status=response.status_code, retry_after_seconds=wish)
            yield response

    def _read(self, response: httpx.Response) -> AsyncGenerator[object, None]:
        return _events(response) if self._stream else _whole(response)

    def _connect(self) -> genai.Client:
        try:
            import httpx
            from google import genai
        except ImportError:
            raise MissingExtraError("google", "Gemini") from None
        options = self._sdk_options(httpx.AsyncClient(transport=_recorder(), trust_env=False))
        words = ""
        try:
            return genai.Client(**options)
        except _preparing() as error:
            words = str(error)
        # Out of the handler: the SDK's half-made client is to be freed here, not with the error in the event loop.
        raise ModelError(f"cannot connect to {self.name}: {words}")

    def _sdk_options(self, recorder: httpx.AsyncClient) -> dict[str, Any]:
        from google.genai.types import HttpOptions

        given = {"api_key": self._api_key, "project": self._project, "location": self._location}
        options = {**{name: value for name, value in given.items() if value is not None}, **self._client_options}
        if self._project or self._location:
            options = {"vertexai": True, **options}
        http: Any = options.get("http_options") or {}
        http = HttpOptions.model_validate(http)
        ours = {"httpx_async_client": recorder, **({"base_url": self._base_url} if self._base_url else {})}
        return {**options, "http_options": http.model_copy(update=ours)}

    def _open_http(self) -> httpx.AsyncClient:
        import httpx

        read = _READ_SECONDS if self._timeout_seconds is None else self._timeout_seconds
        return httpx.AsyncClient(
            timeout=httpx.Timeout(read, connect=min(read, _CONNECT_SECONDS)),
            limits=httpx.Limits(max_connections=1000, max_keepalive_connections=100),
        )


class _Caught(Exception):  # noqa: N818  # no error: how a request leaves the SDK
    """The request that the SDK would have sent."""

    def __init__(self, request: httpx.Request) -> None:
        super().__init__()
        self.request = request


def _recorder() -> httpx.AsyncBaseTransport:
    import httpx

    class Recorder(httpx.AsyncBaseTransport):
        """Sends nothing."""

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            raise _Caught(request)

    return Recorder()


async def _head(sdk: genai.Client, model: str) -> httpx.Request:
    """Return a request for the model as the SDK would send it: method, address and headers count."""
    config: Any = {
        "automatic_function_calling": {"disable": True},
        "should_return_http_response": True,
        "http_options": {"retry_options": {"attempts": 1}},
    }
    words, retryable = "", False
    try:
        await sdk.aio.models.generate_content(model=model, contents=".", config=config)
    except _Caught as caught:
        return caught.request
    except _preparing() as error:
        words, retryable = str(error), bool(getattr(error, "retryable", False))
    else:
        raise ConfigError("this version of google-genai does not send by the httpx client that it was given")
    raise ModelError(f"cannot ask {model}: {words}", retryable=retryable)


def _preparing() -> tuple[type[Exception], ...]:
    """What the SDK raises while it writes a request: for want of a key, of credentials, of a valid name or address."""
    import httpx
    from google.auth.exceptions import GoogleAuthError

    return (GoogleAuthError, ValueError, httpx.InvalidURL)


async def _closed_sdk(client: genai.Client) -> None:
    await client.aio.aclose()
    client.close()


def _streaming(url: httpx.URL) -> httpx.URL:
    path = f"{url.path.removesuffix(':generateContent')}:streamGenerateContent"
    return url.copy_with(path=path).copy_merge_params({"alt": "sse"})


async def _whole(response: httpx.Response) -> AsyncGenerator[object, None]:
    yield json.loads(await response.aread())


async def _events(response: httpx.Response) -> AsyncGenerator[object, None]:
    """Give the events of a stream; at last, what came outside of events, if that is JSON: an error."""
    reader = EventReader()
    async for received in response.aiter_bytes():
        for event in reader.feed(received):
            yield json.loads(event)
    for event in reader.end():
        yield json.loads(event)
    stray = _decoded(reader.stray)
    if not isinstance(stray, str):
        yield stray


def _decoded(body: bytes) -> object:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode("utf-8", "replace")


@contextmanager
def _mapped(reader: GeminiAnswerReader) -> Generator[None, None, None]:
    import httpx

    with mapped((httpx.HTTPError,), _model_error, reader):
        yield


def _model_error(error: Exception) -> ModelError:
    import httpx

    if isinstance(error, httpx.HTTPError):
        return ModelError(
            f"{type(error).__name__}: {error}", retryable=not isinstance(error, httpx.UnsupportedProtocol)
        )
    return unreadable(error)
