# SPDX-License-Identifier: Apache-2.0
"""What a report says first: nothing of an ordinary job, and of any other what is wrong, and where."""

import copy

import pytest

from pipeline.reporting.advice import advise

LANGUAGE = {"language": "en", "tokens": 900, "oov_tokens": 0, "share_of_oov_tokens": 0.0, "premium": 1.0}
ORDINARY = {
    "headline": {"rejected": 1, "records": 1000},
    "flow": [{"what": "bytes read", "total": 5000, "parts": {"rejected bytes": 2}}],
    "rejected": {"not_json": {"count": 1}},
    "stats": {
        "oov": {
            "share_of_tokens": 0.001, "tokens": 1, "characters": 1, "characters_to_add": {"50%": 1, "95%": 1}
        },
        "tokens_made": {"cut": 1, "text": 1000},
        "sample": {"documents": 200, "documents_round_trip_but_for_spaces": 199},
    },
    "languages": {"reference": "en", "rows": [LANGUAGE, {**LANGUAGE, "language": "de", "premium": 1.4}]},
    "clock": {"slowest": [{"source": "a.jsonl", "index": 3, "seconds": 60.0, "cpu_seconds": 59.0, "speed": 0.5}]},
}  # fmt: skip


def test_of_an_ordinary_job_nothing_is_said():
    assert advise(ORDINARY) == []
    assert advise({**ORDINARY, "languages": None, "clock": None}) == []


def change(facts, path, value):
    *names, last = path.split(".")
    for name in names:
        facts = facts[int(name) if name.isdigit() else name]
    facts[int(last) if last.isdigit() else last] = value


CHANGES = {
    "many records": ({"headline.rejected": 50}, "5 % of the records were rejected, 50 of 1,000"),
    "large records": ({"flow.0.parts.rejected bytes": 2500}, "50 % of the bytes were rejected, 1 of 1,000 records"),
    "cut": ({"stats.tokens_made.cut": 20}, "2 % of the tokens of the texts were cut off by tokenizer.truncation"),
    "lost": (
        {"stats.sample.documents_round_trip_but_for_spaces": 150},
        "The tokens of 50 of 200 sampled documents do not decode to their text, even if white space and what the "
        "tokenizer normalizes are ignored; unknown tokens are a cause.",
    ),
    "dear": ({"languages.rows.1.premium": 2.04}, "A character takes 2.0 times as many tokens in de as in en."),
    "slow": (
        {"clock.slowest.0.speed": 0.1, "clock.slowest.0.cpu_seconds": 2.0},
        "Split 3, from a.jsonl, took 1:00, 10.0 times as long as is usual for its size. It waited most",
    ),
    "unknown": (
        {"stats.oov.share_of_tokens": 0.25, "stats.oov.tokens": 500, "languages.rows.1.oov_tokens": 400,
         "languages.rows.1.share_of_oov_tokens": 0.5, "stats.oov.characters_to_add": {"50%": 1234, "95%": 5678}},
        "25 % of the tokens are unknown, 80 % of them in de, where 50 % are. With 1,234 more characters "
        "in the vocabulary half of the unknown ones would be known, with 5,678 95 %; or take another tokenizer.",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "expected"), CHANGES.values(), ids=CHANGES)
def test_what_is_out_of_the_ordinary_is_said_with_its_numbers(changes, expected):
    facts = copy.deepcopy(ORDINARY)
    for path, value in changes.items():
        change(facts, path, value)
    (line,) = advise(facts)
    assert line.startswith(expected)


def test_a_few_sampled_documents_say_nothing():
    facts = copy.deepcopy(ORDINARY)
    facts["stats"]["sample"] = {"documents": 19, "documents_round_trip_but_for_spaces": 0}
    assert advise(facts) == []
    facts["stats"]["sample"]["documents"] = 20
    assert len(advise(facts)) == 1


def test_a_dear_language_is_told_only_if_it_is_known_and_not_tiny():
    facts = copy.deepcopy(ORDINARY)
    facts["languages"]["rows"] += [
        {**LANGUAGE, "language": "und", "premium": 3.0},
        {**LANGUAGE, "language": "nl", "tokens": 2, "premium": 4.0},
    ]
    assert advise(facts) == []
