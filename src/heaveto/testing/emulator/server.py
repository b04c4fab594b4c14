"""The emulator: a strict validator in front of each API, one script behind all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import msgspec

from heaveto.clock import Clock, SystemClock
from heaveto.core.validate import Violation, validate
from heaveto.errors import MissingExtraError
from heaveto.testing.emulator.background import BackgroundJob
from heaveto.testing.emulator.caching import PromptCache
from heaveto.testing.emulator.dialects.base import Asked, Dialect, Opening
from heaveto.testing.emulator.dialects.responses_answer import ResponsesAnswer
from heaveto.testing.emulator.exchange import Exchange
from heaveto.testing.emulator.held import HeldResponses
from heaveto.testing.emulator.playing import Performance, cost
from heaveto.testing.emulator.reply import Message, Reply, Send
from heaveto.testing.emulator.routes import Follow, Generate, Look, Route, Routes
from heaveto.testing.script import Action, Cut, Script, Step

if TYPE_CHECKING:
    from heaveto.testing.emulator.loopback import Address, LoopbackServer

_BODY = msgspec.json.Decoder(dict[str, Any])


class Emulator:
    """Speaks OpenAI Chat, OpenAI Responses, Anthropic Messages and Gemini on loopback: one server, one script.

    Each request is judged by the rules of its API, then answered with the next step of the script, in the words of
    `heaveto.testing.script`; functions among the steps get the request body. A `fault` with a status is an HTTP error
    before the first chunk and an error event after it; without a status, and for a `cut`, the socket is closed.
    Any key is taken. Use it as an async context manager.

    Args:
        steps: one per accepted request, whichever API it came by.
        strict: a request beyond the script is refused with status 400; if false, the last step is repeated.
        strict_unconfirmed: apply also the rules that no public report confirms.
        strict_signatures: refuse thoughts and signatures that this emulator has not given: they must come back as
            they were (A15, G12).
        chat: whose rules Chat has: ``openai``, ``deepseek``, ``kimi``, ``qwen``, ``minimax`` or ``mistral``.
        early_headers: send the head of a stream, and what its API sends before any content, at once; not with the
            first chunk.
        clock: what `delay` waits on.
        rules: options of the validators by API, such as ``{"anthropic": {"prefill": True}}``.
        models: the names of the models that there are; others get the provider's 404. By default any name does.
        prompt_cache: count what a prompt shares with the start of an earlier one as cached tokens.
        gemini_call_ids: give Gemini's function calls ids, as Vertex does not.
        port: the port; by default a free one.
        on_over: called with each exchange, of any path, when it is over.

    Raises:
        UnknownFormatError: `rules` or `chat` name no format.
        TypeError: `rules` have an option that the validator does not know.

    Attributes:
        exchanges: the requests for answers so far, also those that were refused.
        others: all other requests: lists of models, counts of tokens, stored responses, wrong paths.
    """

    def __init__(
        self,
        *steps: Step,
        strict: bool = True,
        strict_unconfirmed: bool = False,
        strict_signatures: bool = False,
        chat: str = "openai",
        early_headers: bool = False,
        clock: Clock | None = None,
        rules: Mapping[str, Mapping[str, Any]] | None = None,
        models: Collection[str] | None = None,
        prompt_cache: bool = False,
        gemini_call_ids: bool = False,
        port: int = 0,
        on_over: Callable[[Exchange], None] | None = None,
    ) -> None:
        options = dict(rules or {})
        for api in (chat, *options):
            validate({}, api, **options.get(api, {}))  # names what is wrong with them now, not in an answer
        self.exchanges: list[Exchange] = []
        self.others: list[Exchange] = []
        self._script = Script(steps, strict=strict)
        self._early_headers, self._models, self._port, self._on_over = early_headers, models, port, on_over
        self._clock = clock or SystemClock()
        self._cache = PromptCache() if prompt_cache else None
        self._held = HeldResponses(self._clock.time)
        self._jobs: list[BackgroundJob] = []
        self._routes = Routes(
            rules or {}, models, self._held, chat=chat, strict_unconfirmed=strict_unconfirmed,
            strict_signatures=strict_signatures, call_ids=gemini_call_ids,
        )  # fmt: skip
        self._broken: BaseException | None = None
        self._beyond = 0  # requests for which the script had no step left
        self._arrivals = asyncio.Condition()
        self._server: LoopbackServer | None = None
        self._serving: asyncio.Task[None] | None = None

    @property
    def openai_url(self) -> str:
        """The base URL for OpenAI's SDKs, for Chat and for Responses, such as ``http://127.0.0.1:40123/v1``."""
        return f"{self._root}/v1"

    base_url = openai_url

    @property
    def anthropic_url(self) -> str:
        """The base URL for Anthropic's SDKs."""
        return self._root

    @property
    def google_url(self) -> str:
        """The base URL for Google's SDKs: ``http_options={"base_url": …}``."""
        return self._root

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
        """Raise AssertionError if a request was refused, a step failed, or the script was too long or too short."""
        if self._broken is not None:
            raise AssertionError(f"a step of the script raised {self._broken!r}") from self._broken
        for place, exchange in enumerate(self.exchanges):
            assert exchange.violation is None, f"request {place} broke {exchange.violation}"
        assert not self._beyond, f"{self._beyond} more requests came than the {self._script.played} steps of the script"
        assert not self._script.left, f"these steps were not asked for: {self._script.left}"

    async def __aenter__(self) -> Emulator:
        try:
            from heaveto.testing.emulator.loopback import LoopbackServer
        except ImportError:
            raise MissingExtraError("emulator", "the emulator") from None
        self._server = LoopbackServer(self._app, self._port)
        self._serving = asyncio.create_task(self._server.run_until_stopped(), name="emulator")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for job in self._jobs:
            job.cancel()
        self._running.stop()
        if self._serving is not None:
            await self._serving

    @property
    def _root(self) -> str:
        return f"http://127.0.0.1:{self._running.port}"

    @property
    def _running(self) -> LoopbackServer:
        if self._server is None:
            raise RuntimeError("the emulator runs only inside of its `async with`")
        return self._server

    async def _app(self, scope: Message, receive: Callable[[], Any], send: Send) -> None:
        raw = await _read(receive)
        if raw is None:
            return
        asked = _asked(scope, raw)
        route = self._routes.find(asked)
        exchange = Exchange(
            asked.body, asked.headers, self._clock.monotonic(), api=route.api, method=asked.method, path=asked.path
        )
        client: Address = scope["client"]
        player = asyncio.create_task(self._answer(route, exchange, Reply(exchange, send, client, self._running)))

        def socket_closed() -> None:
            exchange.close(self._clock.monotonic())
            player.cancel()

        with self._running.connections.watched(client, socket_closed):
            await self._note(exchange, is_model_request=isinstance(route, Generate))
            await asyncio.wait([player])
        if self._on_over is not None:
            self._on_over(exchange)
        if not player.cancelled():
            self._broken = self._broken or player.exception()
            player.result()

    async def _note(self, exchange: Exchange, *, is_model_request: bool) -> None:
        async with self._arrivals:
            (self.exchanges if is_model_request else self.others).append(exchange)
            self._arrivals.notify_all()

    async def _answer(self, route: Route, exchange: Exchange, reply: Reply) -> None:
        match route:
            case Generate(dialect=dialect, asked=asked):
                await self._generate(dialect, asked, exchange, reply)
            case Look(look=look):
                status, body = look()
                await reply.json(status, body)
            case Follow(job=job, after=after):
                await job.follow(reply, after)
        if not reply.is_broken:
            exchange.complete(self._clock.monotonic())

    async def _generate(self, dialect: Dialect, asked: Asked, exchange: Exchange, reply: Reply) -> None:
        exchange.model = dialect.model(asked)
        reply.headers = dialect.headers(len(self.exchanges))
        exchange.violation = (
            _no_object(dialect, asked) or self._unknown_model(dialect, exchange.model) or dialect.violation(asked)
        )
        if exchange.violation is not None:
            await reply.json(exchange.violation.status, dialect.envelope(asked, exchange.violation.body))
            return
        actions = self._script.next_actions(asked.body, dialect.call_id)
        if actions is None:
            self._beyond += 1
            words = f"script_exhausted: the emulator's script has only {self._script.played} steps"
            await reply.json(400, dialect.envelope(asked, dialect.error(400, words)))
            return
        known = self._cache.cached_tokens(exchange.model, dialect.prompt(asked)) if self._cache is not None else 0
        usage = cost(asked, dialect, actions, known)
        opening = Opening(self._script.played, int(self._clock.time()), exchange.model, asked, usage)
        answer = dialect.answer(opening)
        if isinstance(answer, ResponsesAnswer) and asked.body.get("background"):
            await self._in_background(asked, actions, answer, reply)
            return
        performance = Performance(dialect, asked, actions, answer, self._clock)
        if dialect.is_stream(asked):
            await performance.stream(reply, early_headers=self._early_headers)
        else:
            await performance.whole(reply)

    async def _in_background(
        self, asked: Asked, actions: Sequence[Action], answer: ResponsesAnswer, reply: Reply
    ) -> None:
        job = BackgroundJob(actions, answer, self._clock, lambda: self._held.finish(asked.body, answer.id))
        self._held.begin(asked.body, answer.id, answer.whole, job)
        self._jobs.append(job)
        first = answer.whole()
        job.start()
        for action in actions:
            if isinstance(action, Cut) and action.counts_bytes:
                reply.limit(action)
        if asked.body.get("stream"):
            await job.follow(reply, after=-1)
        else:
            await reply.json(200, first)

    def _unknown_model(self, dialect: Dialect, model: str) -> Violation | None:
        if self._models is None or model in self._models:
            return None
        return Violation("model", 404, dialect.unknown_model(model))


def _asked(scope: Message, raw: bytes) -> Asked:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
    body = _decoded(raw)
    return Asked(scope["method"], scope["path"], body or {}, headers, query, is_json=body is not None)


def _no_object(dialect: Dialect, asked: Asked) -> Violation | None:
    if asked.is_json:
        return None
    return Violation("schema", 400, dialect.error(400, "The body of the request is not a JSON object."))


async def _read(receive: Callable[[], Any]) -> bytes | None:
    """Return the body of a request, or None if its client went away before it had sent all of it."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return bytes(body)


def _decoded(body: bytes) -> dict[str, Any] | None:
    try:
        return _BODY.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
