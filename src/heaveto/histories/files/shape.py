"""What a file holds, told by its shape: whose transcript it is, and in which provider's format its messages are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from heaveto.core.json_values import objects, text
from heaveto.histories.files.document import LIST_KEYS
from heaveto.histories.files.json_text import Object

Kind: TypeAlias = Literal["claude-code", "codex", "pi", "gemini-cli", "bodies", "messages", "unknown"]

_ITEM_TYPES = frozenset(
    {"message", "reasoning", "compaction", "item_reference", "function_call", "function_call_output"}
)
_CODEX_TYPES = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
_GEMINI_CLI_TYPES = frozenset({"user", "gemini", "info", "error", "warning"})
_MODELS = {
    "mistral": ("mistral", "magistral", "codestral", "devstral", "ministral", "pixtral"),
    "deepseek": ("deepseek",),
    "kimi": ("kimi", "moonshot"),
    "qwen": ("qwen", "qwq"),
    "minimax": ("minimax",),
}


def is_codex(entry: Object) -> bool:
    """Whether this is a line of a Codex CLI rollout."""
    return text(entry.get("type")) in _CODEX_TYPES and isinstance(entry.get("payload"), dict)


def is_claude_code(entry: Object) -> bool:
    """Whether this is a message line of a Claude Code transcript, or one of its other lines that is in the chain."""
    kind = entry.get("type")
    if kind in ("user", "assistant"):
        return isinstance(entry.get("message"), dict) and isinstance(entry.get("uuid"), str)
    return isinstance(kind, str) and "parentUuid" in entry and isinstance(entry.get("uuid"), str)


def is_pi(entry: Object) -> bool:
    """Whether this is a line of a session of pi, or of an agent that is built on it, such as openclaw."""
    message = entry.get("message")
    if entry.get("type") == "message":
        return isinstance(message, dict) and "role" in message
    return isinstance(entry.get("type"), str) and "parentId" in entry and isinstance(entry.get("timestamp"), str)


def is_gemini_cli(entry: Object) -> bool:
    """Whether this is a line, or a message, of a Gemini CLI chat."""
    if isinstance(entry.get("$rewindTo"), str) or isinstance(entry.get("$set"), dict):
        return True
    if isinstance(entry.get("sessionId"), str) and isinstance(entry.get("projectHash"), str):
        return True
    return text(entry.get("type")) in _GEMINI_CLI_TYPES and isinstance(entry.get("id"), str) and "content" in entry


def is_body(entry: Object) -> bool:
    """Whether this is a request body, or holds the list of one."""
    return any(isinstance(entry.get(key), list) for key in LIST_KEYS)


def is_message(entry: Object) -> bool:
    """Whether this is a message, a content or an input item of some provider."""
    if isinstance(entry.get("role"), str) or isinstance(entry.get("parts"), list):
        return True
    kind = entry.get("type")
    return isinstance(kind, str) and (kind in _ITEM_TYPES or kind.endswith(("_call", "_call_output")))


RECOGNISERS: dict[Kind, Callable[[Object], bool]] = {
    "codex": is_codex, "claude-code": is_claude_code, "pi": is_pi, "gemini-cli": is_gemini_cli, "bodies": is_body,
    "messages": is_message,
}  # fmt: skip
_SURE: dict[Kind, Callable[[Object], bool]] = {
    **RECOGNISERS,
    "claude-code": lambda entry: is_claude_code(entry) and entry.get("type") in ("user", "assistant"),
    "pi": lambda entry: is_pi(entry) and entry.get("type") == "message",
}
"""Without the lines that other agents' files could have as well."""


def kind_of(entries: Sequence[Object]) -> Kind:
    """Return what a file of lines holds: the kind that most of its lines have, the first of those that have as many."""
    counts: dict[Kind, int] = {kind: sum(map(is_one, entries)) for kind, is_one in _SURE.items()}
    return max(counts, key=lambda kind: counts[kind]) if any(counts.values()) else "unknown"


def recogniser(kind: Kind, entries: Sequence[Object]) -> Callable[[Object], bool]:
    """Return what tells a file's own entries from parts of them."""
    if kind in RECOGNISERS:
        return RECOGNISERS[kind]
    common: set[str] = set[str](entries[0]).intersection(*entries) if entries else set()
    return lambda entry: bool(common) and common <= entry.keys()


def format_of(body: Object) -> str:
    """Return the format of the messages in a request body, or in ``{"messages": [...]}``.

    What is valid in several is taken for the first that fits: "openai", "openai-responses", "anthropic", "gemini",
    "bedrock". The profiles of Chat Completions are told by the model's name only.
    """
    marks = _body_marks(body)
    for key in LIST_KEYS:
        for item in objects(body.get(key)):
            marks += _item_marks(item)
    counts = {name: marks.count(name) for name in ("openai", "openai-responses", "anthropic", "gemini", "bedrock")}
    best = max(counts, key=lambda name: counts[name])
    return _profile(body) if best == "openai" else best


def _profile(body: Object) -> str:
    model = str(body.get("model", "")).rsplit("/", 1)[-1].lower()
    return next((name for name, begins in _MODELS.items() if model.startswith(begins)), "openai")


def _body_marks(body: Object) -> list[str]:
    marks: list[str] = []
    if isinstance(body.get("contents"), list) or "systemInstruction" in body or "generationConfig" in body:
        marks.append("gemini")
    if isinstance(body.get("input"), list):
        marks.append("openai-responses")
    if "inferenceConfig" in body or "toolConfig" in body or "modelId" in body:
        marks.append("bedrock")
    elif "system" in body or "anthropic_version" in body:
        marks.append("anthropic")
    return marks


def _item_marks(item: Object) -> list[str]:
    if isinstance(item.get("parts"), list):
        return ["gemini"]
    if "role" not in item or item.get("type") == "message":
        return ["openai-responses"] if is_message(item) else []
    if item["role"] in ("tool", "system", "developer", "function") or "tool_calls" in item or "tool_call_id" in item:
        return ["openai"]
    return [mark for block in objects(item.get("content")) for mark in _block_marks(block)]


def _block_marks(block: Object) -> list[str]:
    kind = block.get("type")
    if kind is None:
        return ["bedrock"] if block.keys() & {"text", "toolUse", "toolResult", "image", "reasoningContent"} else []
    if kind in ("image_url", "input_audio", "file", "refusal"):
        return ["openai"]
    if kind in ("input_text", "output_text", "input_image", "input_file"):
        return ["openai-responses"]
    anthropic = ("tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document", "server_tool_use")
    return ["anthropic"] if kind in anthropic else []
