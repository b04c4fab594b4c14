"""One tool call of google-adk; see `calls`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator

from calls import ONE, CallPlan, Shape, plan_from_arguments, report, time_calls
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import Runner
from google.genai import types
from google_adk_turn import CALL, DONE, HI, f, session_service


class AskingModel(BaseLlm):
    """Makes as many messages and calls as it was told."""

    shape: Shape = ONE

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        messages, calls = self.shape
        made = sum(content.role == "model" for content in llm_request.contents)
        parts = [CALL.model_copy(deep=True) for _ in range(calls)] if made < messages else [DONE]
        yield LlmResponse(content=types.Content(role="model", parts=parts))


async def main(plan: CallPlan) -> None:
    sessions = session_service(plan)
    model = AskingModel(model="asking")
    runner = Runner(
        app_name="bench", agent=LlmAgent(name="a", model=model, tools=[f]), session_service=sessions,
        auto_create_session=True,
    )  # fmt: skip

    async def turn(session: str, shape: Shape) -> None:
        model.shape = shape
        async for _ in runner.run_async(user_id="u", session_id=session, new_message=HI):
            pass

    report(plan, "google-adk", await time_calls(plan.rounds, turn))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(main(plan_from_arguments(["memory", "sqlite"])))
