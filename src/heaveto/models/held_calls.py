"""Open calls in what OpenAI holds of other people's conversations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from heaveto.errors import InputError

if TYPE_CHECKING:
    from openai import AsyncOpenAI

Item = dict[str, Any]
NO_RESULT = (
    "No result of this call is known: the run that made it was interrupted. It may have been carried out or not. "
    "Find out before you make it again."
)
_OUTPUTS = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}
_AT_ONCE = 20
_NONE: Mapping[str, str] = {}


def outputs_for(items: Iterable[Mapping[str, Any]], results: Mapping[str, str] = _NONE) -> list[Item]:
    """Return an output for each call among the items that has none, in order.

    Args:
        items: calls, outputs and others, oldest first.
        results: what is known, by call id; other calls are told as unknown (`NO_RESULT`).
    """
    opened: dict[str, str] = {}
    for item in items:
        kind, call_id = item.get("type"), item.get("call_id")
        if kind in _OUTPUTS and call_id:
            opened[call_id] = _OUTPUTS[kind]
        elif kind in _OUTPUTS.values():
            opened.pop(call_id or "", None)
    return [
        {"type": kind, "call_id": call_id, "output": results.get(call_id, NO_RESULT)}
        for call_id, kind in opened.items()
    ]


async def settle_held_calls(
    client: AsyncOpenAI,
    *,
    conversation: str | None = None,
    response: str | None = None,
    results: Mapping[str, str] = _NONE,
) -> list[Item]:
    """Give each open call of a conversation that OpenAI holds an output, and return these (F39).

    For code that uses `conversation` or `previous_response_id` itself and gets "No tool output found for function
    call …". Sessions of this package need it not. Call it while nothing is being generated there.

    Args:
        client: the client of the project that holds it.
        conversation: the id of a conversation. The outputs are added to it; the model is not asked.
        response: the id of a response to go on from. It cannot be changed: put what is returned in front of the next
            request's ``input``.
        results: what is known of the calls, by call id. Others are told as unknown, never as done or as not done.

    Raises:
        InputError: not exactly one of the two ids was given.
        openai.APIError: as the client raises it. Safe to repeat: calls that have an output are left alone.
    """
    if conversation is not None and response is None:
        listed = client.conversations.items.list(conversation, order="asc", limit=100)
        outputs = outputs_for([item.to_dict() async for item in listed], results)
        for start in range(0, len(outputs), _AT_ONCE):
            await client.post(
                f"/conversations/{conversation}/items",
                body={"items": outputs[start : start + _AT_ONCE]},
                cast_to=object,
            )
        return outputs
    if response is not None and conversation is None:
        found = await client.responses.retrieve(response)
        return outputs_for([item.to_dict() for item in found.output], results)
    raise InputError("give the id of a conversation or of a response, and not both")
