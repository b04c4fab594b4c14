"""What the ids of rules stand for. Each rule is written down here, also where it cannot be judged from a body."""

from __future__ import annotations

from typing import Literal

import msgspec

Verdict = Literal["refused", "accepted", "not judged"]
Evidence = Literal["confirmed", "partly", "unconfirmed"]


class Rule(msgspec.Struct, frozen=True):
    """What a provider does with something in a history.

    `what` says with what, or, for rules that are not judged, why not. `evidence` is "confirmed" where a report, a
    document, an SDK or a library says so, "partly" where it is so for some of the cases. `option` names the parameter
    that it depends on.
    """

    id: str
    what: str
    evidence: Evidence = "confirmed"
    option: str = ""
    verdict: Verdict = "refused"


def _accepted(rule: str, what: str, evidence: Evidence = "confirmed") -> Rule:
    return Rule(rule, what, evidence, verdict="accepted")


def _not_judged(rule: str, why: str, evidence: Evidence = "confirmed") -> Rule:
    return Rule(rule, why, evidence, verdict="not judged")


OPENAI = (
    Rule("O0", "`messages` is no list of objects; a message of another format"),
    Rule("O1", "a call without its result in the tool messages right behind it"),
    Rule("O2", "a tool message that no calls stand before"),
    Rule("O3", "a result with an id that is not among those calls"),
    Rule("O4", "two results for one call"),
    Rule("O5", "one id twice in `tool_calls`", "unconfirmed"),
    _accepted("O6", "an id again in a later turn", "unconfirmed"),
    Rule("O7", "an empty list of `tool_calls`"),
    Rule("O8", "no messages"),
    Rule("O9", "`content` null or missing, but for assistant messages that call or have audio"),
    _accepted("O10", "`content` null beside `tool_calls`"),
    Rule("O11", "an id longer than 40", option="long_ids"),
    Rule("O12", "a function name that is empty, longer than 64, or has more than letters, digits, `_` and `-`"),
    _accepted("O13", "arguments that are no JSON", "partly"),
    Rule("O14", "an image in a tool message", option="images_in_results"),
    _accepted("O15", "calls without `tools`"),
    Rule("O16", "an empty list of `tools`; `tool_choice` or `parallel_tool_calls` without `tools`", "unconfirmed"),
    _accepted("O17", "an undeclared name; an assistant message first, last, or twice in a row", "unconfirmed"),
    Rule("O18", "a system message between calls and results, as O1", "unconfirmed"),
    _not_judged("O19", "reasoning with tools on some models: which, only the model's name tells", "unconfirmed"),
)
OF_CHAT_SERVERS = (
    Rule("Q1", "calls without `reasoning_content` (DeepSeek: of the current turn)", option="thinking"),
    Rule("Q2", "arguments that are no JSON; unconfirmed: that are no object (Qwen, MiniMax)", "partly"),
    Rule("Q3", "text beside results in a message (MiniMax in Anthropic's style)"),
    Rule("Q4", "a declared function without parameters (MiniMax)"),
    Rule("Q5", "a call without an id (MiniMax)"),
)
RESPONSES = (
    Rule("R0", "`input` is neither text nor a list of objects; a message of another format"),
    Rule("R1", "a `function_call` without its output", option="chain"),
    Rule("R2", "another kind of call without the output of its kind", option="chain"),
    Rule("R3", "an output without its call; unconfirmed: before its call", "partly", "chain"),
    Rule("R4", "something between calls and outputs (DeepSeek; OpenAI takes it)"),
    Rule("R5", "a reasoning item that what it led to does not follow"),
    Rule("R6", "an item with its stored id without its reasoning item", option="reasoning_model"),
    Rule("R7", "an item id twice, stored items included", option="chain"),
    Rule("R8", "two outputs for one call, or a `call_id` twice", "unconfirmed"),
    Rule("R9", "an item id with more than letters, digits, `_` and `-`; one of a call that does not begin with `fc`"),
    Rule("R10", "an id or `call_id` longer than 64"),
    Rule("R11", "a reference to an item that is not stored: 404", option="known_items"),
    Rule("R12", "an unknown `previous_response_id`", "unconfirmed", "known_responses"),
    _not_judged(
        "R13", "`encrypted_content` of another organisation or model: only the provider can read it", "unconfirmed"
    ),
    _not_judged("R14", "invented item ids: a body does not show who made an id"),
    _accepted("R15", "images in outputs"),
    _accepted("R16", "arguments that are no JSON, undeclared names, no `tools`", "partly"),
    Rule("R17", "a `tool_choice` that names no tool there is", option="additional_tools_choice"),
    Rule("R18", "a name of a call as O12: its words are those of Chat Completions", "partly"),
)
ANTHROPIC = (
    Rule("A0", "`messages` is no list of objects; a message of another format"),
    Rule("A1", "a call without its result in the next turn"),
    Rule("A1'", "the same, in older words", option="older_wording"),
    Rule("A2", "a result without its call in the turn before"),
    Rule("A3", "something before the results of a turn"),
    Rule("A4", "two results for one call"),
    Rule("A5", "one call id twice in a turn; unconfirmed: in two turns", "partly"),
    Rule("A6", "a call id with more than letters, digits, `_` and `-`; unconfirmed: longer than 64", "partly"),
    Rule("A7", "a name that is empty or longer than 200; a declared one longer than 128 or with other characters"),
    Rule("A8", "the `input` of a call is no object"),
    Rule("A9", "a message without content, but for a last one of the assistant"),
    Rule("A10", "an empty or blank text block"),
    Rule("A11", "an error without content"),
    Rule("A11'", "an image in an error"),
    Rule("A12", "an assistant message at the end", option="prefill"),
    Rule("A13", "white space at the end of a last assistant text", "unconfirmed", "prefill"),
    Rule("A14", "manual thinking, and calls under way that thinking does not lead", option="thinking"),
    Rule("A14'", "thinking disabled, and thinking in the final assistant message", option="thinking"),
    Rule("A15", "thinking that was changed, or was never the model's", option="issued_thinking"),
    Rule("A16", "thinking without its signature"),
    Rule("A17", "a call of a provider's tool without its result, and more than results behind it"),
    Rule("A18", "a result of a provider's tool without its call"),
    Rule("A19", "as A17, in a turn that calls the client's tools too"),
    Rule("A20", "a use of a tool that had to be declared: pending, advisor, referred to", option="tools_known"),
    Rule("A21", "blocks of tools without `tools`, on old models and gateways", option="tools_required"),
    _accepted("A22", "an undeclared name of the client's tools", "unconfirmed"),
    _accepted("A23", "messages of one role in a row: they are one turn"),
    Rule("A24", "an assistant message first", "unconfirmed"),
    Rule("A25", "a system message elsewhere than before an assistant turn or at the end", option="system_messages"),
    Rule("A26", "more than 4 blocks with `cache_control`, or one on thinking"),
    Rule("A27", "a call in a user message, a result in an assistant message", "unconfirmed"),
    Rule("A28", "more than 100,000 messages"),
    Rule("A29", "no messages", "unconfirmed"),
    Rule("A30", "a forced choice of tools beside manual thinking, or on some models", option="forced_choice"),
)
GEMINI = (
    Rule("G0", "`contents` is no list of objects; a message of another format"),
    Rule("G1", "another number of results than of calls in the turn before"),
    Rule("G2", "results that no calls stand right before"),
    Rule("G3", "calls that no user turn or results stand right before"),
    Rule("G4", "calls that something else follows"),
    Rule("G5", "a model turn at the end", option="prefill"),
    Rule("G6", "a content without parts", option="vertex"),
    Rule("G7", "a part without data; on Vertex, elsewhere unconfirmed: an empty text", "partly", "vertex"),
    Rule("G8", "another role than user and model"),
    Rule("G9", "text beside results", option="results_alone"),
    Rule("G10", "the first call of a step of the current turn without its signature", option="signatures"),
    _not_judged("G11", "signatures made up for sibling calls: a body does not show who made them"),
    Rule("G12", "a signature that is no base64, or never was the model's", option="issued_signatures"),
    _accepted("G13", "calls of earlier turns without signatures", "unconfirmed"),
    Rule("G14", "ids of results that are not those of the calls", "unconfirmed"),
    Rule("G15", "a call or result without a name", "unconfirmed"),
    Rule("G16", "arguments or a response that are no object; `$ref` in a response"),
    Rule("G17", "calls that the provider executed, on models before Gemini 3", option="server_calls"),
    Rule("G18", "a name that begins otherwise than with a letter or `_`, has other characters, or is longer than 128"),
    _accepted("G19", "undeclared names, no `tools`", "unconfirmed"),
    Rule("G20", "tools or an instruction beside `cachedContent`"),
)
BEDROCK = (
    Rule("B0", "what the service model does not allow: roles, lists, blocks with one member, required members"),
    Rule("B1", "a call without its result in the next message"),
    Rule("B2", "more results than calls in the message before"),
    Rule("B3", "one call id twice in a message; unconfirmed: one result id twice", "partly"),
    Rule("B4", "calls or results without `toolConfig`", option="tools_known"),
    Rule("B5", "a result without content"),
    Rule(
        "B6", "two messages of one role in a row; an assistant message first, but for Claude and Qwen", option="family"
    ),
    Rule("B7", "a blank text, a message without content"),
    Rule("B8", "an id or a name that is empty, longer than 64 or has other characters"),
    Rule("B9", "the `input` of a call is no object", "unconfirmed"),
    Rule(
        "B10",
        "text beside results or calls (Llama, Mistral); documents and video beside results (Claude)",
        option="family",
    ),
    Rule("B11", "Claude's own: A12, A14, A14'", option="family"),
    Rule("B12", "`status` of a result (Palmyra); another `toolChoice` than auto, any and tool", option="family"),
)
MISTRAL = (
    Rule("M0", "a message of another format"),
    Rule(
        "M1",
        "an id of other than 9 letters and digits (tokenizers 3 to 11); an empty one or `null` (13, 15)",
        option="version",
    ),
    Rule("M2", "another number of results than of calls before the next assistant message, or at the end"),
    Rule("M3", "ids of results that are not those of the calls, one id twice (from 11 on)", option="version"),
    Rule("M4", "tool after user; user after tool, which only the hosted API refuses", option="api"),
    Rule("M5", "an assistant message at the end without `prefix`; `prefix` elsewhere"),
    Rule("M6", "text and calls in one message (up to 3); neither", option="version"),
    Rule("M7", "a name that is empty, longer than 64, or has more than letters, digits, `_` and `-`"),
    Rule("M8", "no messages; an only message of the assistant or a tool. Calls of the first message are not counted"),
    Rule("M9", "other than text in a tool message (before 15)", option="version"),
)
RULES: dict[str, tuple[Rule, ...]] = {
    "openai": OPENAI,
    "openai-responses": RESPONSES,
    "anthropic": ANTHROPIC,
    "gemini": GEMINI,
    "bedrock": BEDROCK,
    "mistral": MISTRAL,
    "deepseek, kimi, qwen, minimax": OF_CHAT_SERVERS,
}
"""The rules of each format. The servers that speak Chat have those of OpenAI, and their own."""
