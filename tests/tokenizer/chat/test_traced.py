# SPDX-License-Identifier: Apache-2.0
"""Traced strings do what strings do, and never say that a character comes from a value that has another one there."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.tokenizer.chat.traced import Origin, Run, Traced, concat, follow, join

TEXTS = st.text(st.sampled_from("ab \n\té</"), max_size=12)
SHORT = st.text(st.sampled_from("ab \n/"), min_size=1, max_size=2)
VALUES = {Origin(i, "content"): text for i, text in enumerate(["ab a\nb ", "  b</a>b", "éa\t/"])}

OPERATIONS: list[tuple[str, Any]] = [
    ("strip", lambda s, x: s.strip()),
    ("strip chars", lambda s, x: s.strip(x)),
    ("lstrip", lambda s, x: s.lstrip("\n")),
    ("rstrip", lambda s, x: s.rstrip()),
    ("split", lambda s, x: s.split(x)),
    ("split white", lambda s, x: s.split()),
    ("split once", lambda s, x: s.split(x, 1)),
    ("split white once", lambda s, x: s.split(None, 1)),
    ("rsplit", lambda s, x: s.rsplit(x, 1)),
    ("rsplit white", lambda s, x: s.rsplit(None, 1)),
    ("splitlines", lambda s, x: s.splitlines()),
    ("splitlines keep", lambda s, x: s.splitlines(True)),
    ("partition", lambda s, x: s.partition(x)),
    ("rpartition", lambda s, x: s.rpartition(x)),
    ("replace", lambda s, x: s.replace(x, "-")),
    ("replace by nothing", lambda s, x: s.replace(x, "")),
    ("replace once", lambda s, x: s.replace(x, "--", 1)),
    ("removeprefix", lambda s, x: s.removeprefix(x)),
    ("removesuffix", lambda s, x: s.removesuffix(x)),
    ("slice", lambda s, x: s[1:-1]),
    ("slice backwards", lambda s, x: s[::-1]),
    ("character", lambda s, x: s[0] if s else ""),
    ("add", lambda s, x: s + x),
    ("add in front", lambda s, x: x + s),
    ("upper", lambda s, x: s.upper()),
    ("title", lambda s, x: s.title()),
    ("capitalize", lambda s, x: s.capitalize()),
    ("lower", lambda s, x: s.lower()),
    ("join", lambda s, x: s.join(["1", x, "2"])),
    ("str", lambda s, x: str(s)),
    ("characters", lambda s, x: [*s]),
    ("every other", lambda s, x: s[1::2]),
]


def check_runs(text: str) -> None:
    for run in text.runs if isinstance(text, Traced) else ():
        assert 0 <= run.start < run.stop <= len(text)
        value = VALUES[run.origin]
        length = run.stop - run.start
        assert text[run.start : run.stop].lower() == value[run.at : run.at + length].lower()


@st.composite
def traced_texts(draw: Any) -> Traced:
    """Texts of pieces of values and of nothing."""
    parts: list[str] = []
    for _ in range(draw(st.integers(0, 3))):
        origin = draw(st.sampled_from([*VALUES]))
        whole = Traced.whole(VALUES[origin], origin)
        start = draw(st.integers(0, len(whole)))
        parts += [whole[start : draw(st.integers(start, len(whole)))], draw(TEXTS)]
    made = concat(parts)
    return made if isinstance(made, Traced) else Traced(made)


@pytest.mark.parametrize(("name", "operation"), OPERATIONS, ids=[name for name, _ in OPERATIONS])
@given(text=traced_texts(), other=SHORT)
def test_operations_give_what_str_gives(name: str, operation: Any, text: Traced, other: str) -> None:
    plain = "".join([text, ""])
    assert type(plain) is str
    expected, found = operation(plain, other), operation(text, other)
    assert found == expected
    for each in found if isinstance(found, list | tuple) else [found]:
        check_runs(each)


@given(st.lists(traced_texts(), max_size=4), SHORT)
def test_joins_keep_every_run(texts: list[Traced], separator: str) -> None:
    made = join(separator, texts)
    assert made == separator.join("".join([text, ""]) for text in texts)
    check_runs(made)
    n = sum(len(text.runs) for text in texts)
    assert n == (len(made.runs) if isinstance(made, Traced) else 0)


def test_no_character_of_a_piece_is_lost() -> None:
    text = Traced.whole("axxxb", Origin(0, "content"))
    first, second = text.split("xx")
    assert isinstance(second, Traced)
    assert (first, second) == ("a", "xb")
    assert second.runs == (Run(0, 2, Origin(0, "content"), 3),)


@given(st.text(max_size=8) | st.text("\x7f\ue0000\\ue", max_size=8), st.booleans())
def test_json_is_traced_value_by_value(text: str, ascii_only: bool) -> None:
    origin = Origin(0, "tool_calls.0")
    value = {"b": Traced.whole(text, origin), "a": [1, None, Traced.whole("x", origin)]}
    plain = {"b": text, "a": [1, None, "x"]}

    def dumps(each: Any) -> str:
        return json.dumps(each, ensure_ascii=ascii_only, sort_keys=True)

    found = follow(value, dumps)
    assert found == dumps(plain)
    assert isinstance(found, Traced)
    parts = [found[run.start : run.stop] for run in found.runs]
    assert parts == [each for each in ("x", dumps(text)[1:-1]) if each]


@pytest.mark.parametrize(
    ("function", "runs"),
    [
        ("[%s]%s".__mod__, [(1, 4, 0), (5, 7, 1)]),
        (lambda given: "{1}{0}".format(*given), [(0, 2, 1), (2, 5, 0)]),
        (lambda given: given[0].upper() + "x", [(0, 3, 0)]),
        (lambda given: given[0].center(9), []),  # with marks it is another text
        (lambda given: given[0][::-1], []),
        (lambda given: given[0][:2], []),
    ],
)
def test_a_text_that_comes_out_in_one_piece_is_followed(function: Any, runs: list[tuple[int, int, int]]) -> None:
    texts = Traced.whole("one", Origin(0, "content")), Traced.whole("12", Origin(1, "content"))
    found = follow(texts, lambda given: function(tuple("".join([each, ""]) for each in given)))
    assert found == function(("one", "12"))
    made = found.runs if isinstance(found, Traced) else ()
    assert sorted((run.start, run.stop, run.origin.message) for run in made) == sorted(runs)


def test_a_changed_text_of_several_values_is_followed_by_each() -> None:
    text = concat([Traced.whole("a", Origin(0, "content")), "<", Traced.whole("b", Origin(1, "content"))])
    runs = (Run(0, 1, Origin(0, "content")), Run(2, 3, Origin(1, "content")))
    assert follow(text, lambda each: f"{each}!") == "a<b!"
    assert follow(text, lambda each: f"{each}!").runs == runs
    escaped = follow(text, lambda each: each.replace("<", "&lt;"))
    assert (escaped, escaped.runs[1].start) == ("a&lt;b", 5)
