"""An OpenAI Chat Completions server on loopback, for tests and demos: strict like the real one, and scripted.

async with ChatEmulator(call("refund", order=7), say("Done.")) as emulator:
    model = OpenAIChat("any", base_url=emulator.base_url)
"""

from heaveto.testing.emulator.chat import ChatEmulator
from heaveto.testing.emulator.exchange import Exchange
from heaveto.testing.emulator.thread import EmulatorThread

__all__ = ["ChatEmulator", "EmulatorThread", "Exchange"]
