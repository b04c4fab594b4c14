"""A google-adk app with a scripted model, whose requests are kept."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.apps.app import App, ResumabilityConfig
from google.adk.events.event import Event
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import BaseSessionService
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.sessions.session import Session
from google.genai import types
from pydantic import PrivateAttr

from heaveto.core.validate.gemini import validate

APP, USER, SESSION = "app", "ann", "s1"

CAN_ABORT = "abort_signal" in inspect.signature(Runner.run_async).parameters
"""Whether this google-adk can abort a run, and seals what was open then."""


class ScriptedLlm(BaseLlm):
    """Answers with the given parts, one list for each request; keeps the contents of the requests."""

    model: str = "scripted"
    _answers: list[Sequence[types.Part]] = PrivateAttr(default_factory=list)
    _requests: list[list[types.Content]] = PrivateAttr(default_factory=list)

    @classmethod
    def of(cls, *answers: Sequence[types.Part] | str, model: str = "scripted") -> ScriptedLlm:
        llm = cls(model=model)
        llm._answers = [[types.Part(text=a)] if isinstance(a, str) else a for a in answers]
        return llm

    @property
    def requests(self) -> list[list[types.Content]]:
        return self._requests

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self._requests.append([content.model_copy(deep=True) for content in llm_request.contents])
        yield LlmResponse(content=types.Content(role="model", parts=list(self._answers.pop(0))))


def call(name: str, id: str | None = None, signature: bytes | None = None, **args: Any) -> types.Part:
    return types.Part(function_call=types.FunctionCall(id=id, name=name, args=args), thought_signature=signature)


def result(name: str, id: str | None = None, **response: Any) -> types.Part:
    return types.Part(function_response=types.FunctionResponse(id=id, name=name, response=response))


def user(text: str) -> types.Content:
    return types.Content(role="user", parts=[types.Part(text=text)])


class Gate:
    """A tool that says when it is being executed, and then waits for ever."""

    def __init__(self, name: str = "pay") -> None:
        self.entered = asyncio.Event()
        self.times = 0

        async def pay(amount: int) -> dict[str, Any]:
            """Pays."""
            self.times += 1
            self.entered.set()
            await asyncio.Event().wait()
            return {"paid": amount}

        pay.__name__ = name
        self.tool = pay


class World:
    """One session of one app; runners come and go."""

    def __init__(
        self,
        agent: BaseAgent,
        *plugins: BasePlugin,
        service: BaseSessionService | None = None,
        is_resumable: bool = False,
    ) -> None:
        self.agent, self.plugins = agent, plugins
        self.service = service or InMemorySessionService()
        self.is_resumable = is_resumable

    def runner(self) -> Runner:
        app = App(
            name=APP,
            root_agent=self.agent,
            plugins=list(self.plugins),
            resumability_config=ResumabilityConfig(is_resumable=True) if self.is_resumable else None,
        )
        return Runner(app=app, session_service=self.service)

    async def session(self) -> Session:
        names = {"app_name": APP, "user_id": USER, "session_id": SESSION}
        return await self.service.get_session(**names) or await self.service.create_session(**names)

    async def run(
        self,
        message: str | types.Content | None,
        until: Callable[[Event], bool] = lambda event: False,
        **options: Any,
    ) -> list[Event]:
        """Run a turn in a runner of its own; close the stream behind the event that `until` names."""
        await self.session()
        content = user(message) if isinstance(message, str) else message
        events: list[Event] = []
        stream = self.runner().run_async(user_id=USER, session_id=SESSION, new_message=content, **options)
        async with aclosing(stream):
            async for event in stream:
                events.append(event)
                if until(event):
                    break
        return events

    async def rewind(self, *, before: str) -> None:
        await self.runner().rewind_async(user_id=USER, session_id=SESSION, rewind_before_invocation_id=before)

    async def stored(self, *events: Event) -> None:
        """Put events into the session, as a restored conversation or an earlier process has left them."""
        session = await self.session()
        for event in events:
            await self.service.append_event(session, event)

    async def stored_bytes(self) -> list[str]:
        return [event.model_dump_json() for event in (await self.session()).events]


def has_call(event: Event) -> bool:
    return bool(event.get_function_calls())


def shape(contents: Sequence[types.Content]) -> list[str]:
    """Return the contents in short: ``U:text``, ``M:pay()``, ``R:pay=unknown``."""
    return [" + ".join(_shape(content.role or "", part) for part in content.parts or ()) for content in contents]


def _shape(role: str, part: types.Part) -> str:
    if part.function_call:
        return f"M:{part.function_call.name}()"
    if part.function_response:
        response = part.function_response.response or {}
        return f"R:{part.function_response.name}={response.get('status') or response}"
    return f"{'U' if role == 'user' else 'M'}:{part.text}"


def agent(llm: BaseLlm, *tools: Any, name: str = "shop", **options: Any) -> LlmAgent:
    return LlmAgent(name=name, model=llm, tools=list(tools), **options)


def accepted(contents: Sequence[types.Content], *, signatures: bool = False) -> bool:
    """Whether Gemini takes these contents; with `signatures`, Gemini 3."""
    body = {"contents": [c.model_dump(mode="json", by_alias=True, exclude_none=True) for c in contents]}
    return validate(body, strict_unconfirmed=True, signatures=signatures) is None


def turn(author: str, *parts: types.Part, invocation: str = "e-1", **more: object) -> Event:
    role = "user" if author == "user" or any(part.function_response for part in parts) else "model"
    content = types.Content(role=role, parts=list(parts))
    return Event.model_validate({"author": author, "invocation_id": invocation, "content": content, **more})


async def next_request(world: World, llm: ScriptedLlm, message: str = "go on") -> list[types.Content]:
    """Run a turn over stored events; they stay as they are, and the request is one that Gemini takes."""
    before = await world.stored_bytes()
    await world.run(message)
    assert (await world.stored_bytes())[: len(before)] == before
    assert accepted(llm.requests[-1])
    return llm.requests[-1]
