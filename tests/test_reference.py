"""The reference pages name everything that the code has, and nothing else."""

from __future__ import annotations

import dataclasses
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from heaveto import AgentContext, RepairReport, Run, Runner, errors, repair
from heaveto.core.repair import Change
from heaveto.core.repair.report import Action
from heaveto.errors import HeavetoError
from heaveto.events import contents, records
from heaveto.histories.profiles import ALIASES, formats
from heaveto.runner.application.config import BusyPolicy, RunConfig, ToolExecutionMode
from heaveto.runner.application.hooks import Point
from heaveto.stores.base import Store
from heaveto.tools.base import ToolContext

OF_THE_RUNNER = {"host", "stage", "end", "transferred"}
"""Of an agent's context: what agents and callbacks do not use."""
REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
COMMON = {field.name for field in msgspec.structs.fields(records._Record)}  # pyright: ignore[reportPrivateUsage]
PART = {"provider", "data"}
RECORDS = get_args(records.Record)
PARTS = get_args(contents.Part)
OTHERS = (
    records.SessionKey, records.Usage, records.Limits, records.ErrorInfo, records.StopReport, records.Operation,
    records.WaitingCall, records.Delta, records.Draft, contents.Content,
)  # fmt: skip


def page(name: str) -> str:
    return (REFERENCE / name).read_text(encoding="utf-8")


def section(text: str, title: str) -> str:
    """Return what stands below a heading, up to the next one."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#+ |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"no heading {title!r}"
    return found[1]


def first_column(text: str) -> list[str]:
    """Return the words in code type of the first column of each table row, without their arguments."""
    rows = [row.split("|")[1] for row in text.splitlines() if row.startswith("| ")]
    return [name for row in rows for name in re.findall(r"`(\w+)[^`]*`", row)]


def struct_fields(cls: type[Any]) -> set[str]:
    return {field.name for field in msgspec.structs.fields(cls)}


@pytest.mark.parametrize("cls", RECORDS, ids=lambda cls: cls.__name__)
def test_every_record_is_described_field_by_field(cls: type[Any]) -> None:
    """A record has a section with a row for each field of its own."""
    assert set(first_column(section(page("records.md"), cls.__name__))) == struct_fields(cls) - COMMON


def test_the_common_fields_of_records_are_described() -> None:
    """They stand in one place."""
    assert set(first_column(section(page("records.md"), "Every record"))) == COMMON


@pytest.mark.parametrize("cls", [*OTHERS, *PARTS], ids=lambda cls: cls.__name__)
def test_what_records_are_made_of_is_described(cls: type[Any]) -> None:
    """Structs within records, parts, deltas and drafts have a row for each field."""
    expected = struct_fields(cls) - (PART if cls in PARTS else set())
    assert set(first_column(section(page("records.md"), cls.__name__))) == expected


@pytest.mark.parametrize(
    ("title", "values"), [("Causes", get_args(records.Cause)), ("Call statuses", get_args(records.CallStatus))]
)
def test_the_values_of_a_union_are_described(title: str, values: tuple[str, ...]) -> None:
    """Each cause and each status has a row."""
    assert set(first_column(section(page("records.md"), title))) == set(values)


def test_run_config_is_described_with_its_defaults() -> None:
    """A row for each setting, with the default in force."""
    rows = section(page("run-config.md"), "RunConfig")
    told = dict(re.findall(r"^\| `(\w+)` \| `([^`]*)`", rows, re.MULTILINE))
    assert told == {field.name: repr(field.default) for field in dataclasses.fields(RunConfig)}


def test_modes_and_policies_are_described() -> None:
    """Each mode of executing tools, each busy policy."""
    modes = section(page("run-config.md"), "Tool execution modes")
    assert set(first_column(modes)) == set(get_args(ToolExecutionMode))
    assert all(f"`{policy}`" in page("run-config.md") for policy in get_args(BusyPolicy))


def test_every_error_is_listed() -> None:
    """A row for each error class, in the tree's order of classes below their base."""
    classes = {
        name: cls for name, cls in vars(errors).items() if inspect.isclass(cls) and issubclass(cls, HeavetoError)
    }
    listed = first_column(section(page("errors.md"), "Errors"))
    assert sorted(listed) == sorted(classes)
    place = {name: index for index, name in enumerate(listed)}
    for name, cls in classes.items():
        base = cls.__mro__[1].__name__
        assert base not in place or place[base] < place[name]


def test_the_indentation_of_errors_is_their_inheritance() -> None:
    """What stands below an error, further in, derives from it."""
    rows = re.findall(r"^\| ((?:&nbsp;&nbsp;)*)`(\w+)`", page("errors.md"), re.MULTILINE)
    parents: list[str] = []
    for indent, name in rows:
        depth = len(indent) // len("&nbsp;&nbsp;")
        parents = [*parents[:depth], name]
        if depth:
            assert vars(errors)[name].__mro__[1].__name__ == parents[depth - 1]


def test_every_point_of_plugins_is_listed() -> None:
    """A row for each method that a plugin may override."""
    points = section(page("callbacks-and-plugins.md"), "Points, in the order of a run")
    assert sorted(first_column(points)) == sorted(get_args(Point))


def test_the_tool_context_is_described() -> None:
    """A row for each public attribute and method."""
    public = {name for name in dir(ToolContext) if not name.startswith("_")}
    assert set(first_column(section(page("tools.md"), "ToolContext"))) == public


