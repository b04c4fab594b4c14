"""Repairing a whole file: what it is, what can be read of it, and what becomes of its messages."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from heaveto.histories.files.claude_code import CLAUDE_CODE
from heaveto.histories.files.codex import CODEX
from heaveto.histories.files.damage import Damage, decoded, encoded
from heaveto.histories.files.document import Document, read_document
from heaveto.histories.files.json_text import Object, parsed
from heaveto.histories.files.lines import BOM, Lines, RawLine, raw_lines, read_lines
from heaveto.histories.files.pairing import known_format
from heaveto.histories.files.pi import PI
from heaveto.histories.files.plain import (
    repair_body_lines,
    repair_chat_document,
    repair_chat_lines,
    repair_document,
    repair_message_lines,
)
from heaveto.histories.files.report import FileRepair, Repaired
from heaveto.histories.files.shape import Kind, format_of, is_gemini_cli, is_message, kind_of, recogniser
from heaveto.histories.files.thread import Agent
from heaveto.histories.files.transcript import repair_transcript

_AGENTS: dict[Kind, Agent] = {"claude-code": CLAUDE_CODE, "codex": CODEX, "pi": PI}
_APPENDED: tuple[Kind, ...] = ("claude-code", "codex", "pi", "gemini-cli")
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_PACKED = {
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "zip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ\x00": "xz",
    b"BZh": "bzip2",
}
_NO_MESSAGES = "no messages were found in it"


def repair_file(data: bytes, provider: str | None = None) -> FileRepair:
    """Repair a dump of messages, a request body or an agent's transcript, given as the bytes of its file.

    The format of the messages is told by their shape unless `provider` names it. Only what is wrong is changed: the
    output is `data` itself where nothing is, and each line or element that needs no change keeps its bytes. Damaged
    places cost what is damaged, no more; they are reported. Never raises for what a file holds. Takes some times the
    size of the file in memory.

    Raises:
        UnknownFormatError: there is no format of this name.
    """
    if provider is not None:
        provider = known_format(provider)
    packed = next((name for magic, name in _PACKED.items() if data.startswith(magic)), None)
    if packed is not None:
        return _unknown(data, f"it is compressed ({packed}); unpack it first")
    if data.startswith(_UTF16):
        return _unknown(data, "it is UTF-16, not UTF-8; convert it first")
    lines = raw_lines(data)
    if not _is_lines(lines):
        lines = []  # the one line of a document holds all of it
        body = decoded(data.removeprefix(BOM))
        document = read_document(body)
        if document is not None and (document.elements or not document.damage):
            return _repaired_document(data, document, provider)
    return _repaired_lines(data, lines or raw_lines(data), provider)


def _is_lines(lines: list[RawLine]) -> bool:
    """Whether a file is one of lines: more than one object, each in a line, or one that only such files have."""
    filled = [line for line in lines if not line.is_blank]
    values = [value for line in filled if (value := line.value) is not None]
    if not filled or not values:
        return False
    if len(filled) == 1:
        kind = kind_of(values)
        return kind not in ("bodies", "unknown") and not (kind == "gemini-cli" and "messages" in values[0])
    if filled[0].text.lstrip().startswith("["):
        return len(values) > 1 and len(values) * 2 > len(filled)
    return len(values) * 2 >= len(filled) or not filled[0].text.lstrip().startswith("{")


def _unknown(data: bytes, problem: str) -> FileRepair:
    return FileRepair("unknown", "json", "", 0, data, problems=(problem,))


def _repaired_document(data: bytes, document: Document, provider: str | None) -> FileRepair:
    done = Repaired()
    elements = [cast("Object", element.value) for element in document.elements]
    if elements and document.key == "messages" and not any("role" in element for element in elements):
        kind: Kind = "gemini-cli" if any(map(is_gemini_cli, elements)) else "bodies"
    else:
        kind = "messages" if document.key is None else "bodies"
    if kind == "gemini-cli":
        provider, text = "gemini", repair_chat_document(document, done)
    else:
        provider = provider or format_of({"messages": elements} if document.key is None else document.body())
        text = repair_document(document, provider, done)
    damage = list(document.damage)
    if data.startswith(BOM):
        size = len(BOM)
        damage = [replace(one, start=one.start + size, end=one.end + size) for one in damage]
        damage.insert(0, Damage("byte-order-mark", 1, 0, size, "removed"))
    problems = [*done.problems, *_unreadable(text)]
    output = encoded(text) if damage or done.changes else data
    return FileRepair(
        kind, "json", provider, done.messages, output, tuple(damage), tuple(done.changes), tuple(done.refused),
        tuple(problems),
    )  # fmt: skip


def _unreadable(text: str) -> list[str]:
    """Say so if the result is no JSON: never claim more than is known."""
    try:
        parsed(text)
    except ValueError as error:
        return [f"what could be saved is still no JSON document: {error}"]
    return []


def _repaired_lines(data: bytes, raw: list[RawLine], provider: str | None) -> FileRepair:
    values = [value for line in raw if (value := line.value) is not None]
    kind = kind_of(values)
    agent = _AGENTS.get(kind)
    ids = agent.ids if agent is not None else ("uuid", "id") if kind == "unknown" else ()
    lines = read_lines(raw, recogniser(kind, values), bom=data.startswith(BOM), ids=ids, ended=kind in _APPENDED)
    if not any(record.value is not None for record in lines.records):
        return _unknown(data, _NO_MESSAGES)
    done, provider = _repaired_kind(kind, lines, provider)
    damage = sorted(done.damage, key=lambda one: (one.line, one.start))
    output = done.output if damage or done.changes else data
    return FileRepair(
        kind, "jsonl", provider, done.messages, output, tuple(damage), tuple(done.changes), tuple(done.refused),
        tuple(done.problems),
    )  # fmt: skip


def _repaired_kind(kind: Kind, lines: Lines, provider: str | None) -> tuple[Repaired, str]:
    agent = _AGENTS.get(kind)
    if agent is not None:
        name = provider if provider is not None and kind != "pi" else agent.format
        return repair_transcript(lines, agent, name), name if kind != "pi" else ""
    values = [record.value for record in lines.records if record.value is not None]
    match kind:
        case "gemini-cli":
            return repair_chat_lines(lines), "gemini"
        case "bodies":
            return repair_body_lines(lines, provider), provider or (format_of(values[0]) if values else "")
        case "messages":
            name = provider or format_of({"messages": values})
            places = [place for place, record in enumerate(lines.records) if record.value and is_message(record.value)]
            return repair_message_lines(lines, name, places), name
        case _:
            output = b"".join(record.raw + (record.end or lines.newline) for record in lines.records)
            return Repaired(output, damage=lines.damage), ""
