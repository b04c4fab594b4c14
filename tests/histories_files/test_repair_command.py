"""`heaveto repair`: what it prints, what it writes, and how it exits."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.cli.terminal import Terminal, call
from tests.histories_files.transcripts import CLAUDE_CODE, KINDS, TALK, Transcript

from heaveto.cli import replacing
from heaveto.cli.group import heaveto as group
from heaveto.histories.files import repair_file

BROKEN = CLAUDE_CODE.write(TALK[:7]) + b'{"parentUuid":"x","ty'
kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


def repair(*arguments: str | Path, given: bytes = b"") -> Result:
    return CliRunner().invoke(group, ["repair", *map(str, arguments)], input=given)


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    path = tmp_path / "session.jsonl"
    path.write_bytes(BROKEN)
    return path


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@kinds
def test_the_three_ways_agree(kind: Transcript, tmp_path: Path) -> None:
    """What is printed is what is put in place, and what --check tells of; the old file is the backup."""
    path = tmp_path / "file.jsonl"
    data = kind.write(TALK[:7]) + b'{"cut'
    path.write_bytes(data)
    printed = repair(path)
    assert (printed.exit_code, path.read_bytes()) == (0, data)
    assert repair(path, "--check").exit_code == 1
    assert path.read_bytes() == data
    assert repair(path, "--in-place").exit_code == 0
    assert path.read_bytes() == printed.stdout_bytes
    assert (tmp_path / "file.jsonl.bak").read_bytes() == data
    assert repair(path, "--check").exit_code == 0
    assert repair("-", given=data).stdout_bytes == printed.stdout_bytes
    elsewhere = tmp_path / "new.jsonl"
    assert repair("-", "--output", elsewhere, given=data).exit_code == 0
    assert elsewhere.read_bytes() == printed.stdout_bytes


@kinds
def test_a_clean_file_is_not_touched(kind: Transcript, tmp_path: Path) -> None:
    """It is printed byte by byte; in place nothing is written and there is no backup."""
    path = tmp_path / "file.jsonl"
    path.write_bytes(kind.write(TALK))
    before = path.stat()
    printed = repair(path)
    assert (printed.exit_code, printed.stdout_bytes) == (0, kind.write(TALK))
    assert repair(path, "--in-place").exit_code == repair(path, "--check").exit_code == 0
    assert (names(tmp_path), path.stat().st_ino) == (["file.jsonl"], before.st_ino)


def test_backups_are_never_written_over(broken: Path) -> None:
    """Each has a name of its own."""
    broken.with_name("session.jsonl.bak").write_text("mine")
    assert repair(broken, "--in-place").exit_code == 0
    broken.write_bytes(BROKEN + b"again")
    assert repair(broken, "--in-place").exit_code == 0
    assert names(broken.parent) == ["session.jsonl", "session.jsonl.bak", "session.jsonl.bak.1", "session.jsonl.bak.2"]
    assert broken.with_name("session.jsonl.bak").read_text() == "mine"
    assert broken.with_name("session.jsonl.bak.1").read_bytes() == BROKEN


def test_mode_and_link_are_kept(broken: Path) -> None:
    """A private file stays private, its backup too; a link stays a link to the file that it named."""
    broken.chmod(0o600)
    link = broken.with_name("latest.jsonl")
    link.symlink_to(broken.name)
    assert repair(link, "--in-place").exit_code == 0
    assert link.is_symlink()
    assert link.read_bytes() == repair_file(BROKEN).output
    for name in ("session.jsonl", "session.jsonl.bak"):
        assert stat.S_IMODE((broken.parent / name).stat().st_mode) == 0o600


def test_a_file_system_without_hard_links_gets_a_copy(broken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The backup is then a file of its own, and no older one is written over."""
    broken.with_name("session.jsonl.bak").write_text("mine")

    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(replacing.os, "link", refuse)
    assert repair(broken, "--in-place").exit_code == 0
    assert broken.with_name("session.jsonl.bak.1").read_bytes() == BROKEN
    assert broken.with_name("session.jsonl.bak").read_text() == "mine"
    assert broken.read_bytes() == repair_file(BROKEN).output


