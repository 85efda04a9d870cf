# SPDX-License-Identifier: Apache-2.0
"""Tokenizers compared on word counts: no text is read again.

Each word is encoded by the model alone, for the counts hold normalized pre-tokens. That is what the tokenizer makes of
the text if its normalizer and pre-tokenizer are those of the counts; a tokenizer with others is refused.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.pipeline.comparing import measure
from tokenmill.pipeline.comparing.loading import Candidate
from tokenmill.pipeline.comparing.measure import ALL, Found
from tokenmill.pipeline.comparing.sums import GroupSums, Ints
from tokenmill.pipeline.comparing.words import WORDS, Words
from tokenmill.pipeline.counting.counts import CountsArtifact, Group
from tokenmill.pipeline.counting.words import describe_words
from tokenmill.pipeline.statistics.words import Encoded, encode_each, unknown
from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer.languages import UNKNOWN, main_scripts

_KIND_OF_LABEL = {"lang": "language", "source": "source"}


def compare(candidates: Sequence[Candidate], artifact: CountsArtifact) -> dict[str, Any]:
    """Returns the comparison of tokenizers on the words of a counts artifact, see `measure.report`.

    There are no intervals, because it is not known which words were in one document. Added tokens are counted as text.
    Bytes by source and language are those of the texts, by script those of the words; if words were pruned, all are
    those of the remaining words.

    Args:
      candidates: two or more; the others are compared with the first one.
      artifact: the counts.

    Raises:
      ValueError: if a tokenizer has other words, or nothing was counted. OSError: if a file cannot be read.
    """
    check(candidates, artifact)
    models = [model_alone(each.tokenizer) for each in candidates]
    kinds = [_KIND_OF_LABEL[label] for label in artifact.labels]
    groups = {kind: GroupSums(measure.n_columns(candidates)) for kind in (ALL, *kinds, "script")}
    ids = [np.zeros(each.tokenizer.n_ids, np.int64) for each in candidates]
    words = Words()
    has_texts = not artifact.report["pruned"]["bound"]
    for partition in range(len(artifact.files)):
        for group, table in artifact.tables(partition):
            column = table["word"].combine_chunks().cast(pa.large_string())
            counts = table["count"].to_numpy()
            values = _values(models, column, counts, ids)
            _add(groups["script"], main_scripts(column), values)
            if has_texts:
                values[:, :3] = 0  # those of the texts follow
            for kind, name in zip((ALL, *kinds), (ALL, *group), strict=True):
                _add(groups[kind], _constant(name, len(column)), values)
            language = dict(zip(kinds, group, strict=True)).get("language", UNKNOWN)
            words.add_counts(
                pa.table([_constant(language, len(column)).cast(pa.string()), column, counts], schema=WORDS)
            )
    _add_texts(groups, kinds, artifact.report["groups"], has_texts)
    if not groups[ALL].names:
        raise ValueError(f"--on: the counts in {artifact.output!r} hold no words")
    report = measure.report(candidates, _found(models, groups, ids, words))
    report["on"] |= {
        "what": "counts",
        "word": "the pre-tokens of the counts",
        "bytes_of": "texts" if has_texts else "words",
        "is_whole": has_texts,
        "counts": artifact.digest,
        "pruned": artifact.report["pruned"],
    }
    return report


def check(candidates: Sequence[Candidate], artifact: CountsArtifact) -> None:
    """Raises ValueError, naming tokenizers, unless all tokenizers have the words that were counted."""
    wrong = []
    for each in candidates:
        mine = describe_words(each.tokenizer.to_str())
        differ = [name for name in mine if mine[name] != artifact.words[name]]
        if differ:
            listed = "; ".join(
                f"its {name} is {json.dumps(mine[name])[:200]}, that of the counts "
                f"{json.dumps(artifact.words[name])[:200]}"
                for name in differ
            )
            wrong.append(f"  {each.label}: {listed}")
    if wrong:
        raise ValueError(
            "--on: these tokenizers have other words than were counted, so counts say nothing of them:\n"
            + "\n".join(wrong)
            + "\ncompare them on text, or count again with their normalizer and pre_tokenizer"
        )


def model_alone(tokenizer: Tokenizer) -> Tokenizer:
    """Returns a tokenizer that takes each text as one word: without normalizer, pre-tokenizer and template."""
    parts = json.loads(tokenizer.to_str())
    steps = parts["pre_tokenizer"] or {"type": ""}
    last = steps["pretokenizers"][-1] if steps["type"] == "Sequence" else steps
    spells_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    parts["pre_tokenizer"] = spells_bytes if last["type"] == "ByteLevel" else None
    parts["normalizer"] = None
    return Tokenizer.from_str(json.dumps(parts))


def _values(models: Sequence[Tokenizer], words: pa.Array, counts: Ints, ids: Sequence[Ints]) -> Ints:
    """Returns the columns of `measure.n_columns` for each word, and adds to `ids` how often each id occurs."""
    tokens, unknowns = [], []
    for model, seen in zip(models, ids, strict=True):
        rows = model.encode_bare(words)
        sizes = np.diff(rows.offsets.to_numpy())
        np.add.at(seen, rows.values.to_numpy(), np.repeat(counts, sizes))
        tokens.append(sizes)
        unknowns.append(unknown(model, rows))
    n_bytes, n_chars = pc.binary_length(words).to_numpy(), pc.utf8_length(words).to_numpy()
    ones = np.ones(len(words), np.int64)
    return np.stack([0 * ones, n_bytes, n_chars, ones, *tokens, *unknowns], axis=1).astype(np.int64) * counts[:, None]


def _add(sums: GroupSums, groups: pa.DictionaryArray, values: Ints) -> None:
    sums.add(groups, np.zeros(len(groups), np.int64), values)


def _constant(name: str, n: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(np.zeros(n, np.int32), pa.array([name], pa.string()))


def _add_texts(
    groups: dict[str, GroupSums], kinds: Sequence[str], report: Sequence[dict[str, Any]], has_texts: bool
) -> None:
    """Adds the documents of each group, and the bytes and characters of their texts."""
    for each in report:
        group: Group = tuple(each["labels"])
        texts = [each["n_text_bytes"], each["n_chars"]] if has_texts else [0, 0]
        for kind, name in zip((ALL, *kinds), (ALL, *group), strict=True):
            row = np.zeros((1, groups[kind].blocks.shape[2]), np.int64)
            row[0, :3] = each["n_documents"], *texts
            _add(groups[kind], _constant(name, 1), row)


def _found(models: Sequence[Tokenizer], groups: dict[str, GroupSums], ids: Sequence[Ints], words: Words) -> Found:
    table = words.table()
    distinct, rows = table["word"].combine_chunks().dictionary_encode(), table.select(["language", "count"])
    encoded = []
    for model in models:  # a pre-token has its space, if any
        sizes, n_unknown = encode_each(model, distinct.dictionary)
        encoded.append(Encoded(sizes, sizes, n_unknown))
    return Found(groups, ids, distinct, rows, encoded, words.n_left_out, False)
