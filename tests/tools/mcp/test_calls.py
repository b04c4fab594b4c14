"""What a call of a server's tool becomes: arguments, results, errors, progress, log messages, questions."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from tests.tools.mcp.conftest import Servers, call, tool
from tests.tools.mcp.witness import Host

from heaveto.errors import ConfigError, InDoubtError, RunCancelled, ToolArgumentsError, ToolsetError
from heaveto.tools.base import Reply
from heaveto.tools.mcp.failures import MCPToolError


async def test_tools_come_from_all_pages_under_names_that_providers_accept(servers: Servers) -> None:
    """Every page is read; a name that no provider takes is changed, stays unique, and its server's name is called."""
    plain = servers.plain(prefix="p_")
    await plain.open()
    names = {tool.name for tool in plain.tools}
    assert len(names) == 20 and {"p_echo", "p_visit", "p_a_b_c"} < names
    (changed,) = [name for name in names if name.startswith("p_a_b_c_")]
    stopped = asyncio.create_task(call(plain, changed))
    assert (await servers.witness.called("a.b/c"))["method"] == "tools/call"
    stopped.cancel()
    with pytest.raises((asyncio.CancelledError, InDoubtError)):
        await stopped


async def test_the_model_is_told_the_schema_of_the_server(servers: Servers) -> None:
    """Description and input schema are passed on as they are."""
    plain = servers.plain()
    await plain.open()
    declared = tool(plain, "echo").declaration()
    assert declared.description == "It can echo."
    assert declared.parameters == {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


async def test_arguments_that_do_not_fit_are_not_sent(servers: Servers) -> None:
    """The model is told what is wrong, and the server hears nothing."""
    plain = servers.plain()
    with pytest.raises(ToolArgumentsError, match="text: 5 is not of type 'string'"):
        await call(plain, "echo", text=5)
    with pytest.raises(ToolArgumentsError, match="'text' is a required property"):
        await call(plain, "echo")
    assert await call(plain, "echo", text="hi") == {"result": "hi"}
    assert servers.witness.count("tools/call") == 1


async def test_the_snapshot_stays_the_same_until_the_server_says_that_it_changed(servers: Servers) -> None:
    """`tools` is the same tuple from one request to the next; after list_changed the next `open` brings new ones."""
    plain = servers.plain()
    await plain.open()
    before = plain.tools
    await plain.open()
    assert plain.tools is before
    assert await call(plain, "learn") == {"result": "learnt it"}
    assert plain.tools is before
    await plain.open()
    assert {tool.name for tool in plain.tools} - {tool.name for tool in before} == {"learnt"}


async def test_a_filter_takes_names_or_a_function(servers: Servers) -> None:
    """What is not let through is not offered."""
    by_name = servers.plain(tool_filter={"echo", "fail"})
    by_function = servers.plain(tool_filter=lambda tool: tool.name.startswith("ask"))
    await asyncio.gather(by_name.open(), by_function.open())
    assert [tool.name for tool in by_name.tools] == ["echo", "fail"]
    assert [tool.name for tool in by_function.tools] == ["ask", "ask_and_withdraw", "ask_twice"]


async def test_hints_of_the_server_count_only_if_the_user_says_so(servers: Servers) -> None:
    """Repeating a call is never safe on a server's word alone; what the user says of a tool counts most."""
    careful = servers.plain(replay={"hang": "safe"}, timeout_seconds={"hang": 3.0}, on_cancel={"hang": "abandon"})
    trusting = servers.plain(trust_annotations=True, replay={"echo": "idempotent"}, timeout_seconds=2.0)
    await asyncio.gather(careful.open(), trusting.open())
    assert [tool(careful, name).replay for name in ("echo", "hang", "answer_when_cancelled")] == [
        "never",
        "safe",
        "never",
    ]
    hinted = [tool(trusting, name).replay for name in ("echo", "hang", "answer_when_cancelled")]
    assert hinted == ["idempotent", "never", "idempotent"]
    assert (tool(careful, "hang").timeout_seconds, tool(careful, "echo").timeout_seconds) == (3.0, None)
    assert (tool(careful, "hang").on_cancel, tool(careful, "echo").on_cancel) == ("abandon", "cancel")
    assert tool(trusting, "fail").timeout_seconds == 2.0


async def test_a_probe_is_nothing_that_a_server_has(servers: Servers) -> None:
    """It is refused where the toolset is made."""
    with pytest.raises(ConfigError, match="no probe"):
        servers.plain(replay={"echo": "probe"})


@pytest.mark.parametrize("options", [{"replay": "saef"}, {"replay": {"echo": "saef"}}, {"on_cancel": {"echo": "saef"}}])
async def test_an_option_that_there_is_not_is_refused(servers: Servers, options: Any) -> None:
    """For all tools or for one, it is refused where the toolset is made."""
    with pytest.raises(ConfigError, match=r"must be one of .*; not 'saef'"):
        servers.plain(**options)


async def test_what_is_no_text_is_kept_as_an_artifact(servers: Servers, host: Host) -> None:
    """The model gets a reference to a picture, and not its bytes; resources that are text stay."""
    response = await call(servers.plain(), "picture", host)
    image, note = response["parts"]
    assert response["result"] == "a dot"
    assert image == {
        "type": "image", "mime_type": "image/png", "size": 8, "artifact": "picture-call-1-1.png", "version": 0
    }  # fmt: skip
    assert note == {"type": "resource", "uri": "note://1", "text": "see above"}
    assert host.artifacts["picture-call-1-1.png"].mime_type == "image/png"


async def test_a_picture_that_cannot_be_stored_does_not_cost_the_result(servers: Servers) -> None:
    """The tool did run: the rest of its result is told, and that a part is missing."""

    class Full(Host):
        async def save_artifact(self, name: str, content: object) -> int:
            raise OSError("disk full")

    response = await call(servers.plain(), "picture", Full())
    assert response["result"] == "a dot"
    assert response["parts"][0]["problem"] == "it could not be stored: OSError"


async def test_errors_of_a_tool_and_of_the_protocol_are_told_as_they_are(servers: Servers) -> None:
    """Both are errors whose message is the server's, also with the code that the SDK uses for lost connections."""
    plain = servers.plain()
    with pytest.raises(MCPToolError, match=r"^no such table$"):
        await call(plain, "fail")
    with pytest.raises(MCPToolError, match=r"^try another day$"):
        await call(plain, "refuse")
    assert await call(plain, "echo", text="still there") == {"result": "still there"}


async def test_progress_is_recorded_a_few_times_and_at_last(servers: Servers, host: Host) -> None:
    """Each record is durable, so that a thousand notifications make few of them; the last is there, and all texts."""
    assert await call(servers.plain(), "count", host, to=1000) == {"result": "counted"}
    assert len(host.recorded) < 20
    assert host.recorded[-1] == {"progress": 1000.0, "total": 1000.0, "message": "step 1000"}
    assert "".join(map(str, host.put_out)).splitlines() == [f"step {n}" for n in range(1, 1001)]


async def test_what_the_server_logs_and_complains_of_goes_into_the_log(
    servers: Servers, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its log messages keep their severity; its stderr is logged, and never reaches our terminal."""
    caplog.set_level(logging.INFO, "heaveto.mcp")
    plain = servers.plain()
    await call(plain, "complain")
    await plain.aclose()
    assert ("heaveto.mcp.plain", logging.WARNING, "heat: brr") in caplog.record_tuples
    assert ("heaveto.mcp.plain", logging.INFO, "stderr: it is cold in here") in caplog.record_tuples
    assert "cold" not in "".join(capfd.readouterr())


# --- questions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (Reply(accepted=True, value={"size": 3}), '{"action": "accept", "content": {"size": 3}}'),
        (Reply(accepted=False), '{"action": "decline"}'),
        (Reply(accepted=True, value={"size": {"not": "flat"}}), '{"action": "decline"}'),
    ],
)
async def test_a_question_of_the_server_is_put_to_people(servers: Servers, reply: Reply, told: str) -> None:
    """Message and schema are those of the server; it gets accept with the value, or decline."""
    host = Host(reply)
    assert await call(servers.plain(), "ask", host) == {"result": told}
    ((hint, schema),) = host.asked
    assert hint == "How big?" and schema is not None and schema["required"] == ["size"]


async def test_a_question_that_cannot_be_put_is_declined(servers: Servers) -> None:
    """Where nobody can be asked, the server learns that, and the call goes on."""

    class Alone(Host):
        async def ask(self, hint: str, schema: object) -> Reply:
            raise ToolsetError("desk", "nobody there")

    assert await call(servers.plain(), "ask", Alone()) == {"result": '{"action": "decline"}'}


async def test_a_question_that_the_server_withdraws_is_not_put_any_longer(servers: Servers, host: Host) -> None:
    """Nobody has to answer it; the call ends with the server's result."""
    assert await call(servers.plain(), "ask_and_withdraw", host) == {"result": "never mind"}
    assert host.unanswered == len(host.asked)


async def test_a_stop_answers_the_question_with_cancel(servers: Servers, host: Host) -> None:
    """The server is told that nobody made a choice, and that the call is stopped."""
    plain = servers.plain()
    asking = asyncio.create_task(call(plain, "ask", host))
    await host.asking.wait()
    asking.cancel()
    assert await asking == {"result": '{"action": "cancel"}'}  # this server answers all the same, and at once
    await servers.witness.until(lambda message: message.get("result", {}).get("action") == "cancel")
    await servers.witness.got("notifications/cancelled")
    assert host.unanswered == 1


async def test_a_question_of_nobody_knows_which_call_is_declined(servers: Servers, host: Host) -> None:
    """With several calls on their way over stdio a question could be anyone's: people are not asked by guess."""
    plain = servers.plain()
    await plain.open()
    hanging = asyncio.create_task(call(plain, "hang"))
    await servers.witness.called("hang")
    assert await call(plain, "ask", host) == {"result": '{"action": "decline"}'}
    assert host.asked == []
    hanging.cancel()
    with pytest.raises((asyncio.CancelledError, InDoubtError)):
        await hanging


async def test_a_page_that_people_must_visit_first_is_put_to_them_and_the_call_made_again(servers: Servers) -> None:
    """The server refused, so that a second request repeats nothing; without consent it is not made."""
    willing, unwilling = Host(Reply(accepted=True)), Host(Reply(accepted=False))
    with pytest.raises(MCPToolError, match="not executed, because people declined: Log in"):
        await call(servers.plain(), "visit", unwilling)
    assert await call(servers.plain(), "visit", willing) == {"result": "let in"}
    assert willing.asked == [("Log in.\nhttps://example.com/login", None)]


async def test_sampling_is_not_offered(servers: Servers) -> None:
    """A server that asks for a model's answer gets an error, and was not told that it might."""
    response = await call(servers.plain(), "sample")
    assert "not supported" in response["result"].lower()
    hello = await servers.witness.got("initialize")
    assert set(hello["params"]["capabilities"]) == {"elicitation"}


async def test_a_signal_in_a_question_is_not_taken_for_an_answer(servers: Servers) -> None:
    """`RunCancelled` out of a question ends the question; the call itself is stopped by its own cancellation."""

    class Stopped(Host):
        async def ask(self, hint: str, schema: object) -> Reply:
            raise RunCancelled("run", "user")

    assert await call(servers.plain(), "ask", Stopped()) == {"result": '{"action": "cancel"}'}
