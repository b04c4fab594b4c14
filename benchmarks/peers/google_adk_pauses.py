"""One answer to a waiting call of google-adk; see `pauses`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator

from google.adk.agents import LlmAgent
from google.adk.apps import App, ResumabilityConfig
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools import LongRunningFunctionTool
from google.genai import types
from google_adk_turn import CALL, DONE, HI
from pauses import PausePlan, plan_from_arguments, report, time_answers


class NotingModel(BaseLlm):
    """Calls the tool once, notes when it is asked again, and says that it is done."""

    asked_at: float = 0.0

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self.asked_at = time.perf_counter()
        answered = llm_request.contents[-1].parts[0].function_response is not None
        part = DONE if answered else CALL.model_copy(deep=True)
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


async def f(x: int) -> None:
    """Return x."""


async def main(plan: PausePlan) -> None:
    sessions = InMemorySessionService() if plan.store == "memory" else SqliteSessionService(plan.path("adk.db"))
    model = NotingModel(model="noting")
    agent = LlmAgent(name="a", model=model, tools=[LongRunningFunctionTool(f)])
    app = App(name="bench", root_agent=agent, resumability_config=ResumabilityConfig(is_resumable=True))
    runner = Runner(app=app, session_service=sessions, auto_create_session=True)

    async def answer(session: str) -> float:
        call, invocation = None, None
        async for event in runner.run_async(user_id="u", session_id=session, new_message=HI):
            for part in event.content.parts if event.content else ():
                call = part.function_call or call
            invocation = event.invocation_id
        response = types.FunctionResponse(id=call.id, name="f", response={"x": 1})
        message = types.Content(role="user", parts=[types.Part(function_response=response)])
        begun = time.perf_counter()
        async for _ in runner.run_async(user_id="u", session_id=session, invocation_id=invocation, new_message=message):
            pass
        if model.asked_at < begun:
            raise RuntimeError("the model was not asked again")
        return model.asked_at - begun

    report(plan, "google-adk", await time_answers(plan.rounds, answer))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(main(plan_from_arguments()))
