"""What a command puts out: shown as it comes, all of it, and kept up to a limit as its beginning and its end."""

from __future__ import annotations

import codecs

_SLACK_BYTES = 64 * 1024
"""The tail is cut seldom: each cut moves what is kept."""


class KeptOutput:
    """The bytes of one stream. Of more than `limit` of them, the first half and the last half of the limit are kept."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._half = limit // 2
        self._head, self._tail = bytearray(), bytearray()
        self._total = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    @property
    def truncated(self) -> bool:
        """Whether something was left out."""
        return self._total > self._limit

    def feed(self, data: bytes) -> str:
        """Take bytes, and return the text in them: what a reader is shown now."""
        self._head += data[: max(0, self._limit - self._total)]
        self._total += len(data)
        self._tail += data
        if len(self._tail) > 2 * self._half + _SLACK_BYTES:
            del self._tail[: len(self._tail) - self._half]
        return self._decoder.decode(data)

    def finish(self) -> str:
        """Return what a reader is shown last: an incomplete character."""
        return self._decoder.decode(b"", final=True)

    @property
    def text(self) -> str:
        """What is kept."""
        if not self.truncated:
            return self._head.decode("utf-8", "replace")
        beginning, end = bytes(self._head[: self._half]), bytes(self._tail[len(self._tail) - self._half :])
        return _decoded_beginning(beginning) + _gap(self._total - 2 * self._half) + _decoded_end(end)


def _gap(count: int) -> str:
    return f"\n[… {count} bytes left out …]\n" if count else ""


def _decoded_beginning(data: bytes) -> str:
    """Decode bytes that may end in the midst of a character."""
    return codecs.getincrementaldecoder("utf-8")(errors="replace").decode(data)


def _decoded_end(data: bytes) -> str:
    """Decode bytes that may begin in the midst of a character."""
    start = 0
    while start < min(3, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:].decode("utf-8", "replace")
