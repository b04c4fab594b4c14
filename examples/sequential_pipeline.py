"""Agents one after another: a writer, an editor, and a plain Python step between them.

    python examples/sequential_pipeline.py
    heaveto run examples/sequential_pipeline.py:app -m "a lighthouse"

Each agent's text goes to the session's state under its `output_key`, and from there into the next one's instruction.
"""

from __future__ import annotations

import asyncio
import os

from heaveto import AgentContext, App, BaseAgent, LlmAgent, Message, Model, OpenAIChat, Runner, SequentialAgent
from heaveto.events.contents import text_of
from heaveto.testing import ScriptedModel, say


class Count(BaseAgent):
    """An agent without a model."""

    async def run(self, ctx: AgentContext) -> None:
        """Say how long the draft is."""
        await ctx.say(f"The draft has {len(str(ctx.state['draft']).split())} words.")


def model(line: str) -> Model:
    """Return OpenAI's model where there is a key, else one that says a line."""
    return OpenAIChat("gpt-5-mini") if os.environ.get("OPENAI_API_KEY") else ScriptedModel(say(line), strict=False)


writer = LlmAgent(
    "writer", model("The lamp turns. Ships pass. Nobody waves."), instruction="Write three short sentences about it.",
    output_key="draft",
)  # fmt: skip
editor = LlmAgent(
    "editor", model("The lamp turns; ships pass; nobody waves."), instruction="Make one sentence of this: {draft}",
    output_key="final",
)  # fmt: skip
app = App("pipeline", SequentialAgent("pipeline", sub_agents=[writer, Count("count"), editor]))


async def main() -> None:
    """Run the pipeline once and print who says what."""
    async with Runner(app=app) as runner:
        async for record in runner.run_async(user_id="al", session_id="s1", new_message="a lighthouse"):
            if isinstance(record, Message):
                print(f"{record.author}: {text_of(record.parts)}")
        print("state:", await runner.state(user_id="al", session_id="s1"))


if __name__ == "__main__":
    asyncio.run(main())
