"""The scripted model: what users' tests are written with."""

from __future__ import annotations

import asyncio

import pytest

from heaveto.core.request import ModelRequest, Turn
from heaveto.errors import ModelError
from heaveto.events.contents import FunctionCall, Text, Thought
from heaveto.events.records import Usage
from heaveto.ids import SystemIds
from heaveto.models.assemble import Assembled, Assembler
from heaveto.models.base import TextChunk
from heaveto.testing.script import Gate, call, cut, delay, fault, finish, hang, raw_call, say, think, usage
from heaveto.testing.scripted_model import ScriptedModel

ASK = ModelRequest(turns=[Turn("user", (Text(text="hi"),))], agent="root")


async def ask(model: ScriptedModel, request: ModelRequest = ASK) -> Assembled:
    assembler = Assembler(SystemIds())
    async for chunk in model.generate(request):
        assembler.feed(chunk)
    return assembler.finish()


async def test_one_step_answers_one_request() -> None:
    """Steps are played in order, and each request is kept."""
    model = ScriptedModel(call("refund", order=7), say("Done.", chunks=3))
    (first,) = (await ask(model)).parts
    assert isinstance(first, FunctionCall) and (first.name, first.args) == ("refund", {"order": 7})
    assert (await ask(model)).parts == (Text(text="Done."),)
    assert model.requests == [ASK, ASK]
    model.assert_done()


async def test_a_tuple_is_one_answer_of_several_parts() -> None:
    """Thought, text, parallel calls and usage stand in one answer."""
    model = ScriptedModel((think("Hm.", signature="s"), "Both:", call("a", x=1), call("b"), usage(10, 2)))
    answer = await ask(model)
    assert [type(part) for part in answer.parts] == [Thought, Text, FunctionCall, FunctionCall]
    assert answer.usage == Usage(10, 2)
    assert answer.end is not None and answer.end.reason == "tool_calls"


async def test_a_step_may_be_a_function_of_the_request() -> None:
    """The function sees what the model was asked."""
    model = ScriptedModel(lambda request: say(f"{len(request.turns)} turns"))
    assert (await ask(model)).parts == (Text(text="1 turns"),)


async def test_asking_beyond_the_script_names_the_request() -> None:
    """The test that fails says who asked what."""
    model = ScriptedModel(say("a"))
    await ask(model)
    with pytest.raises(AssertionError, match=r"only 1 steps.*agent 'root' sent 1 turns.*text='hi'"):
        await ask(model)
    with pytest.raises(AssertionError, match="only 1 steps"):
        model.assert_done()


async def test_a_lenient_script_repeats_its_last_step() -> None:
    """Benchmarks ask for ever."""
    model = ScriptedModel(say("a"), strict=False, check=False, keep_requests=False)
    assert [(await ask(model)).parts for _ in range(3)] == [(Text(text="a"),)] * 3
    assert model.requests == []


async def test_leftovers_are_shown() -> None:
    """What nobody asked for is listed with its place."""
    model = ScriptedModel(say("a"), say("left"))
    await ask(model)
    with pytest.raises(AssertionError, match=r"1 of 2 steps were not asked for:\n  2\. .*left"):
        model.assert_done()


async def test_a_fault_may_come_after_some_chunks() -> None:
    """What was streamed before it was received."""
    model = ScriptedModel((say("abcd", chunks=4), fault("overloaded", status=529, after_chunks=2)))
    received: list[str] = []
    with pytest.raises(ModelError, match="overloaded") as error:
        async for chunk in model.generate(ASK):
            assert isinstance(chunk, TextChunk)
            received.append(chunk.text)
    assert received == ["a", "b"]
    assert (error.value.status, error.value.retryable) == (529, True)


async def test_a_cut_ends_the_stream_without_an_end() -> None:
    """Then the last call must not be executed (F30)."""
    answer = await ask(ScriptedModel((call("sh", cmd="rm -rf /tmp/a"), cut(after_chunks=1))))
    (part,) = answer.parts
    assert isinstance(part, FunctionCall) and part.defect == "truncated"
    assert answer.end is None


async def test_a_limit_cuts_with_the_providers_word() -> None:
    """finish() says how the provider closes."""
    answer = await ask(ScriptedModel((say("half"), finish("length", cut=True))))
    assert answer.is_cut and answer.end is not None and answer.end.reason == "length"


async def test_argument_text_and_provider_id_can_be_given() -> None:
    """For malformed arguments and for ids that repeat."""
    (part,) = (await ask(ScriptedModel(raw_call("t", "[1", provider_id="same")))).parts
    assert isinstance(part, FunctionCall) and (part.provider_id, part.defect) == ("same", "invalid")


async def test_a_gate_holds_the_stream_until_it_is_opened() -> None:
    """A test can act exactly in mid-answer."""
    gate = Gate("mid")
    model = ScriptedModel((say("Hel"), gate, say("lo")))
    async with asyncio.TaskGroup() as tasks:
        answer = tasks.create_task(ask(model))
        await gate.reached()
        assert model.active == 1
        gate.open()
    assert answer.result().parts == (Text(text="Hello"),)


async def test_a_hanging_stream_ends_when_it_is_closed() -> None:
    """The model knows that it was closed."""
    model = ScriptedModel((say("Hel"), hang()))
    stream = model.generate(ASK)
    assert await anext(stream) == TextChunk("Hel")
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await stream.aclose()
    assert (model.active, model.closed) == (0, 1)


async def test_delays_are_waited_for_on_the_given_clock() -> None:
    """No test waits for real time."""
    slept: list[float] = []

    class Clock:
        def time(self) -> float:
            return 0.0

        def monotonic(self) -> float:
            return 0.0

        async def sleep(self, seconds: float) -> None:
            slept.append(seconds)

    await ask(ScriptedModel((delay(30), say("a")), clock=Clock()))
    assert slept == [30]


async def test_a_request_that_breaks_the_grammar_is_refused() -> None:
    """A breach fails the test, also if the run went on regardless (P1)."""
    turns = [Turn("user", (Text(text="hi"),)), Turn("model", (FunctionCall(call_id="c", name="t"),)), ASK.turns[0]]
    model = ScriptedModel(say("a"))
    with pytest.raises(AssertionError, match="breaks the grammar"):
        await ask(model, ModelRequest(turns=turns))
    with pytest.raises(AssertionError, match="breaks the grammar"):
        model.assert_done()


def test_chunks_must_add_up() -> None:
    """A script that says something else than it reads is refused."""
    with pytest.raises(ValueError, match="do not add up"):
        say("Hello", chunks=["Hel", "l"])