def test_a_file_that_is_written_meanwhile_is_left_alone(broken: Path) -> None:
    """An agent that still runs has appended: its line must not be lost."""
    original = replacing.Original.read(broken)
    with broken.open("ab") as file:
        file.write(b"one more\n")
    with pytest.raises(replacing.click.ClickException, match="changed meanwhile"):
        replacing.replace_file(original, b"repaired")
    assert broken.read_bytes() == BROKEN + b"one more\n"
    assert names(broken.parent) == ["session.jsonl"]


def test_the_report_tells_what_was_found_and_where(broken: Path) -> None:
    """Data goes to stdout, the report to stderr: one line for each finding, with the line of the file."""
    result = repair(broken)
    assert "a Claude Code transcript (anthropic)" in result.stderr
    assert "line 10     cut off: set aside" in result.stderr
    assert "answered Bash call_3" in result.stderr
    assert "\x1b" not in result.stderr


def test_the_report_is_there_for_machines(broken: Path) -> None:
    """--report json gives one object for each file, on stdout where the file is not."""
    report: dict[str, Any] = json.loads(repair(broken, "--check", "--report", "json").stdout)
    assert report.keys() == {
        "file", "kind", "container", "provider", "messages", "broken", "damage", "changes", "refused", "problems",
        "backup",
    }  # fmt: skip
    assert (report["kind"], report["container"], report["broken"]) == ("claude-code", "jsonl", True)
    assert report["damage"] == [
        {"kind": "truncated", "line": 10, "start": len(BROKEN) - 21, "end": len(BROKEN), "action": "set aside"}
    ]
    assert [change["call_id"] for change in report["changes"]] == ["call_2", "call_3"]
    assert json.loads(repair(broken, "--report", "json").stderr)["backup"] is None


def test_several_files_can_be_checked(broken: Path) -> None:
    """One that is broken decides the exit code."""
    clean = broken.with_name("clean.jsonl")
    clean.write_bytes(CLAUDE_CODE.write(TALK))
    assert repair(clean, clean, "--check").exit_code == 0
    assert repair(clean, broken, "--check").exit_code == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["missing.jsonl"], [], ["a.json", "b.json"], ["a.json", "--check", "--in-place"], ["-", "--in-place"],
        ["a.json", "--provider", "nobody"], ["a.json", "--check", "--output", "x"], ["notes.txt"],
    ],
)  # fmt: skip
def test_wrong_usage_exits_with_two(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that are not there, options that exclude each other, a file that holds no messages at all."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.json", "b.json"):
        Path(name).write_text("[]")
    Path("notes.txt").write_text("Buy milk.")
    assert repair(*arguments).exit_code == 2
    assert names(tmp_path) == ["a.json", "b.json", "notes.txt"]


def test_a_terminal_gets_colours(broken: Path) -> None:
    """Whoever looks at it sees at once what is damage and what was done."""
    with Terminal("repair", "--check", broken, cwd=broken.parent) as terminal:
        terminal.wait_for("\x1b[33mcut off\x1b[0m: set aside")
        terminal.wait_for("no rule known here refuses the result")
        assert terminal.end() == 1
    plain = call("repair", "--check", broken)
    assert "\x1b" not in plain.stdout + plain.stderr


def test_the_report_begins_in_a_line_of_its_own(tmp_path: Path) -> None:
    """Where both go to a terminal and the file ends without a line end, the report is not glued to it."""
    path = tmp_path / "talk.json"
    path.write_text('[{"role": "user", "content": "Hi."}]')
    with Terminal("repair", path, cwd=tmp_path) as terminal:
        terminal.wait_for('"Hi."}]\r\n')
        assert terminal.end() == 0


def test_messages_under_a_wrong_name_stay_as_they_are(tmp_path: Path) -> None:
    """Nothing is dropped because somebody named the wrong provider; the report names the right one."""
    path = tmp_path / "talk.json"
    call = {"id": "c1", "type": "function", "function": {"name": "pay", "arguments": "{}"}}
    path.write_text(json.dumps([{"role": "user", "content": "Pay."}, {"role": "assistant", "tool_calls": [call]}]))
    before = path.read_bytes()
    done = repair("--provider", "anthropic", "--in-place", path)
    assert (done.exit_code, path.read_bytes()) == (1, before)
    assert "say provider='openai'" in done.stdout


def test_standard_input_may_hold_anything() -> None:
    """Bytes that are no UTF-8 go through as they are where they are not part of what is repaired."""
    result = repair("-", given=b"\xff\xfe\0\0")
    assert (result.exit_code, result.stdout_bytes) == (2, b"\xff\xfe\0\0")
