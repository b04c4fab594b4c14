"""Carry changes over from what google-adk made of a session to what others have made of that since. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from google.genai.types import Content


class Spliced(NamedTuple):
    """The new contents; and the pieces that found no place in them."""

    contents: list[Content]
    homeless: list[list[Content]]


def carry_over(before: Sequence[Content], after: Sequence[Content], request: Sequence[Content]) -> Spliced:
    """Apply to a request what differs between before and after.

    A piece goes where the contents around it are found again in the request, unchanged and in order; contents that
    others added or took away are left alone. A piece from a beginning that others cut off stays away, and one that is
    there already is not put there twice. Contents that nothing is done to are the same objects.
    """
    old, new, asked = [_key(c) for c in before], [_key(c) for c in after], [_key(c) for c in request]
    where = _found(old, asked)
    done = _found(new, asked)
    contents, homeless = list(request), list[list[Content]]()
    for tag, start, end, new_start, new_end in reversed(_opcodes(old, new)):
        if tag == "equal" or _is_run([done.get(j) for j in range(new_start, new_end)]):
            continue
        piece = list(after[new_start:new_end])
        span = _span(where, start, end)
        if span is not None:
            contents[span[0] : span[1]] = piece
        elif piece and not _is_cut_off(where, end):
            homeless.insert(0, piece)
    return Spliced(contents, homeless)


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


def _found(keys: list[str], asked: list[str]) -> dict[int, int]:
    blocks = SequenceMatcher(None, keys, asked, autojunk=False).get_matching_blocks()
    return {block.a + i: block.b + i for block in blocks for i in range(block.size)}


def _opcodes(old: list[str], new: list[str]) -> list[tuple[str, int, int, int, int]]:
    return list(SequenceMatcher(None, old, new, autojunk=False).get_opcodes())


def _key(content: Content) -> str:
    """Return what makes a content the same as another. The SDK's own repr shortens long values."""
    return repr(content.model_dump(exclude_none=True))
