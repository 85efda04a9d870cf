# SPDX-License-Identifier: Apache-2.0
"""What a report says first: nothing of an ordinary job, and of any other what is wrong, and where."""

import copy

import pytest

from tokenmill.pipeline.reporting.advice import advise

LANGUAGE = {
    "language": "en", "documents": 950, "tokens": 900, "oov_tokens": 0, "share_of_oov_tokens": 0.0,
    "tokens_per_character": 0.25,
}  # fmt: skip
SOURCE = {"name": "a.jsonl", "tokens": 900, "rejected": 0, "characters_per_token": 4.0}
ORDINARY = {
    "headline": {"rejected": 1, "filtered": 90, "records": 1000, "documents": 909},
    "flow": [{"what": "bytes read", "total": 5000, "parts": {"rejected bytes": 2}}],
    "rejected": {"not_json": {"count": 1}},
    "filtered": {"other_language": 90},
    "config": {"output": {"packing": {"strategy": "concatenate"}}},
    "sources": {"rows": [SOURCE, {**SOURCE, "name": "b.txt", "characters_per_token": 3.0}]},
    "stats": {
        "vocabulary": {"pieces": {"share_of_tokens": 0.09}},
        "packing": {"split_documents": 80, "share_of_padding": 0.09},
        "text": {"steps": [{"step": "nfc", "resized": [{"language": "de", "share": -0.09}]}]},
        "oov": {
            "share_of_tokens": 0.001, "tokens": 1, "characters": 1, "characters_to_add": {"50%": 1, "95%": 1},
            "top_characters": [{"character": "z"}, {"character": "q"}],
        },
        "tokens_made": {"cut": 1, "text": 1000},
        "sample": {"documents": 200, "documents_round_trip_but_for_spaces": 199},
    },
    "languages": {"reference": "en", "rows": [LANGUAGE, {**LANGUAGE, "language": "de", "tokens_per_character": 0.37}]},
    "clock": {"slowest": [{"source": "a.jsonl", "index": 3, "seconds": 60.0, "cpu_seconds": 59.0, "speed": 0.5}]},
}  # fmt: skip


def test_of_an_ordinary_job_nothing_is_said():
    assert advise(ORDINARY) == []
    assert advise({**ORDINARY, "languages": None, "clock": None}) == []
    assert advise({**ORDINARY, "stats": {**ORDINARY["stats"], "packing": None, "text": None}}) == []


def change(facts, path, value):
    *names, last = path.split(".")
    for name in names:
        facts = facts[int(name) if name.isdigit() else name]
    facts[int(last) if last.isdigit() else last] = value


CHANGES = {
    "many records": ({"headline.rejected": 50}, "5 % of the records were rejected, 50 of 1,000"),
    "large records": ({"flow.0.parts.rejected bytes": 2500}, "50 % of the bytes were rejected, 1 of 1,000 records"),
    "cut": ({"stats.tokens_made.cut": 20}, "tokenizer.truncation: 2 % of the tokens, 20 of 1,000, are cut off"),
    "lost": (
        {"stats.sample.documents_round_trip_but_for_spaces": 150},
        "The tokens of 50 of 200 sampled documents do not decode to their text, even if white space and what the "
        "tokenizer normalizes are ignored; unknown tokens are a cause.",
    ),
    "dear": ({"languages.rows.1.tokens_per_character": 0.51}, "A character takes 2.0 times as many tokens in de as in"),
    "dear, and most of the text": (
        {"languages.reference": "de", "languages.rows.1.tokens_per_character": 1.0, "languages.rows.1.tokens": 9000},
        "A character takes 4.0 times as many tokens in de as in en.",
    ),
    "dear source": ({"sources.rows.1.characters_per_token": 1.0}, "A character takes 4.0 times as many tokens in b."),
    "pieces": ({"stats.vocabulary.pieces.share_of_tokens": 0.36}, "36 % of the tokens are pieces of characters"),
    "split": (
        {"stats.packing.split_documents": 454},
        "49.9 % of the documents, 454, are split over several sequences. A larger packing.length, or strategy: best",
    ),
    "split, though fitted": (
        {"stats.packing.split_documents": 454, "config.output.packing.strategy": "best_fit"},
        "49.9 % of the documents, 454, are split over several sequences. A larger packing.length splits fewer.",
    ),
    "windows": (
        {"stats.packing": None, "stats.windows": {"split_documents": 454}},
        "49.9 % of the documents, 454, have several windows",
    ),
    "padding": (
        {"stats.packing.share_of_padding": 0.5}, "output.packing: 50 % of the positions in packed sequences are padding"
    ),
    "filtered": (
        {"headline.filtered": 500, "filtered": {"other_language": 490, "drop": 10}},
        "50 % of the records were filtered, 500 of 1,000: 490 by other_language, 10 by drop.",
    ),
    "shorter": (
        {"stats.text.steps.0.resized.0.share": -0.25}, "The text step nfc removes 25 % of the characters of de."
    ),
    "damaged": (
        {"rejected": {"not_json": {"count": 1}, "corrupt_stream": {"count": 1}}},
        "1 input file could not be read to the end: what comes after the damage is lost.",
    ),
    "without a language": (
        {"languages.rows.1.language": "und", "languages.rows.1.documents": 454},
        "The language of 49.9 % of the documents was not found.",
    ),
    "empty": ({"headline.documents": 0}, "there is no document in the output: of 1,000 records 90 were filtered"),
    "one file": (
        {"headline.rejected": 50, "sources.rows.1.rejected": 49}, "5 % of the records were rejected, 50 of 1,000 "
        "records, most of them in b.txt",
    ),
    "slow": (
        {"clock.slowest.0.speed": 0.1, "clock.slowest.0.cpu_seconds": 2.0},
        "Split 3, from a.jsonl, took 1:00, 10.0 times as long as is usual for its size. It waited most",
    ),
    "unknown": (
        {"stats.oov.share_of_tokens": 0.25, "stats.oov.tokens": 500, "languages.rows.1.oov_tokens": 400,
         "languages.rows.1.share_of_oov_tokens": 0.5, "stats.oov.characters_to_add": {"50%": 1234, "95%": 5678}},
        "tokenizer: 25 % of the tokens are unknown, 80 % of them in de, where 50 % are; 1,234 characters more in the "
        "vocabulary would remove half of the unknown ones, 5,678 would remove 95 %, first 'z', 'q'; or take another",
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
        {**LANGUAGE, "language": "und", "documents": 9, "tokens_per_character": 0.75},
        {**LANGUAGE, "language": "nl", "tokens": 2, "tokens_per_character": 1.0},
    ]
    assert advise(facts) == []
