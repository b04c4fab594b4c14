"""The command ``heaveto repair``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from heaveto.cli.describe import counted
from heaveto.cli.exits import FAILED, OK, USAGE
from heaveto.cli.replacing import Original, replace_file, write_file
from heaveto.histories import formats
from heaveto.histories.files import Damage, FileChange, FileRepair, Refusal, repair_file

_KINDS = {
    "claude-code": "a Claude Code transcript",
    "codex": "a Codex CLI rollout",
    "pi": "a pi session",
    "gemini-cli": "a Gemini CLI chat",
    "bodies": "request bodies",
    "messages": "a list of messages",
    "unknown": "no messages of a known form; only the text is checked for damage",
}
_DAMAGE = {
    "truncated": "cut off",
    "unreadable": "cannot be read",
    "nul-bytes": "NUL bytes",
    "glued": "several entries in one line",
    "invalid-utf8": "bytes that are no UTF-8",
    "broken-escape": "an escape that JSON does not know",
    "lone-surrogate": "half of a surrogate pair",
    "control-character": "a raw control character in a string",
    "byte-order-mark": "a byte order mark",
    "duplicate-line": "the same entry as before",
    "no-object": "not an object",
    "lost-parent": "its parent was lost",
    "no-line-end": "no line end",
}
_MOST_LINES = 40


@dataclass(frozen=True, slots=True)
class _Options:
    provider: str | None
    check: bool
    in_place: bool
    output: Path | None
    as_json: bool

    @property
    def prints_file(self) -> bool:
        """Whether the repaired file goes to stdout, and the report therefore to stderr."""
        return not (self.check or self.in_place or self.output)


@click.command("repair")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True), metavar="FILE...")
@click.option(
    "--provider", help=f"The format of the messages, where their shape does not tell: {', '.join(formats())}."
)
@click.option("--check", is_flag=True, help="Only look; exit with 1 if something is broken.")
@click.option("--in-place", is_flag=True, help="Replace the file; keep the old one as FILE.bak.")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Write the repaired file there.")
@click.option("--report", type=click.Choice(["text", "json"]), default="text", help="How to tell what was found.")
def command(
    files: tuple[Path, ...], provider: str | None, check: bool, in_place: bool, output: Path | None, report: str
) -> None:
    """Repair a dump of messages or an agent's transcript, so that its provider accepts it again.

    FILE is JSON or JSONL; - is stdin. The repaired file is printed, and what was done goes to stderr. What needs no
    repair keeps its bytes. The exit code is 1 if the result would still be refused, and with --check if anything is
    broken.
    """
    options = _Options(provider, check, in_place, output, report == "json")
    _require_sense(files, options)
    sys.exit(max(_repair(path, options) for path in files))


def _require_sense(files: tuple[Path, ...], options: _Options) -> None:
    if options.check + options.in_place + (options.output is not None) > 1:
        raise click.UsageError("--check, --in-place and --output exclude each other")
    if len(files) > 1 and not (options.check or options.in_place):
        raise click.UsageError("several files can only be repaired with --check or --in-place")
    if options.in_place and Path("-") in files:
        raise click.UsageError("stdin cannot be replaced; leave --in-place out")
    for path in files:
        if path != Path("-"):
            _require_readable(path, options)


def _require_readable(path: Path, options: _Options) -> None:
    """Refuse what is no file; what only can be read, such as a pipe of the shell, cannot be replaced."""
    if not path.exists():
        told = f"{path} is a link to nothing" if path.is_symlink() else f"there is no file {path}"
        raise click.UsageError(told)
    if path.is_dir():
        raise click.UsageError(f"{path} is a directory; name the files in it")
    if options.in_place and not path.is_file():
        raise click.UsageError(f"{path} is no regular file and cannot be replaced; leave --in-place out")


def _repair(path: Path, options: _Options) -> int:
    """Repair one file and return the exit code."""
    try:
        original = Original.read(path) if path.is_file() and path != Path("-") else None
        data = original.data if original is not None else _read_stream(path)
        found = repair_file(data, options.provider)
        backup = None
        if options.in_place and original is not None and found.is_changed:
            backup = replace_file(original, found.output)
        elif options.output is not None:
            write_file(options.output, found.output)
        elif options.prints_file:
            sys.stdout.buffer.write(found.output)
            sys.stdout.buffer.flush()
            if sys.stdout.isatty() and not found.output.endswith(b"\n"):
                click.echo(err=True)  # the report begins in a line of its own
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror or error}") from error
    _report(path, found, backup, options)
    return _exit_code(found, options)


def _read_stream(path: Path) -> bytes:
    return sys.stdin.buffer.read() if path == Path("-") else path.read_bytes()


def _exit_code(found: FileRepair, options: _Options) -> int:
    if found.kind == "unknown" and found.problems and not found.damage:
        return USAGE
    if options.check:
        return FAILED if found.is_broken else OK
    return FAILED if found.refused or found.problems else OK


def _report(path: Path, found: FileRepair, backup: Path | None, options: _Options) -> None:
    if options.as_json:
        report: dict[str, Any] = {"file": str(path), **found.as_dict()}
        report["backup"] = str(backup) if backup is not None else None
        click.echo(json.dumps(report, ensure_ascii=False), err=options.prints_file)
        return
    for line in _lines(path, found, backup, options):
        click.echo(line, err=options.prints_file)


def _lines(path: Path, found: FileRepair, backup: Path | None, options: _Options) -> Iterator[str]:
    name = "stdin" if path == Path("-") else str(path)
    format_name = f" ({found.provider})" if found.provider else ""
    yield f"{click.style(name, bold=True)}: {_KINDS[found.kind]}{format_name}, {counted(found.messages, 'message')}"
    told = [*map(_damage_line, found.damage), *map(_change_line, found.changes)]
    told.sort(key=lambda entry: entry[0])
    for number, what in told[:_MOST_LINES]:
        yield f"  {click.style(f'line {number:<6}', dim=True)} {what}"
    if len(told) > _MOST_LINES:
        yield f"  … and {len(told) - _MOST_LINES} more; --report json lists them all"
    for refusal in found.refused:
        yield f"  {_refusal_line(refusal)}"
    for problem in found.problems:
        yield f"  {click.style('not understood', fg='red')}: {problem}"
    yield f"  {_verdict(found, backup, options)}"


def _damage_line(damage: Damage) -> tuple[int, str]:
    where = f"bytes {damage.start}–{damage.end}" if damage.end > damage.start else f"at byte {damage.start}"
    return damage.line, f"{click.style(_DAMAGE[damage.kind], fg='yellow')}: {damage.action} ({where})"


def _change_line(change: FileChange) -> tuple[int, str]:
    call = f" {click.style(change.name or '?', bold=True)} {change.call_id}".rstrip() if change.call_id else ""
    detail = f": {change.detail}" if change.detail else ""
    text = f"{click.style(change.action, fg='cyan')}{call}{detail} {click.style(f'({change.rule})', dim=True)}"
    return change.line, text


def _refusal_line(refusal: Refusal) -> str:
    return f"{click.style('still refused', fg='red')}: {refusal.violation}"


def _verdict(found: FileRepair, backup: Path | None, options: _Options) -> str:
    if not found.is_broken:
        return _green("nothing is broken, as far as is known" if found.messages else "nothing is damaged")
    parts = [
        counted(len(found.damage), "damaged place") if found.damage else "",
        counted(len(found.changes), "change") if found.changes else "",
    ]
    told = " and ".join(part for part in parts if part) or "nothing was changed"
    if options.check and found.is_changed:
        told = f"{told}{' needed' if found.changes else ''}; the file was left as it is"
    accepted = found.messages and not (found.refused or found.problems)
    verdict = _green("; no rule known here refuses the result") if accepted else ""
    kept = f"; the old file is {backup}" if backup is not None else ""
    return f"{told}{kept}{verdict}"


def _green(text: str) -> str:
    return click.style(text, fg="green")
