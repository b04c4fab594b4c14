"""How a test asks a model, and what it says on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

import msgspec

from heaveto.core.request import Generation, ModelRequest, ToolDeclaration, Turn
from heaveto.errors import ModelError
from heaveto.events.contents import FunctionCall, FunctionResponse, Text, Thought, calls_of
from heaveto.ids import SystemIds
from heaveto.models.assemble import Assembled, Assembler
from heaveto.models.base import Chunk, Model, TextChunk

LOOK = ToolDeclaration("look", "looks", {"type": "object", "properties": {"at": {"type": "string"}}})
ASK = ModelRequest(
    turns=[Turn("user", (Text(text="hi"),))], instruction="Be brief.", tools=(LOOK,), generation=Generation()
)


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
