"""The emulator: a strict validator in front, a script behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

import msgspec

from heaveto.clock import Clock, SystemClock
from heaveto.core.validate import openai_chat
from heaveto.errors import MissingExtraError
from heaveto.events.records import Usage
from heaveto.models.base import EndChunk, UsageChunk
from heaveto.testing.emulator import answers
from heaveto.testing.emulator.exchange import Exchange
from heaveto.testing.script import Action, Cut, Delay, Fault, Gate, Hang, Script, Step

if TYPE_CHECKING:
    from heaveto.testing.emulator.loopback import Address, LoopbackServer

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_BODY = msgspec.json.Decoder(dict[str, Any])
_JSON = [(b"content-type", b"application/json")]
_EVENTS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]


class ChatEmulator:
    """Speaks OpenAI Chat Completions on loopback: each request is judged by the provider's rules, then answered.

    Steps are those of `heaveto.testing.script`; functions among them get the request body. A `fault` with a status is
    an HTTP error before the first chunk and an error event after it; without a status, and for a `cut`, the socket is
    closed. Use it as an async context manager.

    Args:
        steps: one per accepted request.
        strict: a request beyond the script is refused with status 400; if false, the last step is repeated.
        strict_unconfirmed: apply also the rules that no public report confirms.
        early_headers: send the status and the headers of a stream at once, not with its first chunk.
        clock: what `delay` waits on.

    Attributes:
        exchanges: the requests so far, also those that were refused.
    """

    def __init__(
        self,
        *steps: Step,
        strict: bool = True,
        strict_unconfirmed: bool = False,
        early_headers: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.exchanges: list[Exchange] = []
        self._script = Script(steps, strict=strict)
        self._strict_unconfirmed, self._early_headers = strict_unconfirmed, early_headers
        self._clock = clock or SystemClock()
        self._arrivals = asyncio.Condition()
        self._server: LoopbackServer | None = None
        self._serving: asyncio.Task[None] | None = None

    @property
    def base_url(self) -> str:
        """What to give to clients, such as ``http://127.0.0.1:40123/v1``."""
        return f"http://127.0.0.1:{self._running.port}/v1"

    @property
    def open_connections(self) -> int:
        """How many sockets are open, idle ones included."""
        return len(self._running.connections)

    async def exchange(self, number: int) -> Exchange:
        """Wait for the request with this number, counted from 0, and return it."""
        async with self._arrivals:
            await self._arrivals.wait_for(lambda: len(self.exchanges) > number)
        return self.exchanges[number]

    def assert_done(self) -> None:
        """Raise AssertionError if a request was refused, or if steps are left over."""
        for place, exchange in enumerate(self.exchanges):
            assert exchange.violation is None, f"request {place} broke {exchange.violation}"
        assert not self._script.left, f"these steps were not asked for: {self._script.left}"

    async def __aenter__(self) -> ChatEmulator:
        try:
            from starlette.applications import Starlette
            from starlette.routing import Route

            from heaveto.testing.emulator.loopback import LoopbackServer
        except ImportError:
            raise MissingExtraError("emulator", "the emulator") from None
        app = Starlette(routes=[Route("/v1/chat/completions", _Endpoint(self._handle))])
        self._server = LoopbackServer(app)
        self._serving = asyncio.create_task(self._server.run_until_stopped(), name="emulator")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.stop()
        if self._serving is not None:
            await self._serving

    @property
    def _running(self) -> LoopbackServer:
        if self._server is None:
            raise RuntimeError("the emulator runs only inside of its `async with`")
        return self._server

    async def _handle(self, scope: Message, receive: Receive, send: Send) -> None:
        body = _decoded(await _read(receive))
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        exchange = Exchange(body, headers, self._clock.monotonic())
        client: Address = scope["client"]
        player = asyncio.create_task(self._answer(exchange, _Reply(exchange, send, client, self._running)))

        def socket_closed() -> None:
            exchange.close(self._clock.monotonic())
            player.cancel()

        with self._running.connections.watched(client, socket_closed):
            async with self._arrivals:
                self.exchanges.append(exchange)
                self._arrivals.notify_all()
            await asyncio.wait([player])
        if not player.cancelled():
            player.result()

    async def _answer(self, exchange: Exchange, reply: _Reply) -> None:
        exchange.violation = openai_chat.validate(exchange.body, strict_unconfirmed=self._strict_unconfirmed)
        if exchange.violation is not None:
            await reply.json(exchange.violation.status, exchange.violation.body)
        else:
            await self._play(exchange, reply)
        if not reply.is_broken:
            exchange.complete(self._clock.monotonic())

    async def _play(self, exchange: Exchange, reply: _Reply) -> None:
        actions = self._script.next_actions(exchange.body)
        if actions is None:
            words = f"the emulator's script has only {self._script.played} steps"
            error = {"message": words, "type": "invalid_request_error", "param": None, "code": "script_exhausted"}
            await reply.json(400, {"error": error})
            return
        chunks = [action for action in actions if not isinstance(action, (Cut, Delay, Fault, Gate, Hang))]
        estimate = answers.estimated(exchange.body, chunks)
        model, created = str(exchange.body.get("model", "")), int(self._clock.time())
        answer = answers.ChatAnswer(self._script.played, model, created, estimate)
        if not exchange.body.get("stream"):
            if await self._held(actions, reply):
                await reply.json(200, answer.whole(chunks))
        else:
            await self._stream(actions, answer, exchange, reply)

    async def _held(self, actions: list[Action], reply: _Reply) -> bool:
        """Go through the waits and breaks of an answer; tell whether it came to its end."""
        for action in actions:
            if isinstance(action, (Cut, Delay, Fault, Gate, Hang)) and not await self._hold(action, reply):
                return False
        return True

    async def _stream(
        self, actions: list[Action], answer: answers.ChatAnswer, exchange: Exchange, reply: _Reply
    ) -> None:
        if self._early_headers:
            await reply.start_stream()
        usage: Usage | None = None
        for action in actions:
            match action:
                case Cut() | Delay() | Fault() | Gate() | Hang():
                    if not await self._hold(action, reply):
                        return
                case UsageChunk(usage=spent):
                    usage = spent
                case _:
                    for frame in answer.frames(action, first=reply.frames == 0):
                        await reply.frame(frame)
        ended = any(isinstance(action, EndChunk) for action in actions)
        if ended and _wants_usage(exchange.body):
            await reply.frame(answer.usage_frame(usage))
        await reply.frame(answers.DONE)
        await reply.end_stream()

    async def _hold(self, action: Cut | Delay | Fault | Gate | Hang, reply: _Reply) -> bool:
        """Wait, or break the answer; tell whether it goes on."""
        match action:
            case Delay(seconds=seconds):
                await self._clock.sleep(seconds)
            case Gate():
                await action.passed()
            case Hang():
                await asyncio.Event().wait()
            case Cut():
                reply.break_off()
            case Fault(error=error):
                if error.status is None:
                    reply.break_off()
                elif reply.is_started:
                    await reply.frame(answers.event(answers.error_body(error)))
                    await reply.end_stream()
                else:
                    wish = error.retry_after_seconds
                    extra = [] if wish is None else [(b"retry-after", f"{wish:g}".encode())]
                    await reply.json(error.status, answers.error_body(error), extra)
        return not isinstance(action, (Cut, Fault))


