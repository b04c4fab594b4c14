"""The repair of outgoing requests as a google-adk plugin, and as a callback."""

from __future__ import annotations

import logging
from collections.abc import Callable

from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events.event import Event
from google.adk.flows.llm_flows.contents import request_processor
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.genai.types import Content

from heaveto.adk.complete import Standpoint, Texts, complete
from heaveto.adk.note import with_note
from heaveto.adk.splice import carry_over

log = logging.getLogger(__name__)

INTERRUPTED = {"status": "interrupted", "error": "interrupted"}
PENDING = {"status": "pending"}
DEFAULT_TEXTS = Texts(interrupted=INTERRUPTED, pending=PENDING)


class ToolCallRepairPlugin(BasePlugin):
    """Tells the model of every call whose result was lost; changes the outgoing request and nothing else."""

    def __init__(self, *, texts: Texts = DEFAULT_TEXTS, name: str = "heaveto_tool_call_repair") -> None:
        super().__init__(name)
        self._texts = texts

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        """Repair the request; never answer it."""
        await _repair(callback_context.get_invocation_context(), llm_request, self._texts)
        return None


async def repair_tool_calls_before_model(callback_context: CallbackContext, llm_request: LlmRequest) -> None:
    """Do what `ToolCallRepairPlugin` does, as the ``before_model_callback`` of one agent."""
    await _repair(callback_context.get_invocation_context(), llm_request, DEFAULT_TEXTS)


async def _repair(context: InvocationContext, request: LlmRequest, texts: Texts) -> None:
    events = context.session.events
    at = Standpoint(context.invocation_id, context.agent.name, context.branch, context.isolation_scope)
    completed = complete(events, at, texts)
    if any(a is not b for a, b in zip(completed.events, events, strict=False)) or len(completed.events) != len(events):
        before = await _contents(context, events, request)
        after = await _contents(context, completed.events, request)
        spliced = carry_over(before, after, request.contents)
        request.contents = with_note(spliced.contents, spliced.homeless, texts)


async def _contents(context: InvocationContext, events: list[Event], request: LlmRequest) -> list[Content]:
    """Return what google-adk makes of these events for the agent that is about to ask its model."""
    session = context.session.model_copy(update={"events": events})
    draft = request.model_copy(update={"contents": []})
    async for _ in request_processor.run_async(context.model_copy(update={"session": session}), draft):
        pass
    return draft.contents
