"""What every model connector promises, as a test suite. Subclass it, say how a model is connected, and run pytest.

    class TestMyModel(ModelContract):
        def connect(self, emulator: Emulator) -> Model:
            return MyModel("m", base_url=emulator.openai_url)

Every test has a server and a model of its own. A connector that also asks without a stream gets a second subclass with
``streams = False``; tests that need what a connector has not, by the attributes below, are skipped. The test methods
are coroutines: pytest-asyncio in auto mode, or anyio, runs them. Call
``pytest.register_assert_rewrite("heaveto.testing.model_contract")`` before importing this, to see values in failures.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, ClassVar, cast

import msgspec
import pytest

from heaveto.agents.llm import LlmAgent
from heaveto.core.request import Generation, ModelRequest, ToolDeclaration, Turn
from heaveto.errors import ModelError
from heaveto.events.contents import Blob, FunctionCall, FunctionResponse, Json, Part, Text, Thought, calls_of, text_of
from heaveto.events.records import Delta, Message
from heaveto.ids import SystemIds
from heaveto.models.assemble import Assembled, Assembler
from heaveto.models.base import Chunk, EndChunk, Model, TextChunk
from heaveto.runner.runner import Runner
from heaveto.testing.clock import FakeClock, settle
from heaveto.testing.emulator import Emulator
from heaveto.testing.emulator.exchange import Exchange
from heaveto.testing.script import call, cut, fault, finish, gate, give, hang, raw_call, say, think, usage

LOOK = ToolDeclaration("look", "looks", {"type": "object", "properties": {"at": {"type": "string"}}})
ASK = ModelRequest(
    turns=[Turn("user", (Text(text="hi"),))], instruction="Be brief.", tools=(LOOK,), generation=Generation()
)
CERTAINLY_SECONDS = 2.0
"""By when a socket must be closed whatever the machine is busy with."""
STREAMS_AT_ONCE = 100
MOMENTS = 40
"""At how many steps of the event loop after its start a request is cancelled, one after another."""


class ModelContract:
    """The suite.

    Attributes:
        streams: the model asks for streams: text comes in fragments, and can be stopped between them.
        thinks: thoughts come out of it.
        signature: one as the provider gives them to thoughts that it wants back; None if it does not sign.
        verbatim: parts with provider data of every kind that the provider has: each must go back as it came.
        closed_within_seconds: how soon after a stop the server must see the socket closed.
    """

    streams: ClassVar[bool] = True
    thinks: ClassVar[bool] = True
    signature: ClassVar[str | None] = None
    verbatim: ClassVar[tuple[Part, ...]] = ()
    closed_within_seconds: ClassVar[float] = 0.05

    def connect(self, emulator: Emulator) -> Model:
        """Return a model at this emulator's address, not connected yet."""
        raise NotImplementedError

    @asynccontextmanager
    async def connected(self, *steps: Any, **options: Any) -> AsyncGenerator[tuple[Model, Emulator], None]:
        """An emulator that plays these steps, and a model that asks it."""
        async with Emulator(*steps, **options) as emulator:
            model = self.connect(emulator)
            try:
                yield model, emulator
            finally:
                await model.aclose()

    # --- answers --------------------------------------------------------------------------------------------------

    async def test_text_arrives_and_one_end_closes_it(self) -> None:
        """The text is whole, the end is given once, and the reason is the provider's own."""
        async with self.connected(say("Hello, wörld 🌍", chunks=5)) as (model, emulator):
            chunks = [chunk async for chunk in model.generate(ASK)]
        answer = assembled(model, chunks)
        assert text_of(answer.parts) == "Hello, wörld 🌍"
        ends = [chunk for chunk in chunks if isinstance(chunk, EndChunk)]
        assert len(ends) == 1 and ends[0].reason and not ends[0].cut
        assert not answer.is_cut
        emulator.assert_done()

    async def test_fragments_are_handed_on_as_they_come(self) -> None:
        """What was received is out before more is sent."""
        self._needs(self.streams, "it does not stream")
        door = gate()
        async with self.connected((say("Hel"), door, say("lo"))) as (model, _):
            stream = model.generate(ASK)
            assert "".join([await next_text(stream)]) == "Hel"
            door.open()
            assert "".join([chunk.text async for chunk in stream if isinstance(chunk, TextChunk)]) == "lo"

    async def test_parallel_calls_arrive_apart(self) -> None:
        """Names, arguments and the provider's ids stay together, in order; a call without arguments has none."""
        step = (say("Both:"), call("look", at="ü"), call("look", at="b"), raw_call("rest", ""))
        async with self.connected(step) as (model, _):
            answer = await ask(model)
        calls = calls_of(answer.parts)
        assert [(made.name, made.args, made.defect) for made in calls] == [
            ("look", {"at": "ü"}, ""),
            ("look", {"at": "b"}, ""),
            ("rest", {}, ""),
        ]
        assert text_of(answer.parts) == "Both:"
        given = [made.provider_id for made in calls if made.provider_id]
        assert len(set(given)) == len(given)

    async def test_usage_is_what_the_provider_counted(self) -> None:
        """The last count stands, and is no estimate."""
        async with self.connected((say("x"), usage(10, 4, cached_tokens=5))) as (model, _):
            answer = await ask(model)
        assert answer.usage is not None
        got = (answer.usage.input_tokens, answer.usage.output_tokens, answer.usage.cached_tokens)
        assert (got, answer.usage.estimated) == ((10, 4, 5), False)

    async def test_thoughts_are_kept_apart_from_text(self) -> None:
        """They are shown, and are no part of the answer."""
        self._needs(self.thinks, "it has no thoughts")
        async with self.connected((think("hm", chunks=2), say("Yes."))) as (model, _):
            answer = await ask(model)
        assert "".join(part.text for part in answer.parts if isinstance(part, Thought)) == "hm"
        assert text_of(answer.parts) == "Yes."

    async def test_a_limit_marks_the_answer_as_cut(self) -> None:
        """Then its last call must not be executed (F30)."""
        async with self.connected((raw_call("look", '{"at": "a'), finish("length", cut=True))) as (model, _):
            answer = await ask(model)
        assert answer.is_cut and answer.end is not None
        assert all(made.defect for made in calls_of(answer.parts))

    # --- round trips ----------------------------------------------------------------------------------------------

    async def test_calls_and_results_go_back_paired(self) -> None:
        """The strict server takes the conversation that the answer leads to (P1)."""
        asked = (say("Both:"), call("look", at="a"), call("look", at="b"))
        async with self.connected(asked, say("fine"), strict_unconfirmed=True) as (model, emulator):
            answer = await ask(model)
            assert text_of((await ask(model, answered(model, answer))).parts) == "fine"
        emulator.assert_done()

    async def test_ids_of_other_providers_are_taken(self) -> None:
        """A conversation may have begun elsewhere, with other ids and names."""
        calls = (FunctionCall(call_id="a.b:c", name="look.at"), FunctionCall(call_id="Ab3dEf9hI", name="look"))
        async with self.connected(say("fine"), strict_unconfirmed=True) as (model, emulator):
            await ask(model, with_turns(Turn("model", calls), results_of(calls)))
        emulator.assert_done()

    async def test_signed_thoughts_go_back_and_unsigned_ones_do_not(self) -> None:
        """A signature is the provider's: back as it came, with its thought, or not at all (F25, F27)."""
        self._needs(self.signature is not None, "it does not sign")
        signed = (think("deep", signature=self.signature), call("look", at="a"))
        async with self.connected(signed, say("fine"), strict_unconfirmed=True) as (model, emulator):
            answer = await ask(model)
            called, results = answered(model, answer).turns[1:]
            unsigned = Thought(text="shallow", provider=model.profile.name)
            await ask(model, with_turns(Turn("model", (unsigned, *called.parts)), results))
        sent = texts_in(emulator.exchanges[1].body)
        assert self.signature in sent
        assert "shallow" not in sent
        emulator.assert_done()

    async def test_provider_data_goes_back_as_it_came(self) -> None:
        """Signatures, encrypted blocks, server-side results and fields that nobody knows: verbatim (F26, F27)."""
        self._needs(bool(self.verbatim), "it names no parts with provider data")
        step = (*(give(part) for part in self.verbatim), say("So."))
        async with self.connected(step, say("fine")) as (model, emulator):
            answer = await ask(model)
            await ask(model, with_turns(Turn("model", answer.parts), Turn("user", (Text(text="and?"),))))
        sent = list(objects_in(emulator.exchanges[1].body))
        for part in self.verbatim:
            assert part.data in sent, f"{part.data} did not go back as it came"
        emulator.assert_done()

    async def test_another_providers_data_stays_behind(self) -> None:
        """It means nothing here, and may be refused (F27)."""
        foreign = Thought(text="secret", signature="c2ln", provider="somebody", data={"type": "odd", "secret": "x"})
        said = Turn("model", (foreign, Text(text="Hm.", provider="somebody", data={"secret": "x"})))
        async with self.connected(say("fine"), strict_unconfirmed=True) as (model, emulator):
            await ask(model, with_turns(said, Turn("user", (Text(text="and?"),))))
        assert "secret" not in msgspec.json.encode(emulator.exchanges[0].body).decode()
        emulator.assert_done()

    async def test_images_go_out_whole(self) -> None:
        """An image is sent inline, as bytes."""
        image = Blob(mime_type="image/png", content=b"\x89PNG\r\n\x1a\n\xff\xfe+/")
        request = ModelRequest(turns=[Turn("user", (Text(text="what is this?"), image))])
        async with self.connected(say("a dot"), strict_unconfirmed=True) as (model, emulator):
            await ask(model, request)
        wanted = base64.b64encode(image.content).decode()
        assert any(text.endswith(wanted) for text in texts_in(emulator.exchanges[0].body))
        emulator.assert_done()

    async def test_a_schema_for_the_answer_goes_out(self) -> None:
        """In the provider's own field, somewhere in the request."""
        schema: dict[str, Json] = {"type": "object", "properties": {"verdict": {"type": "string"}}}
        request = msgspec.structs.replace(ASK, tools=(), generation=Generation(output_schema=schema))
        async with self.connected(say('{"verdict":"ok"}')) as (model, emulator):
            await ask(model, request)
        assert any("verdict" in found for found in objects_in(emulator.exchanges[0].body))

    # --- errors ---------------------------------------------------------------------------------------------------

    async def test_nothing_is_sent_before_the_first_iteration(self) -> None:
        """A request that nobody reads costs nothing."""
        async with self.connected() as (model, emulator):
            stream = cast("AsyncGenerator[Chunk, None]", model.generate(ASK))
            await settle()
            await stream.aclose()
            assert (emulator.exchanges, emulator.open_connections) == ([], 0)

    @pytest.mark.parametrize(
        ("status", "retryable"),
        [(429, True), (500, True), (503, True), (400, False), (401, False), (403, False), (404, False)],
    )
    async def test_statuses_become_model_errors(self, status: int, retryable: bool) -> None:
        """Whether and when to try again is data; the connector itself never does."""
        async with self.connected(fault("no such luck", status=status, retry_after_seconds=7)) as (model, emulator):
            with pytest.raises(ModelError, match="no such luck") as error:
                await ask(model)
            assert len(emulator.exchanges) == 1
        assert (error.value.status, error.value.retryable) == (status, retryable)
        if retryable:
            assert error.value.retry_after_seconds == 7.0

    async def test_a_broken_request_is_refused_with_the_providers_words(self) -> None:
        """The error is final, and has the provider's body."""
        lonely = Turn("model", (FunctionCall(call_id="c1", name="look"),))
        async with self.connected(say("never")) as (model, emulator):
            with pytest.raises(ModelError) as error:
                await ask(model, with_turns(lonely, *ASK.turns))
            assert emulator.exchanges[0].violation is not None
        assert (error.value.status, error.value.retryable) == (400, False)

    async def test_nobody_listening_is_a_retryable_error(self) -> None:
        """Without a status, because there was no answer."""
        async with Emulator() as emulator:
            model = self.connect(emulator)
        with pytest.raises(ModelError) as error:
            await ask(model)
        await model.aclose()
        assert (error.value.status, error.value.retryable) == (None, True)

    @pytest.mark.parametrize("where", ["before the answer", "within it", "an error within it"])
    async def test_an_answer_that_breaks_off_has_no_end(self, where: str) -> None:
        """What came before was handed on; then there is a retryable error, or just no end (F30, F61)."""
        within = {"within it": cut(after_chunks=2), "an error within it": fault("busy", status=503, after_chunks=2)}
        step = (say("abcd", chunks=4), within[where]) if where in within else cut()
        async with self.connected(step) as (model, _):
            chunks, error = await read(model)
        assert error is None or error.retryable
        assert not any(isinstance(chunk, EndChunk) for chunk in chunks)
        if self.streams:
            assert "abcd".startswith("".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk)))
            assert where == "before the answer" or assembled(model, chunks).parts == (Text(text="ab"),)
        if where == "an error within it" and self.streams:
            assert error is not None

    async def test_truncated_arguments_are_never_executed(self) -> None:
        """Whatever they look like, a call that the provider did not close is no call (F30)."""
        looked: list[str] = []

        def look(at: str) -> str:
            looked.append(at)
            return "seen"

        half = (raw_call("look", '{"at": "a"}'), cut())
        limited = (raw_call("look", '{"at": "a'), finish("length", cut=True))
        for step in (half, limited):
            async with (
                self.connected(step, say("Sorry."), strict=False) as (model, _),
                Runner(LlmAgent("root", model, tools=[look])) as runner,
            ):
                run = await runner.start(user_id="u", session_id="s", new_message="hi")
                await run.wait()
        assert looked == []

    # --- stops ----------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("early_headers", [False, True])
    async def test_a_stop_before_the_first_byte_closes_the_socket(self, early_headers: bool) -> None:
        """The provider must not go on generating, also where it has not said anything yet (F51)."""

        async def stop_one() -> float:
            async with self.connected(hang(), early_headers=early_headers) as (model, emulator):
                asking = asyncio.create_task(ask(model))
                exchange = await emulator.exchange(0)
                await settle()
                return await closed_after(exchange, lambda: cancelled(asking))

        await self._closes(stop_one)

    async def test_a_stop_while_connecting_leaves_no_request_behind(self) -> None:
        """At every step of the loop from the start of a request on: no socket stays, nothing is asked again (F51)."""
        async with self.connected(say("warm"), hang(), strict=False) as (model, emulator):
            await ask(model)
            for moment in range(MOMENTS):
                asking = asyncio.create_task(ask(model))
                for _ in range(moment):
                    await asyncio.sleep(0)
                await cancelled(asking)
            for exchange in emulator.exchanges[1:]:
                await asyncio.wait_for(exchange.over(), CERTAINLY_SECONDS)
            assert len(emulator.exchanges) <= 1 + MOMENTS

    @pytest.mark.parametrize("way", ["cancel", "close"])
    async def test_a_stop_between_chunks_closes_the_socket(self, way: str) -> None:
        """Where the reader waits for more, and where it does something else and then stops reading (F51)."""
        self._needs(self.streams, "it does not stream")

        async def stop_one() -> float:
            async with self.connected((say("Hel"), hang())) as (model, emulator):
                stream = cast("AsyncGenerator[Chunk, None]", model.generate(ASK))
                await next_text(stream)
                exchange = await emulator.exchange(0)
                if way == "close":
                    return await closed_after(exchange, stream.aclose)
                reading = asyncio.ensure_future(anext(stream))
                await asyncio.sleep(0)

                async def stop() -> None:
                    await cancelled(reading)
                    await stream.aclose()

                return await closed_after(exchange, stop)

        await self._closes(stop_one)

    async def test_a_stop_in_the_readers_own_code_closes_the_socket(self) -> None:
        """The task is cancelled between two chunks, while it does something else (F51)."""
        self._needs(self.streams, "it does not stream")

        async def stop_one() -> float:
            async with self.connected((say("Hel"), hang())) as (model, emulator):
                busy = asyncio.Event()

                async def work() -> None:
                    async with aclosing(cast("AsyncGenerator[Chunk, None]", model.generate(ASK))) as stream:
                        await next_text(stream)
                        busy.set()
                        await asyncio.Event().wait()

                working = asyncio.create_task(work())
                await busy.wait()
                return await closed_after(await emulator.exchange(0), lambda: cancelled(working))

        await self._closes(stop_one)

    async def test_nothing_is_asked_again_after_a_stop(self) -> None:
        """In the pause before a retry, which the runtime makes, a stop ends it (F159)."""
        clock = FakeClock()
        async with self.connected(fault("busy", status=503), strict=False) as (model, emulator):
            async with Runner(LlmAgent("root", model), clock=clock) as runner:
                run = await runner.start(user_id="u", session_id="s", new_message="hi")
                await (await emulator.exchange(0)).over()
                await until(lambda: clock.sleepers > 0)
                assert (await run.cancel()).outcome == "cancelled"
                await clock.advance(3600)
            assert len(emulator.exchanges) == 1

    async def test_a_stopped_answer_is_in_the_books(self) -> None:
        """What was generated is paid for, so it is recorded with the stop, as an estimate (F126, F127)."""
        self._needs(self.streams, "it does not stream")
        words = "word " * 50
        async with (
            self.connected((say(words, chunks=2), hang())) as (model, emulator),
            Runner(LlmAgent("root", model)) as runner,
        ):
            run = await runner.start(user_id="u", session_id="s", new_message="a question of some length")
            received = 0
            async for record in run.stream(deltas=True):
                received += len(record.text) if isinstance(record, Delta) else 0
                if received == len(words):
                    break
            report = await run.cancel()
            await asyncio.wait_for(emulator.exchanges[0].over(), CERTAINLY_SECONDS)
            records = [record async for record in run.stream(deltas=False)]
        (message,) = (record for record in records if isinstance(record, Message) and record.interrupted)
        assert report.usage.estimated and report.usage.input_tokens > 0 and report.usage.output_tokens > 10
        assert message.usage == report.usage

    # --- connections ----------------------------------------------------------------------------------------------

    async def test_a_connection_is_used_again_after_a_whole_answer(self) -> None:
        """Reading to the end leaves it open and clean."""
        async with self.connected(say("a"), say("b")) as (model, emulator):
            await ask(model)
            await ask(model)
            assert emulator.open_connections == 1

    async def test_a_request_after_a_stop_is_answered(self) -> None:
        """A stop spoils nothing but its own request."""
        async with self.connected(hang(), say("b")) as (model, emulator):
            asking = asyncio.create_task(ask(model))
            await emulator.exchange(0)
            await cancelled(asking)
            assert text_of((await ask(model)).parts) == "b"

    async def test_many_answers_at_once_do_not_mix(self) -> None:
        """Each reader gets its own answer, and no other's (F65)."""

        def echo(body: Any) -> Any:
            word = next(text for text in texts_in(body) if text.startswith("number "))
            return say(word, chunks=4)

        async with self.connected(*[echo] * STREAMS_AT_ONCE) as (model, emulator):
            wanted = [f"number {place}" for place in range(STREAMS_AT_ONCE)]
            answers = await asyncio.gather(*(ask(model, said(word)) for word in wanted))
        assert [text_of(answer.parts) for answer in answers] == wanted
        emulator.assert_done()

    async def test_closing_twice_does_no_harm_and_closes_the_connections(self) -> None:
        """`aclose` is idempotent."""
        async with self.connected(say("a")) as (model, emulator):
            await ask(model)
            await model.aclose()
            await model.aclose()
            await until(lambda: emulator.open_connections == 0)

    async def test_a_model_that_was_never_asked_closes(self) -> None:
        """Closing does not connect."""
        async with self.connected() as (model, emulator):
            await model.aclose()
            assert emulator.open_connections == 0

    def _needs(self, has: bool, reason: str) -> None:
        if not has:
            pytest.skip(f"{type(self).__name__}: {reason}")

    async def _closes(self, stop_one: Callable[[], Awaitable[float]]) -> None:
        """Whether a socket closes in time. A busy machine may be late now and then, but not three times in a row."""
        best = min([await stop_one() for _ in range(3)])
        print(f"\n{type(self).__name__}: the server saw the socket close after {best * 1000:.1f} ms")  # noqa: T201
        assert best <= self.closed_within_seconds


