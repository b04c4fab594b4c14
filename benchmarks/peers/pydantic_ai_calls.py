"""One tool call of pydantic-ai; see `calls`. It has no store of its own."""

from __future__ import annotations

import asyncio

from calls import ONE, CallPlan, Shape, plan_from_arguments, report, time_calls
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai_turn import f


async def main(plan: CallPlan) -> None:
    told = ONE

    async def ask_model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        """Make as many messages and calls as it was told."""
        made = sum(isinstance(message, ModelResponse) for message in messages)
        if made == told[0]:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart("f", {"x": 1}) for _ in range(told[1])])

    agent = Agent(FunctionModel(ask_model), tools=[f])

    async def turn(session: str, shape: Shape) -> None:
        nonlocal told
        told = shape
        await agent.run("hi")

    report(plan, "pydantic-ai-slim", await time_calls(plan.rounds, turn))


if __name__ == "__main__":
    asyncio.run(main(plan_from_arguments(["memory"])))
