"""Servers that speak Chat Completions in their own way: DeepSeek, Kimi, Qwen (DashScope), MiniMax.

Rules of their own: Q1 thinking goes back with calls, Q2 arguments are JSON, Q3 results stand alone in their message, Q4
declared parameters are not empty, Q5 a call has an id.
"""

from __future__ import annotations

from heaveto.core.validate.chat_dialect import OPENAI_WORDS, Dialect, Words

_SHARED = {rule: OPENAI_WORDS[rule] for rule in ("O0", "O1", "O2", "O3", "O8")}
"""Every server refuses a call without its result, and a result without its call."""

_DASHSCOPE = "<400> InternalError.Algo.InvalidParameter: "

DEEPSEEK = Dialect(
    name="deepseek",
    words={
        **_SHARED,
        "O1": Words(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            "'tool_call_id'. (insufficient tool messages following tool_calls message)"
        ),
        "O2": Words("Messages with role 'tool' must be a response to a preceding message with 'tool_calls'"),
        "Q1": Words("The `reasoning_content` in the thinking mode must be passed back to the API."),
    },
    envelope={
        "error": {
            "message": "{message}",
            "type": "invalid_request_error",
            "param": None,
            "code": "invalid_request_error",
        }
    },
    reasoning="current turn",
)

KIMI = Dialect(
    name="kimi",
    words={
        **_SHARED,
        "Q1": Words(
            "thinking is enabled but reasoning_content is missing in assistant tool call message at index {index}"
        ),
    },
    envelope={"error": {"message": "{message}", "type": "invalid_request_error"}},
    reasoning="always",
)

QWEN = Dialect(
    name="qwen",
    words={
        **_SHARED,
        "O1": Words(
            f'{_DASHSCOPE}An assistant message with "tool_calls" must be followed by tool messages responding to each '
            '"tool_call_id". The following tool_call_ids did not have response messages: message[{index}].role'
        ),
        "O2": Words(
            f'{_DASHSCOPE}messages with role "tool" must be a response to a preceeding message with "tool_calls".'
        ),
        "O7": Words(f"{_DASHSCOPE}Empty tool_calls is not supported in message"),
        "Q2": Words(f'{_DASHSCOPE}The "function.arguments" parameter of the code model must be in JSON format.'),
    },
    envelope={
        "error": {
            "code": "invalid_parameter_error",
            "param": None,
            "message": "{message}",
            "type": "invalid_request_error",
        },
        "request_id": "req_emulated",
    },
)


def _minimax(words: str) -> Words:
    return Words(f"invalid params, {words} (2013)", code="invalid_prompt")


_MINIMAX_WORDS = {
    **_SHARED,
    "O1": _minimax("tool call and result not match"),
    "O1 apart": _minimax("tool call result does not follow tool call"),
    "O2": _minimax("tool call result does not follow tool call"),
    "O3": _minimax("tool result's tool id({id}) not found"),
    "Q2": _minimax("invalid function arguments json string, tool_call_id: {id}"),
    "Q4": _minimax("function parameters is empty"),
    "Q5": _minimax("tool call id is invalid"),
}
MINIMAX = Dialect(name="minimax", words=_MINIMAX_WORDS, envelope={"error": {"message": "{message}", "code": "{code}"}})
MINIMAX_ANTHROPIC = Dialect(
    name="minimax-anthropic",
    words={**_MINIMAX_WORDS, "Q3": _minimax("tool call result does not follow tool call")},
    envelope={
        "type": "error",
        "error": {"type": "bad_request_error", "message": "{message}", "http_code": "400"},
        "request_id": "req_emulated",
    },
)