def assembled(model: Model, chunks: Iterable[Chunk]) -> Assembled:
    """Return what chunks of a model come to."""
    assembler = Assembler(SystemIds(), provider=model.profile.name)
    for chunk in chunks:
        assembler.feed(chunk)
    return assembler.finish()


async def ask(model: Model, request: ModelRequest = ASK) -> Assembled:
    """Ask a model and return the whole answer."""
    return assembled(model, [chunk async for chunk in model.generate(request)])


async def read(model: Model) -> tuple[list[Chunk], ModelError | None]:
    """Ask a model; return what came, and the error behind it."""
    chunks: list[Chunk] = []
    try:
        async for chunk in model.generate(ASK):
            chunks.append(chunk)  # noqa: PERF401 - those before an error count
    except ModelError as error:
        return chunks, error
    return chunks, None


async def next_text(stream: AsyncIterator[Chunk]) -> str:
    """Return the next piece of text."""
    while True:
        chunk = await anext(stream)
        if isinstance(chunk, TextChunk):
            return chunk.text


def said(text: str) -> ModelRequest:
    """Return a request that says one thing."""
    return ModelRequest(turns=[Turn("user", (Text(text=text),))])


def with_turns(*turns: Turn) -> ModelRequest:
    """Return a request with further turns."""
    return msgspec.structs.replace(ASK, turns=[*ASK.turns, *turns])


