"""A server behind HTTP: the SDK's transport, with a client that keeps one request's trouble to that request.

As it stands, the SDK ends the whole connection, and all calls on it, when a single request finds no server; and all
HTTP statuses are one error to it, so that a refusal could not be told from an outcome that nobody knows.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import httpx2
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from mcp_types import CONNECTION_CLOSED

UNREACHED: Final = -32081
"""The request did not get to the server."""
REFUSED: Final = -32082
"""The server, or something before it, refused the request by an HTTP status."""
SESSION_GONE: Final = -32083
"""The server does not know the session any more, and did nothing."""

_NOTIFICATION_SECONDS = 5.0
_NEVER_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)


@dataclass(frozen=True, slots=True)
class ServerUrl:
    """Where a server is and what it gets with each request. Headers and auth are neither logged nor shown."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    auth: httpx2.Auth | None = field(default=None, repr=False)
    timeout_seconds: float = 30.0
    read_timeout_seconds: float | None = 300.0


@asynccontextmanager
async def http_transport(server: ServerUrl) -> AsyncGenerator[Any, None]:
    """The streams to a server. Entered and left by one task."""
    timeout = httpx2.Timeout(server.timeout_seconds, read=server.read_timeout_seconds)
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
    async with (
        _Client(headers=dict(server.headers), auth=server.auth, timeout=timeout, limits=limits) as client,
        streamable_http_client(server.url, http_client=client) as streams,
    ):
        yield streams


class _Client(httpx2.AsyncClient):
    """A client whose trouble with a JSON-RPC request becomes that request's answer."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        asks = request.method == "POST" and _is_request(request.content)
        if request.method != "GET" and not asks:  # the SDK sends nothing else until they are done
            request.extensions["timeout"] = httpx2.Timeout(_NOTIFICATION_SECONDS).as_dict()
        if request.method != "POST":
            return await super().send(request, **options)
        try:
            response = await super().send(request, **options)
        except httpx2.TransportError as error:
            return _answer(request, *_unsent(error))
        trouble = refusal(response.status_code, response.headers, in_session=MCP_SESSION_ID in request.headers)
        if trouble is None or not asks:
            return response
        await response.aclose()
        return _answer(request, *trouble)


def _is_request(body: bytes) -> bool:
    """Whether it is a message that wants an answer."""
    try:
        message = json.loads(body)
    except ValueError:
        return False
    return isinstance(message, dict) and "id" in message and "method" in message


def _unsent(error: httpx2.TransportError) -> tuple[int, str]:
    code = UNREACHED if isinstance(error, _NEVER_SENT) else CONNECTION_CLOSED
    return code, f"{type(error).__name__}: {error}".rstrip(": ")


def refusal(status: int, headers: Mapping[str, str], *, in_session: bool) -> tuple[int, str] | None:
    """Return what an HTTP status means for the call; None leaves the response as it is, with its own JSON-RPC error.

    From 500 on nobody knows what took place: a proxy may have given up on a server that goes on.
    """
    if status == HTTPStatus.NOT_FOUND:  # without a session the SDK takes it for an unknown method
        return (SESSION_GONE, "the server does not know the session any more") if in_session else None
    if status < HTTPStatus.BAD_REQUEST or headers.get("content-type", "").lower().startswith("application/json"):
        return None
    code = CONNECTION_CLOSED if status >= HTTPStatus.INTERNAL_SERVER_ERROR else REFUSED
    return code, f"HTTP status {status}"


def _answer(request: httpx2.Request, code: int, message: str) -> httpx2.Response:
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
    return httpx2.Response(HTTPStatus.BAD_GATEWAY, json=body, request=request)
