# SPDX-License-Identifier: Apache-2.0
"""Fixtures that several files of tests share."""

import json

import pytest


@pytest.fixture
def make_shuffled(tmp_path, tiny_vocab):
    """Makes jobs that shuffle 300 documents and a reject."""
    from tests.shuffled_job import (
        N_DOCUMENTS,
        ShuffledJob,
    )  # imports most of the pipeline, which most tests do not need

    words = ["the", "mill", "grinds", "text", "玫", "a"]
    texts = [" ".join(words[(i * i + 7 * j * i) % 6] for j in range(i % 29)) for i in range(N_DOCUMENTS)]
    lines = [json.dumps({"id": f"d{i}", "text": text}) for i, text in enumerate(texts)]
    for name, part in (("a", lines[: N_DOCUMENTS // 2]), ("b", [*lines[N_DOCUMENTS // 2 :], "not json"])):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(part), encoding="utf-8")

    def make(name="out", padding=None, split_bytes=3000, shuffle=None, paths=("*.jsonl",), **output):
        shuffle = {"seed": 3, "shards": 4} if shuffle is None else shuffle
        tokenizer = {"padding": padding, "truncation": {"max_length": padding["length"]}} if padding else {}
        options = {"split_bytes": split_bytes, "tokenizer": tokenizer, "shuffle": shuffle, **output}
        return ShuffledJob(tmp_path / name, tiny_vocab, [tmp_path / path for path in paths], **options)

    return make