class _Reply:
    """The answer to one request, as it is written."""

    def __init__(self, exchange: Exchange, send: Send, client: Address, server: LoopbackServer) -> None:
        self._exchange, self._send, self._client, self._server = exchange, send, client, server
        self.is_started = self.is_broken = False
        self.frames = 0

    async def json(self, status: int, body: dict[str, Any], extra: list[tuple[bytes, bytes]] | None = None) -> None:
        """Send a whole answer."""
        await self._start(status, _JSON + (extra or []))
        await self._send({"type": "http.response.body", "body": msgspec.json.encode(body)})

    async def start_stream(self) -> None:
        """Send the head of a stream."""
        await self._start(200, _EVENTS)
        await self._send({"type": "http.response.body", "body": b": ready\n\n", "more_body": True})

    async def frame(self, frame: bytes) -> None:
        """Send one event of a stream, and its head before the first one."""
        if not self.is_started:
            await self._start(200, _EVENTS)
        self.frames += 1
        await self._send({"type": "http.response.body", "body": frame, "more_body": True})

    async def end_stream(self) -> None:
        """Close a stream as HTTP does."""
        await self._send({"type": "http.response.body", "body": b""})

    def break_off(self) -> None:
        """Close the socket in the middle of the answer."""
        self.is_broken = True
        self._server.connections.close(self._client)

    async def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.is_started, self._exchange.status = True, status
        await self._send({"type": "http.response.start", "status": status, "headers": headers})


class _Endpoint:
    """An ASGI app of one function; a class, because routes take functions for request handlers."""

    def __init__(self, handle: Callable[[Message, Receive, Send], Awaitable[None]]) -> None:
        self._handle = handle

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        await self._handle(scope, receive, send)


async def _read(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += bytes(message.get("body", b""))
        if not message.get("more_body", False):
            return body


def _wants_usage(body: dict[str, Any]) -> bool:
    options = body.get("stream_options")
    return isinstance(options, dict) and bool(cast("dict[str, Any]", options).get("include_usage"))


def _decoded(body: bytes) -> dict[str, Any]:
    try:
        return _BODY.decode(body)
    except msgspec.DecodeError:
        return {}
