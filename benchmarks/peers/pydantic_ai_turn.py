"""One turn of pydantic-ai: two model calls and one tool, a model without latency. It has no store of its own."""

from __future__ import annotations

import asyncio

from measure import Plan, plan_from_arguments, report, time_turns
from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel


async def ask_model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call the tool once, then say that it is done."""
    if isinstance(messages[-1].parts[-1], ToolReturnPart):
        return ModelResponse(parts=[TextPart("done")])
    return ModelResponse(parts=[ToolCallPart("f", {"x": 1})])


async def f(x: int) -> dict[str, int]:
    """Return x."""
    return {"x": x}


async def main(plan: Plan) -> None:
    agent = Agent(FunctionModel(ask_model), tools=[f])
    history: list[ModelMessage] = []

    async def turn() -> None:
        nonlocal history
        history = (await agent.run("hi", message_history=history)).all_messages()

    times = await time_turns(plan.turns, turn)
    report(plan, "pydantic-ai-slim", len(history), times)


if __name__ == "__main__":
    asyncio.run(main(plan_from_arguments(["memory"])))
