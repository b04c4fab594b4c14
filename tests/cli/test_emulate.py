"""``heaveto emulate`` as a user has it: a real process, real SDKs, a real Ctrl-C."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from tests.cli.terminal import CTRL_C, Terminal, call, environment, heaveto

TOOL: Any = {"type": "function", "function": {"name": "get_price", "parameters": {"type": "object"}}}


@contextmanager
def serving(*arguments: str | Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """The process, and the addresses that it printed."""
    process = subprocess.Popen(
        heaveto("emulate", *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    )
    try:
        assert process.stdout is not None
        head = "".join(iter(process.stdout.readline, "Ctrl-C ends it.\n"))
        yield process, dict(re.findall(r"export (\w+)=(\S+)", head))
    finally:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    return out, err


def test_it_answers_real_sdks_without_a_script(tmp_path: Path) -> None:
    """It calls the first tool, says what came of it, shows each request and the rule that it broke, and logs it."""
    with serving("--log", tmp_path / "log.jsonl") as (process, urls):
        with openai.OpenAI(base_url=urls["OPENAI_BASE_URL"], api_key="secret", max_retries=0) as api:
            said: list[Any] = [{"role": "user", "content": "hi"}]
            message = api.chat.completions.create(model="gpt-x", messages=said, tools=[TOOL]).choices[0].message
            assert message.tool_calls is not None
            said += [message.to_dict(), {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "3"}]
            last = api.chat.completions.create(model="gpt-x", messages=said, tools=[TOOL]).choices[0].message
            assert last.content == "The tool said: 3"
            assert api.responses.create(model="gpt-x", input="hello").output_text == "You said: hello"
            with pytest.raises(openai.BadRequestError):
                api.chat.completions.create(model="gpt-x", messages=said[:2], tools=[TOOL])
            with pytest.raises(openai.NotFoundError):
                api.files.list()
        with anthropic.Anthropic(base_url=urls["ANTHROPIC_BASE_URL"], api_key="secret") as claude:
            hello: Any = [{"role": "user", "content": "hello"}]
            answer = claude.messages.create(model="claude-x", max_tokens=9, messages=hello)
            assert answer.content[0].to_dict()["text"] == "You said: hello"
        out, err = ended(process)
    lines = out.splitlines()
    assert "\x1b" not in out and err == ""
    assert "openai           200 POST /v1/chat/completions gpt-x ✓" in lines[0]
    assert "400 POST /v1/chat/completions gpt-x ✗ O1: An assistant message with 'tool_calls'" in lines[3]
    assert "404 GET /v1/files ✗ not found" in lines[4]
    assert "anthropic        200 POST /v1/messages claude-x ✓" in lines[5]
    logged = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [entry["violation"] and entry["violation"]["rule"] for entry in logged] == [
        None,
        None,
        None,
        "O1",
        None,
        None,
    ]
    assert (logged[0]["api"], logged[0]["status"], logged[0]["end"]) == ("openai", 200, "completed")
    assert logged[0]["body"]["messages"] == said[:1]
    assert "secret" not in json.dumps(logged)


def test_it_plays_a_script(tmp_path: Path) -> None:
    """Step by step over all APIs; beyond the end a strict one refuses."""
    script = tmp_path / "script.jsonl"
    script.write_text('"One."\n{"fault": "busy", "status": 529}\n')
    with serving("--script", script, "--strict") as (process, urls):
        with openai.OpenAI(base_url=urls["OPENAI_BASE_URL"], api_key="any", max_retries=0) as api:
            assert api.responses.create(model="m", input="x").output_text == "One."
            with pytest.raises(openai.InternalServerError, match="busy"):
                api.responses.create(model="m", input="x")
            with pytest.raises(openai.BadRequestError, match="has only 2 steps"):
                api.responses.create(model="m", input="x")
        out, _ = ended(process)
    assert len(out.splitlines()) == 3


def test_wrong_use_is_told_in_one_line(tmp_path: Path) -> None:
    """A script that is none, and a port that is taken."""
    script = tmp_path / "script.json"
    script.write_text('[{"sya": "x"}]')
    done = call("emulate", "--script", script)
    assert (done.returncode, done.stdout) == (2, "")
    assert "step 1 of the script has none of say, think" in done.stderr
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = call("emulate", "--port", str(taken.getsockname()[1]))
    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot serve on port" in done.stderr and "Traceback" not in done.stderr


def test_ctrl_c_in_a_terminal_ends_it(tmp_path: Path) -> None:
    """Quietly, with the code of an interruption."""
    with Terminal("emulate", cwd=tmp_path) as terminal:
        terminal.wait_for("Ctrl-C ends it.")
        assert terminal.end_by(CTRL_C) == 130
        assert "Traceback" not in terminal.shown and "\x1b[1mGemini" in terminal.shown
