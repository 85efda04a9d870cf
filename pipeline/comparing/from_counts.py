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

from tokenmill.pipeline.comparing import measure
from tokenmill.pipeline.comparing.loading import Candidate
from tokenmill.pipeline.comparing.sums import ALL, SUMMED, WORDS, Sums, constant
from tokenmill.pipeline.counting.counts import CountsArtifact
from tokenmill.pipeline.counting.words import describe_words
from tokenmill.pipeline.statistics.words import Encoded, encode_each
from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer.languages import UNKNOWN, main_scripts

_KIND_OF_LABEL = {"lang": "language", "source": "source"}


def compare(candidates: Sequence[Candidate], artifact: CountsArtifact) -> dict[str, Any]:
    """Returns the comparison of tokenizers on the words of a counts artifact, see `measure.report`.

    There are no intervals, because it is not known which words were in one document. Added tokens are counted as text.
    Bytes by source and language are those of the texts, by script those of the words; if words were pruned, all are
    those of the remaining words.

    Raises:
      ValueError: if a tokenizer has other words, or nothing was counted. OSError: if a file cannot be read.
    """
    check(candidates, artifact)
    models = [model_alone(each.tokenizer) for each in candidates]
    kinds = [ALL, *(_KIND_OF_LABEL[label] for label in artifact.labels)]
    sums = Sums(models, [*kinds, "script"])
    has_texts = not artifact.report["pruned"]["bound"]
    for partition in range(len(artifact.files)):
        for group, table in artifact.tables(partition):
            column, counts = table["word"].combine_chunks().cast(pa.large_string()), table["count"].to_numpy()
            ones, ids = np.ones(len(column), np.int64), [model.encode_bare(column) for model in models]
            values = sums.values(column, ones, ids, counts, 0)
            sums.add({"script": main_scripts(column)}, values)
            if has_texts:
                values[:, :3] = 0  # those of the texts follow
            names = dict(zip(kinds, (ALL, *group), strict=True))
            sums.add({kind: constant(name, len(column)) for kind, name in names.items()}, values)
            language = constant(names.get("language", UNKNOWN), len(column)).cast(pa.string())
            sums.words.add_counts(pa.table([language, column, counts], schema=WORDS))
    for each in artifact.report["groups"]:
        row = np.zeros((1, len(SUMMED) + 2 * len(models)), np.int64)
        row[0, :3] = each["n_documents"], *((each["n_text_bytes"], each["n_chars"]) if has_texts else (0, 0))
        names = dict(zip(kinds, (ALL, *each["labels"]), strict=True))
        sums.add({kind: constant(name, 1) for kind, name in names.items()}, row)
    if not sums.groups[ALL].names:
        raise ValueError(f"--on: the counts in {artifact.output!r} hold no words")
    report = measure.report(candidates, sums.found(_encode, has_documents=False))
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


def _encode(model: Tokenizer, words: pa.Array) -> Encoded:
    sizes, n_unknown = encode_each(model, words)
    return Encoded(sizes, sizes, n_unknown)  # a pre-token has its space, if any