def results_of(calls: Iterable[FunctionCall]) -> Turn:
    """Return the turn that answers calls."""
    return Turn("tool", tuple(FunctionResponse(call_id=c.call_id, name=c.name, response={"x": 1}) for c in calls))


def answered(model: Model, answer: Assembled) -> ModelRequest:
    """Return the request that follows an answer with calls, under the provider's own ids, as the runtime does."""
    parts = tuple(
        msgspec.structs.replace(part, call_id=part.provider_id or part.call_id)
        if isinstance(part, FunctionCall)
        else part
        for part in answer.parts
        if not isinstance(part, Thought) or (part.signature and model.profile.thoughts)
    )
    return with_turns(Turn("model", parts), results_of(calls_of(parts)))


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so that the other end of a socket brings about."""
    async with asyncio.timeout(CERTAINLY_SECONDS):
        while not is_so():  # noqa: ASYNC110 - it is not ours, so there is no event for it
            await asyncio.sleep(0.001)


async def cancelled(task: asyncio.Future[Any]) -> None:
    """Cancel a task and wait until it is over."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def closed_after(exchange: Exchange, stop: Callable[[], Awaitable[None]]) -> float:
    """Stop, and return how many seconds later the server saw the socket close."""
    stopped_at = time.monotonic()
    await stop()
    await asyncio.wait_for(exchange.over(), CERTAINLY_SECONDS)
    assert exchange.closed_at is not None, "the answer was completed"
    return exchange.closed_at - stopped_at


def objects_in(value: Json) -> Iterator[dict[str, Json]]:
    """Return every object within a JSON value."""
    match value:
        case dict():
            found = cast("dict[str, Json]", value)
            yield found
            for inner in found.values():
                yield from objects_in(inner)
        case list():
            for inner in cast("list[object]", value):
                yield from objects_in(inner)
        case _:
            pass


def texts_in(value: Json) -> list[str]:
    """Return every text among the fields of a JSON value; texts in lists of texts are left out."""
    return [text for found in objects_in(value) for text in found.values() if isinstance(text, str)]
