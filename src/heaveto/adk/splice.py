"""Carry changes over from what google-adk made of a session to what others have made of that since. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple, TypeAlias

from google.genai.types import Content, Part
from pydantic import BaseModel

Key: TypeAlias = tuple[object, ...]


class Spliced(NamedTuple):
    """The new contents; and the pieces that found no place in them, each with the content before it."""

    contents: list[Content]
    homeless: list[list[Content]]


def carry_over(before: Sequence[Content], after: Sequence[Content], request: Sequence[Content]) -> Spliced:
    """Apply to a request what differs between before and after.

    A piece goes where the contents around it are found again in the request, unchanged and in order; contents that
    others added or took away are left alone. A piece from a beginning that others cut off stays away, and one that is
    there already is not put there twice. Contents that nothing is done to are the same objects.
    """
    old, new, asked = [_key(c) for c in before], [_key(c) for c in after], [_key(c) for c in request]
    where, done = _found(old, asked), _found(new, asked)
    contents, homeless = list(request), list[list[Content]]()
    for start, end, new_start, new_end in reversed(_differences(old, new)):
        piece = list(after[new_start:new_end])
        first = new_start - 1 if piece and _is_answer(piece[0]) else new_start
        if _is_run([done.get(j) for j in range(first, new_end)]):
            continue
        span = _span(where, start, end)
        if span is not None:
            contents[span[0] : span[1]] = piece
        elif piece and not _is_cut_off(where, end):
            homeless.insert(0, list(after[max(new_start - 1, 0) : new_end]))
    return Spliced(contents, homeless)


def _is_answer(content: Content) -> bool:
    """Whether it belongs directly behind the content before it."""
    return any(part.function_response for part in content.parts or ())


def _span(where: dict[int, int], start: int, end: int) -> tuple[int, int] | None:
    """Return the slice of the request that stands for this slice of before; None if it cannot be told."""
    places = [where.get(i) for i in range(start, end)]
    if places:
        first, last = places[0], places[-1]
        return (first, last + 1) if first is not None and last is not None and _is_run(places) else None
    previous, following = where.get(start - 1), where.get(start)
    if previous is not None:
        return (previous + 1, previous + 1)
    return None if following is None or _is_cut_off(where, end) else (following, following)


def _is_cut_off(where: dict[int, int], end: int) -> bool:
    """Whether the request begins with a content that comes later than this piece."""
    first = min(where, default=0)
    return first > 0 and end <= first and where[first] == 0


def _is_run(places: Sequence[int | None]) -> bool:
    """Whether these are indexes that follow one another."""
    first = places[0] if places else None
    return first is not None and list(places) == list(range(first, first + len(places)))


def _found(keys: Sequence[Key], asked: Sequence[Key]) -> dict[int, int]:
    return {start + i: at + i for start, at, size in _blocks(keys, asked) for i in range(size)}


def _differences(old: Sequence[Key], new: Sequence[Key]) -> list[tuple[int, int, int, int]]:
    """Return the slices of old, and what stands for them in new."""
    found: list[tuple[int, int, int, int]] = []
    end, new_end = 0, 0
    for start, new_start, size in _blocks(old, new):
        if start > end or new_start > new_end:
            found.append((end, start, new_end, new_start))
        end, new_end = start + size, new_start + size
    return found


def _blocks(a: Sequence[Key], b: Sequence[Key]) -> list[tuple[int, int, int]]:
    """Return the runs that both have, as start, start and length; the last one is empty, at both ends.

    Long conversations differ in one place: what is equal on both sides of it needs no search.
    """
    shorter = min(len(a), len(b))
    head = next((i for i in range(shorter) if a[i] != b[i]), shorter)
    tail = next((i for i in range(shorter - head) if a[-1 - i] != b[-1 - i]), shorter - head)
    a_end, b_end = len(a) - tail, len(b) - tail
    middle = SequenceMatcher(None, a[head:a_end], b[head:b_end], autojunk=False).get_matching_blocks()
    inner = [(block.a + head, block.b + head, block.size) for block in middle if block.size]
    return [(0, 0, head), *inner, (a_end, b_end, tail), (len(a), len(b), 0)]


def _key(content: Content) -> Key:
    """Return what makes a content the same as another. The SDK's own repr shortens long values."""
    return (content.role, tuple(map(_part_key, content.parts or ())))


def _part_key(part: Part) -> Key:
    return tuple(
        (name, repr(value.model_dump(exclude_none=True)) if isinstance(value, BaseModel) else value)
        for name, value in part
        if value is not None
    )
