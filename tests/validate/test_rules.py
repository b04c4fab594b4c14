"""The table of rules is complete, and the validators do what it says."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from tests.validate import (
    test_anthropic,
    test_bedrock,
    test_chat_dialects,
    test_gemini,
    test_mistral,
    test_openai_chat,
    test_openai_responses,
)

from heaveto.core.validate import FORMATS, RULES
from heaveto.core.validate.rules import Rule

CASES: dict[str, Any] = {
    "openai": test_openai_chat,
    "openai-responses": test_openai_responses,
    "anthropic": test_anthropic,
    "gemini": test_gemini,
    "bedrock": test_bedrock,
    "mistral": test_mistral,
    "deepseek, kimi, qwen, minimax": test_chat_dialects,
}
KNOWN = {
    "openai": [f"O{number}" for number in range(20)],
    "openai-responses": [f"R{number}" for number in range(19)],
    "anthropic": [f"A{number}" for number in range(31)] + ["A1'", "A11'", "A14'"],
    "gemini": [f"G{number}" for number in range(21)],
    "bedrock": [f"B{number}" for number in range(13)],
    "mistral": [f"M{number}" for number in range(10)],
    "deepseek, kimi, qwen, minimax": [f"Q{number}" for number in range(1, 6)],
}
"""All ids there are; those that end in 0 are what the SDKs' types say of the list itself."""
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "validators.md"
ALL = [pytest.param(name, rule, id=rule.id) for name, rules in RULES.items() for rule in rules]


def refused_by_cases(module: Any) -> set[str]:
    """The ids of the rules that the test cases of a module break."""
    tables = ("BROKEN", "UNCONFIRMED", "BY_OPTION", "NOT_STORED")
    cases = [case for table in tables for case in getattr(module, table, {}).values()]
    return {case[0] for case in cases if isinstance(case[0], str)}


@pytest.mark.parametrize("name", KNOWN)
def test_every_rule_is_in_the_table(name: str) -> None:
    """Once, whether it is judged or not."""
    assert sorted(rule.id for rule in RULES[name]) == sorted(KNOWN[name])


@pytest.mark.parametrize(("name", "rule"), ALL)
def test_the_table_says_what_the_cases_show(name: str, rule: Rule) -> None:
    """What is refused has a case with its answer; what is accepted has one too, and what is not judged has none."""
    source = inspect.getsource(CASES[name])
    if rule.id in ("R4", "R12", "A13"):  # of another server, or with options: tested beside the cases
        assert f'"{rule.id}"' in source + inspect.getsource(test_chat_dialects)
    elif rule.verdict == "refused":
        assert rule.id in refused_by_cases(CASES[name])
    else:
        assert rule.id not in refused_by_cases(CASES[name])
        assert rule.verdict != "accepted" or re.search(rf"\b{re.escape(rule.id)}\b", source)


@pytest.mark.parametrize(("name", "rule"), ALL)
def test_the_options_of_the_table_exist(name: str, rule: Rule) -> None:
    """A rule that depends on the model or on what is stored names the parameter."""
    format_name = "deepseek" if "deepseek" in name else name
    assert not rule.option or rule.option in inspect.signature(FORMATS[format_name].validate).parameters


@pytest.mark.parametrize("name", RULES)
def test_unconfirmed_rules_are_only_judged_on_demand(name: str) -> None:
    """What the table calls unconfirmed no case refuses without being asked to; and the other way round."""
    evidence = {rule.id: rule.evidence for rule in RULES[name]}
    module = CASES[name]
    assert all(evidence[case[0]] != "unconfirmed" for case in module.BROKEN.values() if case[0] in evidence)
    demanded = getattr(module, "UNCONFIRMED", {}).items()
    assert [label for label, case in demanded if evidence[case[0]] == "confirmed"] == []


def test_the_page_has_the_table() -> None:
    """A row for each rule: id, what is refused, whether it is confirmed, the option."""
    text = PAGE.read_text(encoding="utf-8")
    told = [line for line in text.splitlines() if re.match(r"\| [A-Z]\d+'? \|", line)]
    assert told == [row(rule) for rules in RULES.values() for rule in rules]


def test_the_page_has_the_options() -> None:
    """A row for each, with its defaults."""
    section = PAGE.read_text(encoding="utf-8").partition("## Options")[2]
    rows: list[tuple[str, str]] = re.findall(r"^\| `(\w+)` \| (.*?) \|", section, re.MULTILINE)
    told = {option: set(defaults.split(", ")) for option, defaults in rows}
    there: dict[str, set[str]] = {}
    for form in FORMATS.values():
        for parameter in list(inspect.signature(form.validate).parameters.values())[1:]:
            default = "the format's" if parameter.name == "dialect" else f"`{parameter.default!r}`"
            there.setdefault(parameter.name, set()).add(default)
    assert told == there


def row(rule: Rule) -> str:
    """A rule as the reference page has it."""
    verdict = "" if rule.verdict == "refused" else f"*{rule.verdict}:* "
    option = f"`{rule.option}`" if rule.option else ""
    return f"| {rule.id} | {verdict}{rule.what} | {rule.evidence} | {option} |"
