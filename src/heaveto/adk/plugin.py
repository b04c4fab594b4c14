"""The repair of outgoing requests as a google-adk plugin, and as a callback."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType

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
from heaveto.adk.whole import made_whole
from heaveto.core.repair import Change, RepairReport
from heaveto.core.repair.rules import Why

log = logging.getLogger("heaveto.adk")
_USUAL: Texts = MappingProxyType({})


class ToolCallRepairPlugin(BasePlugin):
    """Tells the model of every call whose result was lost. It changes the outgoing request, and nothing else.

    google-adk deletes a call without a result from the request, so that the model may make it again. With this plugin
    the call stands where it was made, with a result that says what is known: that its outcome was not recorded, or
    that it waits. What providers reject besides is put right (`heaveto.repair`). A request without such a call is
    left alone; the same session gives the same request; a request that was repaired is not changed again.

    Every agent of the app is covered, those behind an ``AgentTool`` too. Place it last of the app's plugins.

    Args:
        texts: other words for what is told, by why there is no result: "unknown" or "pending".
        on_report: called with what was done, for each request that was changed. The index of a change is that of the
            event in the session; of the content in the request, where the rule is one of Gemini's.
        name: the plugin's name in the app.
    """

    def __init__(
        self,
        *,
        texts: Mapping[Why, str] = _USUAL,
        on_report: Callable[[RepairReport], None] | None = None,
        name: str = "heaveto_tool_call_repair",
    ) -> None:
        super().__init__(name)
        self._texts, self._on_report = texts, on_report

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        """Repair the request; never answer it."""
        report = await _repair(callback_context.get_invocation_context(), llm_request, self._texts)
        if report and self._on_report is not None:
            self._on_report(report)
        return None


async def repair_tool_calls_before_model(callback_context: CallbackContext, llm_request: LlmRequest) -> None:
    """Do what `ToolCallRepairPlugin` does, as the ``before_model_callback`` of one agent."""
    await _repair(callback_context.get_invocation_context(), llm_request, _USUAL)


async def _repair(context: InvocationContext, request: LlmRequest, texts: Texts) -> RepairReport:
    changes: list[Change] = []
    events = context.session.events
    completed = complete(events, _standpoint(context), texts)
    if completed.events is not None:
        before = await _contents(context, events, request)
        after, _ = made_whole(await _contents(context, completed.events, request), texts)
        spliced = carry_over(before, after, request.contents)
        contents = with_note(spliced.contents, spliced.homeless, texts)
        if any(map(_is_other, contents, request.contents)) or len(contents) != len(request.contents):
            changes += completed.changes
            request.contents = contents
    request.contents, more = made_whole(request.contents, texts)
    changes += more
    for change in changes:
        log.info("request of agent %s: %s", _standpoint(context).agent, change)
    return RepairReport("google-adk", tuple(changes))


def _is_other(a: object, b: object) -> bool:
    return a is not b


def _standpoint(context: InvocationContext) -> Standpoint:
    agent = context.agent.name if context.agent is not None else ""
    return Standpoint(context.invocation_id, agent, context.branch, context.isolation_scope)


async def _contents(context: InvocationContext, events: list[Event], request: LlmRequest) -> list[Content]:
    """Return what google-adk makes of these events for the agent that is about to ask its model."""
    session = context.session.model_copy(update={"events": events})
    draft = request.model_copy(update={"contents": []})
    async for _ in request_processor.run_async(context.model_copy(update={"session": session}), draft):
        pass
    return draft.contents