def test_the_store_interface_is_described() -> None:
    """A row for each method."""
    public = {name for name in vars(Store) if not name.startswith("_")}
    assert set(first_column(section(page("store.md"), "The store interface"))) == public


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "docs/explanation/projection.md",
        "docs/explanation/architecture.md",
        "docs/reference/validators.md",
    ],
)
def test_pages_show_what_their_programs_print(name: str, tmp_path: Path) -> None:
    """A text block right behind a program is its output, to the letter."""
    path = REFERENCE.parents[1] / name
    shown = "".join(
        re.findall(r"^```\n\n```text\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    )
    command = [sys.executable, str(REFERENCE.parents[1] / "tests/run_page.py"), str(path)]
    printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=55, check=True).stdout
    assert printed == shown


def test_the_command_line_is_described() -> None:
    """A row for each command, and in its section one for each option."""
    group = pytest.importorskip("heaveto.cli.group").heaveto
    names = list(group.list_commands(None))
    assert first_column(section(page("cli.md"), "Command line")) == names
    for name in names:
        params = [param for param in group.get_command(None, name).params if param.param_type_name == "option"]
        options = sorted(option for param in params for option in param.opts if option.startswith("--"))
        told = re.findall(r"^\| `(--[\w-]+)`", section(page("cli.md"), name), re.MULTILINE)
        assert sorted(told) == options, name


@pytest.mark.parametrize(
    "name",
    [
        "CONTRIBUTING.md",
        "docs/explanation/guarantees.md",
        "docs/explanation/architecture.md",
        "docs/explanation/the-log.md",
    ],
)
def test_the_tests_and_files_that_a_page_names_exist(name: str) -> None:
    """A promise that names the tests that hold it names real ones; a map shows what is there."""
    root = REFERENCE.parents[1]
    package = root / "src/heaveto"
    tops = "|".join(["tests", "benchmarks", *(path.name for path in package.iterdir() if path.is_dir())])
    named = re.findall(rf"`((?:{tops})/[\w/.]+)`", (root / name).read_text(encoding="utf-8"))
    assert named
    assert [path for path in named if not any((base / path).exists() for base in (root, package))] == []


def test_newcomers_are_told_where_every_package_is() -> None:
    """The table of what is where leaves none out."""
    package = REFERENCE.parents[1] / "src/heaveto"
    table = section((REFERENCE.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8"), "Where things are")
    told = set(re.findall(r"`(\w+)`", " ".join(line.split("|")[1] for line in table.splitlines() if "|" in line)))
    there = {path.parent.name for path in package.glob("*/__init__.py")}
    assert there and there - told == set()


def cited_cases() -> set[str]:
    """The ids of failure cases that sources and tests name; codes of linters look alike."""
    root = REFERENCE.parents[1]
    files = [*root.glob("src/**/*.py"), *root.glob("tests/**/*.py")]
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines() if "noqa" not in line]
    return {case for line in lines for case in re.findall(r"\bF\d{2,3}\b", line)}


def test_every_failure_case_that_is_cited_is_told() -> None:
    """Who meets an id such as F51 can look it up; what nobody cites has no row, and no id has two."""
    text = (REFERENCE.parent / "explanation/failure-cases.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| (F\d+) \|", text, re.MULTILINE)
    assert sorted(told) == sorted(cited_cases())


@pytest.mark.parametrize("place", ["src", "docs", "README.md", "examples", "benchmarks/README.md"])
def test_nothing_refers_to_what_a_user_does_not_have(place: str) -> None:
    """Notes that are not part of the repository are not quoted, as nobody could look them up."""
    root = REFERENCE.parents[1] / place
    files = [root] if root.is_file() else [file for end in ("py", "md") for file in root.glob(f"**/*.{end}")]
    private = re.compile(r"(?<![-\w])(adk|providers|engine|ecosystem|failures|DESIGN|STYLE)\.md\b|\bDESIGN\b")
    assert files and [str(file) for file in files if private.search(file.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("cls", [Runner, Run, AgentContext], ids=lambda cls: cls.__name__)
def test_the_handles_are_described(cls: type[Any]) -> None:
    """A row for each public method and property."""
    public = {name for name in dir(cls) if not name.startswith("_")} - OF_THE_RUNNER
    told = set(first_column(section(page("runner.md"), cls.__name__)))
    assert public <= told and not told & OF_THE_RUNNER
    assert told - public <= {"run_id"}  # set by the constructor


def test_repair_is_described() -> None:
    """Its options with their defaults, its formats with their other names, its report and the actions in it."""
    text = page("repair.md")
    options = inspect.signature(repair).parameters
    assert first_column(section(text, "repair"))[: len(options)] == list(options)
    rows = [row.split("|") for row in section(text, "Formats").splitlines() if row.startswith("| `")]
    assert {name for row in rows for name in re.findall("`(.+?)`", row[1])} == set(formats())
    assert {name for row in rows for name in re.findall("`(.+?)`", row[2])} == set(ALIASES)
    report = set(first_column(section(text, "RepairReport")))
    assert report == {name for cls in (RepairReport, Change) for name in dir(cls) if not name.startswith("_")}
    assert set(re.findall(r"`(\w+)`", text.partition("| `action` |")[2].partition("\n")[0])) == set(get_args(Action))
