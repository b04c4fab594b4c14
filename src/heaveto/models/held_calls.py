"""Open calls in what OpenAI holds of conversations that others keep there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from heaveto.errors import InputError
from heaveto.histories.repairing import Results, repair

if TYPE_CHECKING:
    from openai import AsyncOpenAI

Item = dict[str, Any]
_AT_ONCE = 20
"""How many items OpenAI takes in one request that adds to a conversation."""


def outputs_for(items: Sequence[Item], results: Results | None = None) -> list[Item]:
    """Return an output for each call among the items, oldest first, that has none."""
    known = {id(item) for item in items}
    mended, _ = repair(list(items), provider="openai-responses", results=results)
    return [item for item in mended if id(item) not in known and str(item.get("type")).endswith("_output")]


async def settle_held_calls(
    client: AsyncOpenAI, *, conversation: str | None = None, response: str | None = None, results: Results | None = None
) -> list[Item]:
    """Give each open call of a conversation that OpenAI holds an output, and return these (F39).

    For code that uses `conversation` or `previous_response_id` itself and gets "No tool output found for function
    call …". Sessions of this package need it not. Call it while nothing is being generated there.

    Args:
        client: the client of the project that holds it.
        conversation: the id of a conversation. The outputs are added to it; the model is not asked.
        response: the id of a response to go on from. It cannot be changed: put what is returned in front of the next
            request's ``input``.
        results: what is known of the calls, as in `repair`. Others are told as unknown, never as done or as not done.

    Raises:
        InputError: not exactly one of the two ids was given.
        openai.APIError: as the client raises it. Safe to repeat: calls that have an output are left alone.
    """
    if conversation is not None and response is None:
        listed = client.conversations.items.list(conversation, order="asc", limit=100)
        outputs = outputs_for([item.to_dict() async for item in listed], results)
        for start in range(0, len(outputs), _AT_ONCE):
            added = {"items": outputs[start : start + _AT_ONCE]}
            await client.post(f"/conversations/{conversation}/items", body=added, cast_to=object)
        return outputs
    if response is not None and conversation is None:
        found = await client.responses.retrieve(response)
        return outputs_for([item.to_dict() for item in found.output], results)
    raise InputError("give the id of a conversation or of a response, and not both")
