"""What each provider wants, as data. A strict backend of a known format is an entry here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from heaveto.core.repair import Fault, Policy
from heaveto.core.wire_kinds import ALIASES
from heaveto.core.wire_marks import Family
from heaveto.core.wire_names import COMMON_NAMES, IdRule, NameRule
from heaveto.errors import UnknownFormatError


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """A provider's wishes beyond its pairing rules. Each is explained by the rule that its comment names.

    Attributes:
        name: as `repair` takes it.
        family: the shape of its messages.
        key: where the messages stand in a request's body.
        policy: what it wants of calls and results.
        names: which tool names it takes in a history.
    """

    name: str
    family: Family
    key: str
    policy: Policy
    names: NameRule = COMMON_NAMES
    json_arguments: bool = False  # bad JSON in arguments is refused (DashScope, MiniMax)
    reasoning_content: Literal["unasked", "current turn", "always"] = "unasked"  # which turns that call must have it
    text_results: bool = False  # no images in results (O14, M9)
    starts_with_user: bool = False  # A24, B6
    ends_with_user: bool = False  # no model turn last (A12, G5, M5)
    bridged: bool = False  # no user directly behind results (M4)
    signatures: Literal["never", "if given", "given", "always"] = "never"  # on first calls of the current turn (G10)
    results_alone: bool = False  # nothing beside results (B10)
    adjacent_items: bool = False  # nothing between a call and its output, other calls excepted (R4)

    @property
    def within_turns(self) -> bool:
        """Whether a history may be parted wherever the model goes on, and not only where a user spoke before."""
        return self.signatures == "never" and self.reasoning_content != "current turn"


_LONG_NAMES = NameRule(re.compile(r"(?!)"), 200)
_GEMINI_NAMES = NameRule(re.compile(r"[^A-Za-z0-9_.:-]", re.ASCII), 128, starts_with_letter=True)
_SHORT_IDS = IdRule(re.compile(r".{1,40}", re.DOTALL))
_SIXTY_FOUR = IdRule(re.compile(r".{1,64}", re.DOTALL))


def _rules(unanswered: str, orphan: str, duplicate: str, reused: str, form: str, name: str) -> Mapping[Fault, str]:
    return {
        "unanswered": unanswered,
        "misplaced": unanswered,
        "orphan": orphan,
        "mismatch": orphan,
        "duplicate": duplicate,
        "reused": reused,
        "id": form,
        "unnamed": name,
    }


_CHAT = Policy(rules=_rules("O1", "O2", "O4", "O5", "O11", "O11"), ids=_SHORT_IDS, unique_in="turn")
_RESPONSES = Policy(rules=_rules("R1", "R3", "R8", "R8", "R10", "R10"), ids=_SIXTY_FOUR, adjacent=False)
_ANTHROPIC = Policy(
    rules=_rules("A1", "A2", "A4", "A5", "A6", "A6"), ids=IdRule(re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII))
)
_MINIMAX = Policy(rules=_ANTHROPIC.rules, ids=_SIXTY_FOUR)
_GEMINI = Policy(
    rules=_rules("G1", "G2", "G2", "G14", "G14", "G15"),
    ids=IdRule(re.compile(r".*", re.DOTALL)),
    ids_required=False,
    unique_in="turn",
    in_call_order=True,
    results_named=True,
)
_BEDROCK = Policy(
    rules=_rules("B1", "B2", "B3", "B3", "B8", "B8"),
    ids=IdRule(re.compile(r"[a-zA-Z0-9_.:-]{1,64}", re.ASCII)),
    unique_in="turn",
)
_MISTRAL = Policy(
    rules=_rules("M2", "M3", "M3", "M3", "M1", "M1"),
    ids=IdRule(re.compile(r"(?!null\Z).+", re.DOTALL), "alphanumeric"),
    unique_in="turn",
)
_MISTRAL_11 = msgspec.structs.replace(_MISTRAL, ids=IdRule(re.compile(r"[a-zA-Z0-9]{9}", re.ASCII), "alphanumeric"))


def _chat(name: str, policy: Policy = _CHAT, **wishes: Any) -> Profile:
    return Profile(name=name, family="chat", key="messages", policy=policy, text_results=True, **wishes)


_PROFILES = (
    _chat("openai"),
    _chat("deepseek", reasoning_content="current turn"),
    _chat("kimi", reasoning_content="always"),
    _chat("qwen", json_arguments=True),
    _chat("minimax", json_arguments=True),
    _chat("mistral", _MISTRAL, json_arguments=True, ends_with_user=True, bridged=True),
    _chat("mistral-11", _MISTRAL_11, json_arguments=True, ends_with_user=True, bridged=True),
    Profile(name="openai-responses", family="responses", key="input", policy=_RESPONSES),
    Profile(
        name="deepseek-responses", family="responses", key="input", adjacent_items=True,
        policy=msgspec.structs.replace(_RESPONSES, adjacent=True),
    ),
    Profile(
        name="anthropic", family="anthropic", key="messages", policy=_ANTHROPIC, names=_LONG_NAMES,
        starts_with_user=True, ends_with_user=True,
    ),
    Profile(
        name="minimax-anthropic", family="anthropic", key="messages", policy=_MINIMAX, results_alone=True,
    ),
    Profile(
        name="gemini", family="gemini", key="contents", policy=_GEMINI, names=_GEMINI_NAMES,
        signatures="if given", ends_with_user=True,
    ),
    Profile(
        name="gemini-3", family="gemini", key="contents", policy=_GEMINI, names=_GEMINI_NAMES, signatures="always",
        ends_with_user=True,
    ),
    Profile(
        name="gemini-2.5", family="gemini", key="contents", policy=_GEMINI, names=_GEMINI_NAMES, ends_with_user=True
    ),
    Profile(
        name="bedrock", family="bedrock", key="messages", policy=_BEDROCK, starts_with_user=True, ends_with_user=True
    ),
    Profile(
        name="bedrock-alone", family="bedrock", key="messages", policy=_BEDROCK, starts_with_user=True,
        ends_with_user=True, results_alone=True,
    ),
)  # fmt: skip
REGISTRY: Mapping[str, Profile] = {profile.name: profile for profile in _PROFILES}


def formats() -> tuple[str, ...]:
    """Return the names that `repair` knows, aliases left out."""
    return tuple(REGISTRY)


def profile_named(name: str) -> Profile:
    """Return a provider's profile by its name or an alias.

    Raises:
        UnknownFormatError: there is none.
    """
    known = str(name)  # anything may come from callers without a type checker
    profile = REGISTRY.get(ALIASES.get(known, known))
    if profile is None:
        raise UnknownFormatError(name, [*REGISTRY, *ALIASES])
    return profile
