"""Generator functions as tools: each piece is shown at once, and the pieces are the result."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, closing
from typing import Any, cast

from heaveto.errors import ToolDefinitionError
from heaveto.tools.base import ToolContext
from heaveto.tools.response import to_json


async def drain_async(generator: AsyncGenerator[Any, Any], ctx: ToolContext) -> Any:
    """Put each piece out, and return what `joined` makes of them. The generator is closed on every path.

    Raises:
        NotSerializableError: a piece cannot be said in JSON.
    """
    pieces: list[Any] = []
    async with aclosing(generator):
        async for piece in generator:
            _put_out(piece, pieces, ctx)
    return joined(pieces)


def drain(generator: Generator[Any, Any, Any], ctx: ToolContext, *, stoppable: bool) -> Any:
    """Put each piece out, and return what the generator returns, or what `joined` makes of the pieces if that is None.

    The generator is closed on every path; between two pieces if it is `stoppable` and a stop was asked for.

    Raises:
        RunCancelled: so it was.
        NotSerializableError: a piece cannot be said in JSON.
    """
    pieces: list[Any] = []
    with closing(generator):
        while True:
            if stoppable:
                ctx.raise_if_cancelled()
            try:
                piece = next(generator)
            except StopIteration as end:
                return joined(pieces) if end.value is None else end.value
            _put_out(piece, pieces, ctx)


def result_of(tool: str, value: Any, ctx: ToolContext, *, stoppable: bool) -> Any:
    """Return the result of a blocking function, from what the call of it gave: a value, or a generator to be drained.

    Raises:
        ToolDefinitionError: it gave something to be awaited.
    """
    if inspect.isgenerator(value):
        return drain(cast("Generator[Any, Any, Any]", value), ctx, stoppable=stoppable)
    if inspect.isawaitable(value) or inspect.isasyncgen(value):
        if inspect.iscoroutine(value):
            value.close()
        raise ToolDefinitionError(tool, "it is not 'async def' but returned an awaitable; make it async")
    return value


def _put_out(piece: Any, pieces: list[Any], ctx: ToolContext) -> None:
    ctx.output(to_json(piece))
    pieces.append(piece)


def joined(pieces: list[Any]) -> Any:
    """Return pieces as one text if all are text, else as a list; None if there are none."""
    if not pieces:
        return None
    texts = [piece for piece in pieces if isinstance(piece, str)]
    return "".join(texts) if len(texts) == len(pieces) else pieces
