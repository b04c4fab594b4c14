"""Server-sent events, from bytes as they arrive. Pure."""

from __future__ import annotations

_FIELDS = (b"event", b"id", b"retry")


class EventReader:
    """Collects the data of events.

    Lines end with LF or CRLF, and with nothing else: separators of Unicode may stand within a JSON text.
    """

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[bytes] = []
        self._stray: list[bytes] = []

    @property
    def stray(self) -> bytes:
        """What came outside of events: servers put an error there that they meet in mid-stream."""
        return b"\n".join(self._stray)

    def feed(self, received: bytes) -> list[bytes]:
        """Return the data of the events that are complete now."""
        *lines, rest = received.split(b"\n")
        events: list[bytes] = []
        for line in lines:
            self._line += line
            self._take(bytes(self._line).removesuffix(b"\r"), events)
            self._line.clear()
        self._line += rest
        return events

    def end(self) -> list[bytes]:
        """Return the data of the last event, where no blank line closed it."""
        events: list[bytes] = []
        self._take(bytes(self._line), events)
        self._take(b"", events)
        self._line.clear()
        return events

    def _take(self, line: bytes, events: list[bytes]) -> None:
        name, _, value = line.partition(b":")
        if not line:
            if self._data:
                events.append(b"\n".join(self._data))
            self._data.clear()
        elif name == b"data":
            self._data.append(value.removeprefix(b" "))
        elif name and name not in _FIELDS:
            self._stray.append(line)
