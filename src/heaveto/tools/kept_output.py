"""What a command puts out: shown as it comes, and kept up to a limit as its beginning and its end."""

from __future__ import annotations

import codecs


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
        """Take bytes, and return the text in them that is to be shown now: none behind the limit."""
        start, self._total = self._total, self._total + len(data)
        self._head += data[: max(0, self._limit - start)]
        self._tail += data
        if len(self._tail) > 2 * self._half + 65536:  # cut seldom: each cut moves what is kept
            del self._tail[: len(self._tail) - self._half]
        return self._decoder.decode(data[: max(0, self._limit - start)])

    def finish(self) -> str:
        """Return the text that is to be shown last: the end, where it was not shown."""
        rest = self._decoder.decode(b"", final=not self.truncated)
        if not self.truncated:
            return rest
        unseen = min(self._half, self._total - self._limit)
        return _gap(self._total - self._limit - unseen) + _decoded_end(self._last(unseen))

    @property
    def text(self) -> str:
        """What is kept."""
        if not self.truncated:
            return self._head.decode("utf-8", "replace")
        # An incomplete character at the cut is left out.
        beginning = codecs.getincrementaldecoder("utf-8")(errors="replace").decode(bytes(self._head[: self._half]))
        return beginning + _gap(self._total - 2 * self._half) + _decoded_end(self._last(self._half))

    def _last(self, count: int) -> bytes:
        return bytes(self._tail[len(self._tail) - count :])


def _gap(count: int) -> str:
    return f"\n[… {count} bytes left out …]\n" if count else ""


def _decoded_end(data: bytes) -> str:
    """Decode bytes that may begin in the midst of a character."""
    start = 0
    while start < min(3, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:].decode("utf-8", "replace")
