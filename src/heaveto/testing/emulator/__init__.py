"""OpenAI, Anthropic and Gemini on loopback, for tests and demos: strict like the real ones, and scripted.

async with Emulator(call("refund", order=7), say("Done.")) as emulator:
    client = AsyncAnthropic(base_url=emulator.anthropic_url, api_key="any")
"""

from heaveto.testing.emulator.exchange import Exchange
from heaveto.testing.emulator.server import Emulator
from heaveto.testing.emulator.thread import EmulatorThread

__all__ = ["Emulator", "EmulatorThread", "Exchange"]
