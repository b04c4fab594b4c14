"""From chunks to the parts of a message."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.effort import examples

from heaveto.core.request import ModelRequest, Turn
from heaveto.events.contents import FunctionCall, Part, Text, Thought
from heaveto.events.records import Usage
from heaveto.models.assemble import Assembled, Assembler, estimate_usage
from heaveto.models.base import (
    CallChunk,
    Chunk,
    EndChunk,
    PartChunk,
    PauseChunk,
    TextChunk,
    ThoughtChunk,
    UsageChunk,
)


class CountingIds:
    """Ids that are the same each time."""

    def __init__(self) -> None:
        self.count = 0

    def record_id(self) -> str:
        raise AssertionError("an assembler makes no records")

    def call_id(self) -> str:
        self.count += 1
        return f"id{self.count:07d}"


def assemble(*chunks: Chunk) -> Assembled:
    assembler = Assembler(CountingIds(), provider="p")
    for chunk in chunks:
        assembler.feed(chunk)
    return assembler.finish()


def calls(answer: Assembled) -> list[FunctionCall]:
    return [part for part in answer.parts if isinstance(part, FunctionCall)]


def test_text_and_thought_fragments_become_one_part_each() -> None:
    """Fragments of one kind in a row are one part, and the order of kinds is kept."""
    answer = assemble(ThoughtChunk("h"), ThoughtChunk("m"), TextChunk("a"), TextChunk(""), TextChunk("b"), EndChunk())
    assert answer.parts == (Thought(text="hm", provider="p"), Text(text="ab"))


def test_a_signed_thought_replaces_the_streamed_one() -> None:
    """The complete part with its signature takes the place of what was streamed for display (F25)."""
    signed = Thought(text="hm", signature="s", provider="p")
    answer = assemble(ThoughtChunk("hm"), PartChunk(signed), TextChunk("a"), EndChunk())
    assert answer.parts == (signed, Text(text="a"))


def test_interleaved_parallel_calls_are_kept_apart() -> None:
    """Argument fragments belong to the call with their index (F80)."""
    answer = assemble(
        CallChunk(0, name="a", provider_id="x", args='{"mi'),
        CallChunk(1, name="b", provider_id="y", args='{"yours"'),
        CallChunk(0, args='ne":1}'),
        CallChunk(1, args=":2}"),
        EndChunk(),
    )
    assert [(call.name, call.args, call.defect) for call in calls(answer)] == [
        ("a", {"mine": 1}, ""),
        ("b", {"yours": 2}, ""),
    ]


def test_ids_are_ours_and_the_providers_is_kept_beside() -> None:
    """A provider that gives every call the same id does not confuse us (F20)."""
    answer = assemble(
        CallChunk(0, name="a", provider_id="same", args='{"n":1}'),
        CallChunk(1, name="a", provider_id="same", args='{"n":2}'),
        EndChunk(),
    )
    assert [(call.call_id, call.provider_id) for call in calls(answer)] == [
        ("id0000001", "same"),
        ("id0000002", "same"),
    ]


def test_hosts_that_give_all_calls_one_index_are_understood() -> None:
    """Another provider id at a known index begins another call."""
    answer = assemble(
        CallChunk(0, name="a", provider_id="x", args="{}"),
        CallChunk(0, name="b", provider_id="y", args="{}"),
        EndChunk(),
    )
    assert [call.name for call in calls(answer)] == ["a", "b"]


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("split", [False, True])
def test_a_call_sent_twice_in_one_answer_is_one_call(index: int, split: bool) -> None:
    """A reconnect of the provider repeats the block; the tool must run once (F19)."""
    again = (
        [CallChunk(index, name="pay", provider_id="c1"), CallChunk(index, args='{"n": 1}')]
        if split
        else [CallChunk(index, name="pay", provider_id="c1", args='{"n": 1}')]
    )
    answer = assemble(CallChunk(0, name="pay", provider_id="c1", args='{"n":1}'), *again, EndChunk())
    assert [call.args for call in calls(answer)] == [{"n": 1}]


def test_a_host_that_repeats_id_and_name_in_every_fragment_makes_one_call() -> None:
    """Repeated heads, a last empty one included, do not begin another call."""
    answer = assemble(*(CallChunk(0, name="a", provider_id="x", args=args) for args in ('{"n"', ":1}", "")), EndChunk())
    assert [(call.name, call.args, call.defect) for call in calls(answer)] == [("a", {"n": 1}, "")]


def test_two_equal_calls_without_ids_are_two_calls() -> None:
    """Without an id nothing says that the second is a repetition."""
    answer = assemble(CallChunk(0, name="roll", args="{}"), CallChunk(1, name="roll", args="{}"), EndChunk())
    assert len(calls(answer)) == 2


@pytest.mark.parametrize(
    "args", ['{"a": "b', "[1]", '"x"', "null", "{'a': 1}", '{"a": NaN}', '{"a":1}{"a":1}', "{" * 5000]
)
def test_arguments_that_are_no_json_object_make_the_call_invalid(args: str) -> None:
    """Parsing is strict; the text is kept for diagnosis (F31)."""
    (call,) = calls(assemble(CallChunk(0, name="t", args=args), EndChunk()))
    assert (call.args, call.raw_args, call.defect) == ({}, args, "invalid")


@pytest.mark.parametrize("args", ["", "  ", "{}"])
def test_a_tool_without_arguments_may_be_called_with_nothing(args: str) -> None:
    """Some hosts send an empty string for no arguments (F31)."""
    (call,) = calls(assemble(CallChunk(0, name="now", args=args), EndChunk()))
    assert (call.args, call.raw_args, call.defect) == ({}, None, "")


@pytest.mark.parametrize("end", [[], [EndChunk(reason="length", cut=True)]])
@pytest.mark.parametrize("args", ['{"cmd": "rm -rf /tmp/a', '{"cmd": "ls"}', ""])
def test_the_last_call_of_a_cut_answer_is_never_executable(end: list[Chunk], args: str) -> None:
    """Not even if what arrived parses: the provider did not close the call (F30)."""
    answer = assemble(CallChunk(0, name="sh", args=args), *end)
    (call,) = calls(answer)
    assert (call.args, call.raw_args, call.defect) == ({}, args, "truncated")
    assert answer.is_cut


def test_whole_calls_before_the_cut_are_kept() -> None:
    """What something else followed was closed by the provider."""
    answer = assemble(CallChunk(0, name="a", args='{"n":1}'), CallChunk(1, name="b", args='{"n"'))
    assert [(call.name, call.defect) for call in calls(answer)] == [("a", ""), ("b", "truncated")]


def test_partial_can_be_asked_at_any_moment() -> None:
    """It changes nothing: the stream goes on to the same message."""
    assembler = Assembler(CountingIds())
    assert assembler.partial() == ()
    assembler.feed(TextChunk("Hel"))
    assert assembler.partial() == (Text(text="Hel"),)
    assembler.feed(TextChunk("lo"))
    assembler.feed(CallChunk(0, name="a", args='{"n":1}'))
    (_, call) = assembler.partial()
    assert isinstance(call, FunctionCall) and call.defect == "truncated"
    assembler.feed(EndChunk())
    assert assembler.finish().parts == (Text(text="Hello"), FunctionCall(call_id=call.call_id, name="a", args={"n": 1}))


def test_surrogate_halves_in_two_fragments_are_joined_and_lone_ones_replaced() -> None:
    """Servers that escape by halves must not make text that no store can encode."""
    answer = assemble(TextChunk("\ud83d"), TextChunk("\ude00 \ud83d"), EndChunk())
    assert answer.parts == (Text(text="\U0001f600 \ufffd"),)


def test_end_and_usage_are_handed_on() -> None:
    """The last usage counts, and the provider's own data of the end is kept."""
    end = EndChunk(reason="stop", model="m", data={"x": 1})
    answer = assemble(UsageChunk(Usage(1, 1)), end, UsageChunk(Usage(3, 4)))
    assert (answer.end, answer.usage, answer.is_cut) == (end, Usage(3, 4), False)


