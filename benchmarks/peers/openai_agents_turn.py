"""One turn of openai-agents: two model calls and one tool, a model without latency."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

from agents import (
    Agent,
    Model,
    ModelResponse,
    Runner,
    SQLiteSession,
    Usage,
    function_tool,
    set_tracing_disabled,
)
from measure import Plan, plan_from_arguments, report, time_turns
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

NUMBERS = count()


@function_tool
async def f(x: int) -> str:
    """Return x."""
    return str(x)


def done(number: int) -> ResponseOutputMessage:
    text = ResponseOutputText(type="output_text", text="done", annotations=[])
    return ResponseOutputMessage(
        id=f"m{number}",
        type="message",
        role="assistant",
        status="completed",
        content=[text],
    )


def call(number: int) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(
        id=f"f{number}",
        type="function_call",
        call_id=f"c{number}",
        name="f",
        arguments='{"x":1}',
    )


class InstantModel(Model):
    """Calls the tool once, then says that it is done."""

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[Any],
        *args: Any,
        **kwargs: Any,
    ) -> ModelResponse:
        answered = isinstance(input, list) and input[-1].get("type") == "function_call_output"
        number = next(NUMBERS)
        return ModelResponse(
            output=[done(number) if answered else call(number)],
            usage=Usage(),
            response_id=None,
        )

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


async def main(plan: Plan) -> None:
    agent = Agent(name="a", model=InstantModel(), tools=[f])
    session = SQLiteSession("s", ":memory:" if plan.store == "memory" else plan.path("openai.db"))
    times = await time_turns(plan.turns, lambda: Runner.run(agent, "hi", session=session))
    report(plan, "openai-agents", len(await session.get_items()), times)


if __name__ == "__main__":
    set_tracing_disabled(True)
    asyncio.run(main(plan_from_arguments(["memory", "sqlite"])))
