"""google-adk asked to go on from broken sessions over HTTP: ``google_adk_repair.py bare|harness|heaveto|function URL``.

As it is, with adk-agent-harness' plugin, with ours; and the function of adk-agent-harness alone.
"""

from __future__ import annotations

import asyncio
import sys
import warnings

from adk_agent_harness.tool_call_repair import ToolCallRepairPlugin, repair_dangling_tool_calls
from google import genai
from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.events import Event
from google.adk.models import Gemini
from google.adk.plugins import BasePlugin
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types
from repairing import play
from shapes import Shape
from wire_of_shapes import gemini_contents

from heaveto.adk import ToolCallRepairPlugin as OurPlugin

MODEL = "gemini-2.5-flash"


def pay(bill: int) -> dict[str, str]:
    """Pay a bill."""
    return {"result": "paid-again"}


def by_adk(url: str, plugins: list[BasePlugin]) -> None:
    model = Gemini(model=MODEL, base_url=url)

    def ask(shape: Shape) -> None:
        agent = LlmAgent(name="clerk", model=model, tools=[pay])
        app = App(name="shop", root_agent=agent, plugins=plugins)
        asyncio.run(_go_on(app, shape))

    play(ask, ids_only=False)


async def _go_on(app: App, shape: Shape) -> None:
    sessions = InMemorySessionService()
    session = await sessions.create_session(app_name="shop", user_id="u", session_id="s")
    for number, content in enumerate(gemini_contents(shape.before)):
        of_user = content["role"] == "user" and "text" in content["parts"][0]
        event = Event(
            author="user" if of_user else "clerk",
            invocation_id=f"i{number}",
            content=types.Content.model_validate(content),
        )
        await sessions.append_event(session, event)
    runner = Runner(app=app, session_service=sessions)
    new = types.Content(role="user", parts=[types.Part(text=shape.new)])
    async for _ in runner.run_async(user_id="u", session_id="s", new_message=new):
        pass


def by_function(url: str) -> None:
    client = genai.Client(api_key="none", http_options=types.HttpOptions(base_url=url))

    def ask(shape: Shape) -> None:
        contents = [types.Content.model_validate(content) for content in gemini_contents(shape.items)]
        repair_dangling_tool_calls(contents)
        client.models.generate_content(model=MODEL, contents=contents)

    play(ask, ids_only=False)


def main(how: str, url: str) -> None:
    warnings.simplefilter("ignore")
    if how == "function":
        by_function(url)
    else:
        by_adk(url, {"bare": [], "harness": [ToolCallRepairPlugin()], "heaveto": [OurPlugin()]}[how])


if __name__ == "__main__":
    main(*sys.argv[1:])