def test_an_estimate_says_that_it_is_one() -> None:
    """A cut stream is not free in the books (F126)."""
    request = ModelRequest(turns=[Turn("user", (Text(text="x" * 400),))])
    assert estimate_usage(request, (Text(text="y" * 39),)) == Usage(100, 10, estimated=True)


PIECES = st.lists(
    st.one_of(
        st.tuples(st.just("text"), st.text(min_size=1)),
        st.tuples(st.just("thought"), st.text(min_size=1)),
        st.tuples(st.just("call"), st.dictionaries(st.text(), st.integers() | st.text(), max_size=3)),
    ),
    max_size=5,
)


@settings(max_examples=examples(150), deadline=None)
@given(PIECES, st.data(), st.booleans())
def test_any_chunking_of_an_answer_gives_the_same_parts(
    pieces: list[tuple[str, object]], data: st.DataObject, ended: bool
) -> None:
    """Where the network cuts the fragments does not matter, with an end or without."""
    end: list[Chunk] = [EndChunk()] if ended else []

    def parts(*, split: bool) -> tuple[Part, ...]:
        chunks: list[Chunk] = []
        for index, (kind, value) in enumerate(pieces):
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            for number, fragment in enumerate(fragments(text) if split else [text]):
                match kind:
                    case "text":
                        chunks.append(TextChunk(fragment))
                    case "thought":
                        chunks.append(ThoughtChunk(fragment))
                    case _:
                        name, provider_id = ("t", f"p{index}") if number == 0 else ("", "")
                        chunks.append(CallChunk(index, name, provider_id, fragment))
        return assemble(*chunks, *end).parts

    def fragments(text: str) -> list[str]:
        edges = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
        return [text[start:stop] for start, stop in zip([0, *edges], [*edges, len(text)], strict=True)]

    assert parts(split=True) == parts(split=False)


