"""One turn of google-adk: two model calls and one tool, a model without latency."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.sessions.base_session_service import BaseSessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types
from measure import Plan, plan_from_arguments, report, time_turns

CALL = types.Part(function_call=types.FunctionCall(name="f", args={"x": 1}))
DONE = types.Part(text="done")
HI = types.Content(role="user", parts=[types.Part(text="hi")])


class InstantModel(BaseLlm):
    """Calls the tool once, then says that it is done."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        answered = llm_request.contents[-1].parts[0].function_response is not None
        yield LlmResponse(content=types.Content(role="model", parts=[DONE if answered else CALL]))


async def f(x: int) -> dict[str, int]:
    """Return x."""
    return {"x": x}


def session_service(plan: Plan) -> BaseSessionService:
    return InMemorySessionService() if plan.store == "memory" else SqliteSessionService(plan.path("adk.db"))


async def main(plan: Plan) -> None:
    sessions = session_service(plan)
    agent = LlmAgent(name="a", model=InstantModel(model="instant"), tools=[f])
    runner = Runner(app_name="bench", agent=agent, session_service=sessions)
    address = {"app_name": "bench", "user_id": "u", "session_id": "s"}
    await sessions.create_session(**address)

    async def turn() -> None:
        async for _ in runner.run_async(user_id="u", session_id="s", new_message=HI):
            pass

    times = await time_turns(plan.turns, turn)
    session = await sessions.get_session(**address)
    report(plan, "google-adk", len(session.events), times)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(main(plan_from_arguments(["memory", "sqlite"])))
