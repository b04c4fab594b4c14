"""Server-sent events from bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heaveto.models.wire.sse import EventReader

texts = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=8)


def read(*pieces: bytes) -> list[bytes]:
    reader = EventReader()
    return [*(event for piece in pieces for event in reader.feed(piece)), *reader.end()]


@given(st.lists(texts, max_size=4), st.sampled_from(["\n", "\r\n"]), st.integers(1, 9), st.booleans())
def test_events_are_the_same_however_their_bytes_arrive(
    datas: list[str], newline: str, size: int, is_closed: bool
) -> None:
    """Cut anywhere, with either end of line, with separators of Unicode within; the last one needs no blank line."""
    raw = "".join(f"event: x{newline}data: {data}{newline}{newline}" for data in datas).encode()
    raw = raw if is_closed else raw.removesuffix(newline.encode())
    pieces = [raw[start : start + size] for start in range(0, len(raw), size)]
    assert read(*pieces) == [data.encode() for data in datas]


def test_lines_of_one_event_are_joined_and_comments_are_none() -> None:
    """As the standard has it."""
    assert read(b": hello\ndata:a\ndata: b\nid: 1\nretry: 2\n\n\n\ndata: c\n\n") == [b"a\nb", b"c"]


def test_what_comes_outside_of_events_is_kept() -> None:
    """Servers put an error there that they meet in mid-stream."""
    reader = EventReader()
    assert reader.feed(b'data: a\n\n{"error":\n{"code": 503}}') == [b"a"]
    assert (reader.end(), reader.stray) == ([], b'{"error":\n{"code": 503}}')
