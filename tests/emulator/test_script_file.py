"""Scripts as files."""

from __future__ import annotations

import pytest

from heaveto.errors import InputError
from heaveto.testing.script import call, cut, delay, fault, finish, hang, raw_call, say, think, usage
from heaveto.testing.script_file import read_steps

LINES = """
"Hello."
{"call": "refund", "args": {"order": 7}}
[{"think": "Hm.", "signature": "c2ln"}, {"say": "Done.", "chunks": 2}, {"usage": {"output_tokens": 3}}]
[{"raw_call": "f", "args": "{", "provider_id": "c"}, {"delay": 1}, {"finish": "length"}]
{"fault": "busy", "status": 429, "retry_after_seconds": 2}
[{"say": "x"}, {"cut": {"after_bytes": 9}}, {"hang": true}]
"""
STEPS = [
    say("Hello."),
    call("refund", order=7),
    [think("Hm.", signature="c2ln"), say("Done.", chunks=2), usage(output_tokens=3)],
    [raw_call("f", "{", provider_id="c"), delay(1.0), finish("length")],
    fault("busy", status=429, retry_after_seconds=2),
    [say("x"), cut(after_bytes=9), hang()],
]


def test_a_file_is_a_list_or_a_step_on_each_line() -> None:
    """Both say the same as the functions of a script."""
    as_list = "[" + ",".join(line for line in LINES.splitlines() if line) + "]"
    for text in (LINES, as_list):
        assert repr(read_steps(text)) == repr(STEPS)  # errors are equal to themselves alone


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('"ok"\n{"sya": "x"}', r"step 2 .* none of say, think"),
        ('"ok"\n{"say": ', "line 2"),
        ('["ok", 7]', "step 2 .* 7"),
        ('[{"say": "x", "chonks": 2}]', "step 1 of .*chonks"),
        ('[{"call": "f", "args": "{}"}]', "step 1 .* args"),
        ('[{"delay": "soon"}]', "step 1 of .*soon"),
    ],
)
def test_what_is_no_step_is_named(text: str, words: str) -> None:
    """With its number and what is wrong."""
    with pytest.raises(InputError, match=words):
        read_steps(text)
