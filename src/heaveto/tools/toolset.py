"""Tools that come from elsewhere and are not known before someone asks: a server's, for example."""

from __future__ import annotations

from abc import ABC, abstractmethod

from heaveto.tools.base import Tool


class Toolset(ABC):
    """A source of tools. Pass it to an agent among its tools; one toolset may serve many agents and runs at once."""

    @abstractmethod
    async def open(self) -> None:
        """Connect if that was not done, and learn which tools there are. Called before each model request: be quick.

        Cancelling the caller ends its wait, and nothing else: others may use the same connection.

        Raises:
            ToolsetError: it cannot be reached.
        """

    @property
    @abstractmethod
    def tools(self) -> tuple[Tool, ...]:
        """The tools as of the last `open`: the same tuple as long as nothing has changed."""

    @abstractmethod
    async def aclose(self) -> None:
        """Disconnect. Idempotent. The runner calls it when it closes."""
