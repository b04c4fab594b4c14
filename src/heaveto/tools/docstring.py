"""What a docstring says to a model: a description of the tool, and one of each argument.

Understood are the styles of Google (``Args:``), NumPy (``Parameters`` underlined) and Sphinx (``:param x:``). What is
not understood is left where it stands; nothing here raises.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator

import msgspec

_GOOGLE_ARGUMENTS = {"args:", "arguments:", "parameters:", "params:", "keyword args:", "keyword arguments:"}
_GOOGLE_OTHERS = {"returns:", "return:", "yields:", "yield:", "raises:", "attributes:"}
_NUMPY_ARGUMENTS = {"parameters", "other parameters"}
_NUMPY_OTHERS = {"returns", "yields", "raises", "attributes", "see also", "references"}

_GOOGLE_ENTRY = re.compile(r"(?P<names>\*{0,2}\w+)\s*(\(.*?\))?\s*:\s*(?P<text>.*)")
_NUMPY_ENTRY = re.compile(r"(?P<names>\*{0,2}\w+(\s*,\s*\*{0,2}\w+)*)\s*(:.*)?")
_SPHINX_FIELD = re.compile(r":(?P<kind>\w+)\s*(?P<what>[^:]*):\s*(?P<text>.*)")
_SPHINX_ARGUMENTS = {"param", "parameter", "arg", "argument", "key", "keyword"}
_SPHINX_OTHERS = {"type", "return", "returns", "rtype", "raise", "raises", "except", "exception", "yield", "yields"}


class Docstring(msgspec.Struct, frozen=True):
    """A docstring taken apart. `description` is the text before the first section."""

    description: str = ""
    arguments: dict[str, str] = {}


class _Block(msgspec.Struct, frozen=True):
    """A section of a docstring: lines that follow its heading."""

    style: str
    lines: tuple[str, ...]


def parse_docstring(text: str | None) -> Docstring:
    """Take a raw docstring apart. Total: text of no known style becomes the description."""
    lines = inspect.cleandoc(text or "").splitlines()
    description, *blocks = _split(lines)
    arguments: dict[str, str] = {}
    for block in blocks:
        for name, words in _entries(block):
            arguments.setdefault(name, words)
    return Docstring(_joined(description.lines), arguments)


def _split(lines: list[str]) -> list[_Block]:
    style, held, blocks = "description", list[str](), list[_Block]()
    for position, line in enumerate(lines):
        opened = _opens(line, lines[position + 1] if position + 1 < len(lines) else "")
        if opened:
            blocks.append(_Block(style, tuple(held)))
            style, held = opened, []
        if not opened or opened == "sphinx":
            held.append(line)
    return [*blocks, _Block(style, tuple(held))]


def _opens(line: str, following: str) -> str:
    """Return the style of the section that this line opens, or an empty string."""
    heading = line.rstrip().lower()
    if heading in _GOOGLE_ARGUMENTS | _GOOGLE_OTHERS:
        return "google" if heading in _GOOGLE_ARGUMENTS else "skip"
    if heading in _NUMPY_ARGUMENTS | _NUMPY_OTHERS and len(following) > 2 and set(following.strip()) == {"-"}:
        return "numpy" if heading in _NUMPY_ARGUMENTS else "skip"
    field = _SPHINX_FIELD.match(line)
    if field and field["kind"] in _SPHINX_ARGUMENTS | _SPHINX_OTHERS:
        return "sphinx" if field["kind"] in _SPHINX_ARGUMENTS else "skip"
    return ""


def _entries(block: _Block) -> Iterator[tuple[str, str]]:
    match block.style:
        case "google":
            yield from _indented(block.lines, _GOOGLE_ENTRY)
        case "numpy":
            yield from _indented(block.lines[1:], _NUMPY_ENTRY)
        case "sphinx":
            field = _SPHINX_FIELD.match(block.lines[0])
            if field and field["what"].split():
                yield field["what"].split()[-1].lstrip("*"), _flat([field["text"], *block.lines[1:]])
        case _:
            return


def _indented(lines: Iterable[str], entry: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Read entries whose continuation lines are indented deeper than their first line."""
    names, words, margin = list[str](), list[str](), None
    for line in lines:
        if not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        margin = indent if margin is None else margin
        head = entry.fullmatch(line.strip()) if indent <= margin else None
        if head is None:
            words.append(line)
            continue
        yield from _named(names, words)
        names = [name.strip().lstrip("*") for name in head["names"].split(",")]
        words = [head["text"]] if "text" in entry.groupindex else []
    yield from _named(names, words)


def _named(names: list[str], words: list[str]) -> Iterator[tuple[str, str]]:
    for name in names:
        yield name, _flat(words)


def _flat(words: Iterable[str]) -> str:
    return " ".join(" ".join(words).split())


def _joined(lines: Iterable[str]) -> str:
    return "\n".join(lines).strip()
