# SPDX-License-Identifier: Apache-2.0
"""A comparison on texts: every number is that of a recount in plain Python."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.recounting import bytes_per_token_interval, n_tokens, sums_of
from tests.strategies import texts
from tokenmill.pipeline import schemas
from tokenmill.pipeline.comparing import corpora, measure, sums
from tokenmill.pipeline.comparing.corpora import Corpus, Documents
from tokenmill.pipeline.comparing.sums import KINDS, N_BLOCKS, WORDS, Candidate, Words
from tokenmill.pipeline.hashing import document_keys
from tokenmill.pipeline.statistics.words import encode
from tokenmill.tokenizer import BPETrainer, Tokenizer
from tokenmill.tokenizer.languages import main_scripts

TRAINING = ["the mill grinds the text into tokens, 12 times!", "die Mühle mahlt", "玫瑰花", "привет мир"] * 3
BYTES = Tokenizer.untrained("none", "gpt2", byte_level=True).train_from_iterator(TRAINING, BPETrainer(vocab_size=300))
BERT = Tokenizer.for_bert(
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "mill", "token", "##s", "un", "##able", "玫", ","]
)
LETTERS = {"version": "1.0", "model": {"type": "Unigram", "unk_id": None, "vocab": [["a", -1.0], ["aa", -1.5]]}}
TOKENIZERS = {"bytes": BYTES, "bert": BERT}


def candidates(tokenizers):
    return [Candidate(label, label, tokenizer, 0.0) for label, tokenizer in tokenizers.items()]


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def check_rows(report, documents, tokenizers):
    """Compares all sums and ratios of a report with those of documents, {"text", "source", "language", "script"}."""
    for kind in ("all", *KINDS):
        rows = [report["all"]] if kind == "all" else report[kind]
        assert {row["name"] for row in rows} == {each.get(kind, "all") for each in documents}
        for row in rows:
            mine = sums_of([each for each in documents if each.get(kind, "all") == row["name"]], tokenizers)
            for name in ("documents", "bytes", "characters", "words"):
                assert row[name] == mine[name]
            for label, measures in mine["by"].items():
                for name, value in measures.items():
                    if kind in ("all", "language") or ("_alone" not in name and name != "strr"):
                        assert row["by"][label][name] == pytest.approx(value), (kind, row["name"], label, name)


@settings(max_examples=15)  # each of them looks at whole vocabularies, too
@given(
    st.lists(
        st.tuples(texts(), st.sampled_from(["a.jsonl", "b.jsonl"]), st.sampled_from(["de", "en", "zh"])),
        min_size=1,
        max_size=12,
    )
)
@example([(text, "a.jsonl", "de") for text in ("\u093c", "0", *[""] * 10)])  # some resamples have a text, but no token
# White space makes no token of BERT's: of a resample with nothing else bytes per token have no limit, above or below.
@example([("", "a.jsonl", "de")] * 8 + [("0", "a.jsonl", "de"), (" ", "a.jsonl", "de")])
def test_all_numbers_are_those_of_a_recount(rows):
    sums = corpora.TextSums(candidates(TOKENIZERS))
    documents = []
    for i, (text, source, language) in enumerate(rows):
        table = pa.RecordBatch.from_pylist(
            [{"doc_id": str(i), "text": text, "piece": 0, "offset": 10 * i, "n_bytes": 10}], schema=schemas.DOCUMENTS
        )
        of_rows = pa.array([text], pa.string())
        groups = {
            "source": pa.array([source]).dictionary_encode(),
            "language": pa.array([language]).dictionary_encode(),
            "script": main_scripts(of_rows),
        }
        sums.add_documents(Documents(table, [source], groups))
        script = main_scripts(of_rows)[0].as_py()
        documents.append({"text": text, "source": source, "language": language, "script": script})
    report = measure.report(candidates(TOKENIZERS), sums, encode, has_documents=True)
    check_rows(report, documents, TOKENIZERS)
    for ids, tokenizer in zip(sums.ids, TOKENIZERS.values(), strict=True):
        made = [i for text, _, _ in rows for i in tokenizer.encode(text, add_special_tokens=False).ids]
        assert ids.tolist() == [made.count(i) for i in range(tokenizer.n_ids)]


def test_intervals_are_those_of_a_bootstrap_by_hand(tmp_path):
    rows = [
        {"text": " ".join(["the mill", "玫瑰花 unable", "tokens"][(i * i + j) % 3] for j in range(1 + i % 7))}
        for i in range(60)
    ]
    write(tmp_path / "a.jsonl", rows)
    report = corpora.compare_texts(candidates(TOKENIZERS), Corpus([str(tmp_path / "a.jsonl")]))
    sizes = [len(json.dumps(row, ensure_ascii=False).encode()) + 1 for row in rows]
    offsets = np.cumsum([0, *sizes[:-1]])
    table = pa.record_batch({"offset": pa.array(offsets), "piece": pa.array(np.zeros(60, np.int32))})
    blocks = (document_keys("bootstrap", 0, ["a.jsonl"], table) % np.uint64(N_BLOCKS)).tolist()
    documents = [{"text": row["text"], "block": block} for row, block in zip(rows, blocks, strict=True)]
    by = report["all"]["by"]
    assert by["bytes"]["bytes_per_token_interval"] == pytest.approx(bytes_per_token_interval(documents, BYTES))
    found = by["bert"]["bytes_per_token_difference_interval"]
    assert found == pytest.approx(bytes_per_token_interval(documents, BERT, BYTES))
    assert found[0] < by["bert"]["bytes_per_token_difference"] < found[1]
    low, high = by["bert"]["bytes_per_token_interval"]
    assert by["bert"]["tokens_per_megabyte_interval"] == pytest.approx([1e6 / high, 1e6 / low], rel=1e-3)
    assert by == corpora.compare_texts(candidates(TOKENIZERS), Corpus([str(tmp_path / "a.jsonl")]))["all"]["by"]


def test_a_document_on_which_one_fails_is_named_and_counts_for_none(tmp_path):
    write(
        tmp_path / "a.jsonl",
        [{"id": "good", "text": "aaa a"}, {"id": "bad", "text": "axa"}, {"id": "last", "text": "a"}],
    )
    model = Tokenizer.from_str(json.dumps({**LETTERS, "pre_tokenizer": {"type": "WhitespaceSplit"}}))
    report = corpora.compare_texts(candidates({"bytes": BYTES, "letters": model}), Corpus([str(tmp_path)]))
    assert report["on"]["failed"] == {"letters": 1}
    named = {"tokenizer": "letters", "document": "bad", "source": "a.jsonl", "reason": "unknown_character"}
    assert report["on"]["failed_documents"] == [named]
    assert (report["all"]["documents"], report["all"]["words"]) == (2, 3)
    assert report["all"]["by"]["letters"]["tokens"] == 4
    assert report["all"]["by"]["bytes"]["tokens"] == n_tokens(BYTES, "aaa a") + n_tokens(BYTES, "a")


def test_parity_and_gini_of_parallel_texts(tmp_path):
    texts_of = {"en": ["the mill", "the token"], "de": ["die Mühle", "das Zeichen da"], "zh": ["玫瑰", "花"]}
    write(tmp_path / "a.jsonl", [{"text": text, "lang": code} for code, found in texts_of.items() for text in found])
    report = corpora.compare_texts(candidates(TOKENIZERS), Corpus([str(tmp_path)], lang_field="lang"), "en")
    tokens = {code: sum(n_tokens(BYTES, text) for text in found) for code, found in texts_of.items()}
    assert {row["name"]: row["by"]["bytes"]["parity"] for row in report["language"]} == pytest.approx(
        {code: n / tokens["en"] for code, n in tokens.items()}
    )
    costs = [n / 2 for n in tokens.values()]
    by_hand = sum(abs(a - b) for a in costs for b in costs) / (2 * 3 * 3 * (sum(costs) / 3))  # as TokEval writes it
    assert report["tokenizers"][0]["gini"]["documents"] == pytest.approx(by_hand)


def test_languages_that_are_not_parallel_are_refused(tmp_path):
    write(tmp_path / "a.jsonl", [{"text": "x", "lang": "en"}, {"text": "y", "lang": "de"}, {"text": "z", "lang": "de"}])
    corpus = Corpus([str(tmp_path)], lang_field="lang")
    with pytest.raises(ValueError, match="its 1 documents are not those of de, which has 2"):
        corpora.compare_texts(candidates(TOKENIZERS), corpus, "en")
    with pytest.raises(ValueError, match="there is no document of this language; there are de, en"):
        corpora.compare_texts(candidates(TOKENIZERS), Corpus([str(tmp_path)], lang_field="lang"), "fr")


def test_a_file_that_loses_what_would_fail_a_job_is_refused(tmp_path):
    write(tmp_path / "a.jsonl", [{"text": "the mill"}] * 40 + [{"other": "x"}] * 2)  # 4.8 % of the records
    corpora.compare_texts(candidates(TOKENIZERS), Corpus([str(tmp_path)]))
    write(tmp_path / "b.jsonl", [{"content": "x"}] * 9)
    with pytest.raises(ValueError, match=r"--text-field.*\n.*'b\.jsonl' lost 9 of 9 records .*\(missing_field 9\)"):
        corpora.compare_texts(candidates(TOKENIZERS), Corpus([str(tmp_path)]))


def test_a_corpus_without_documents_is_refused(tmp_path):
    write(tmp_path / "a.jsonl", [{"other": "x"}])
    with pytest.raises(
        ValueError, match="no document to compare tokenizers on; 1 rejected as missing_field; --text-field says"
    ):
        corpora.compare_texts(candidates(TOKENIZERS), Corpus([str(tmp_path)]))


def test_the_rarest_words_are_left_out_where_there_are_too_many(monkeypatch):
    monkeypatch.setattr(sums, "MAX_WORDS", 4)
    counted = Words()
    counted.add_counts(pa.table([["de"] * 6, list("abcdef"), [5, 1, 4, 3, 2, 6]], schema=WORDS))
    assert [row["word"] for row in counted.table().to_pylist()] == ["f", "a", "c"]
    assert counted.n_left_out == 6
