"""Answers: text, calls, thoughts and counts come out whole and apart."""

from __future__ import annotations

from heaveto.events.contents import Thought, calls_of, text_of
from heaveto.models.base import EndChunk, TextChunk
from heaveto.testing.model_contract.asking import ASK, ask, assembled, next_text
from heaveto.testing.model_contract.suite import ModelSuite
from heaveto.testing.script import call, finish, gate, raw_call, say, think, usage


class AnswerContract(ModelSuite):
    """What a connector promises of answers."""

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
        self.needs(self.streams, "it does not stream")
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
        self.needs(self.thinks, "it has no thoughts")
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
