"""What is said for one call: its request, what the server asks back and is told, until there is a result."""

from __future__ import annotations

import asyncio
from functools import partial

from mcp.client import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types import (
    URL_ELICITATION_REQUIRED,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    ElicitationRequiredErrorData,
    ElicitRequest,
    ElicitRequestParams,
    ElicitResult,
    InputRequiredResult,
    InputResponses,
)

from heaveto.events.contents import Json
from heaveto.tools.mcp.call import ANSWERS, Call, CallAnswer, Progress, Question
from heaveto.tools.mcp.failures import MCPToolError

_MAX_ROUNDS = 10
"""So often a server may ask for further input before it answers a call."""
_ASK_AGAIN_SECONDS = 0.25


async def exchange(session: ClientSession, call: Call, args: dict[str, Json]) -> CallToolResult:
    """Ask the server, and answer what it asks back, until there is a result. If cancelled, the server is told to stop.

    Raises:
        MCPToolError: it wants what is not offered or what people declined, or comes to no result.
        MCPError: it refused, or the connection was lost.
    """
    responses: InputResponses | None = None
    state: str | None = None
    for _ in range(_MAX_ROUNDS):
        params = CallToolRequestParams(name=call.tool, arguments=args, input_responses=responses, request_state=state)
        answer = await _send(session, call, params)
        if isinstance(answer, CallToolResult):
            return answer
        if answer is not None:
            responses, state = await _inputs(call, answer), answer.request_state
    raise MCPToolError(f"the server asked for further input {_MAX_ROUNDS} times and did not come to a result")


async def put(call: Call, params: ElicitRequestParams) -> ElicitResult:
    """Hand a question to the run, and return the answer. Cancelled: the server has withdrawn it."""
    if call.caller is None:
        return ElicitResult(action="cancel")
    question = Question(params)
    call.caller.asked(question)
    return await question.answer


async def _send(session: ClientSession, call: Call, params: CallToolRequestParams) -> CallAnswer | None:
    """Return the server's answer; None if it refused because people had to visit a page first, and they agreed."""
    try:
        return await session.send_request(
            CallToolRequest(params=params), ANSWERS, progress_callback=partial(_progressed, call)
        )
    except MCPError as error:
        if error.code != URL_ELICITATION_REQUIRED:
            raise
        pages = ElicitationRequiredErrorData.model_validate(error.data).elicitations
    for page in pages:
        if (await put(call, page)).action != "accept":
            raise MCPToolError(f"it was not executed, because people declined: {page.message}")
    return None


async def _inputs(call: Call, answer: InputRequiredResult) -> InputResponses | None:
    if not answer.input_requests:
        await asyncio.sleep(_ASK_AGAIN_SECONDS)  # the server only wants to be asked again
        return None
    responses: InputResponses = {}
    for key, request in answer.input_requests.items():
        if not isinstance(request, ElicitRequest):
            raise MCPToolError(f"the server wants {request.method}, which is not offered")
        responses[key] = await put(call, request.params)
    return responses


async def _progressed(call: Call, progress: float, total: float | None, message: str | None) -> None:
    if call.caller is not None:
        call.caller.progressed(Progress(progress, total, message))