def test_a_text_with_provider_data_takes_the_place_of_what_was_streamed_of_it() -> None:
    """What else was streamed before it stays, as a text of its own."""
    cited = Text(text="so.", provider="p", data={"type": "text", "text": "so.", "citations": []})
    answer = assemble(TextChunk("It is "), TextChunk("so."), PartChunk(cited), TextChunk("Well."))
    assert answer.parts == (Text(text="It is "), cited, Text(text="Well."))


def test_behind_a_pause_the_usage_is_an_estimate_until_it_is_counted_again() -> None:
    """A further request follows, which nobody has counted yet (F22, F126)."""
    assert assemble(UsageChunk(Usage(3, 4)), PauseChunk()).usage == Usage(3, 4, estimated=True)
    assert assemble(UsageChunk(Usage(3, 4)), PauseChunk(), UsageChunk(Usage(9, 9))).usage == Usage(9, 9)


def test_a_call_behind_which_the_answer_pauses_is_closed() -> None:
    """What was whole before the pause is whole, also where the next request is cut (F30)."""
    (call,) = assemble(CallChunk(0, name="a", provider_id="1", args="{}"), PauseChunk()).parts
    assert isinstance(call, FunctionCall) and call.defect == ""


def test_an_estimate_keeps_what_the_provider_counted() -> None:
    """Its input is exact; its output is at least what it had counted (F126)."""
    known = Usage(100, 1, cached_tokens=40, estimated=True)
    assert estimate_usage(ModelRequest(turns=()), (Text(text="word " * 8),), known) == replace(known, output_tokens=10)
    assert estimate_usage(ModelRequest(turns=()), (), known) == known
