# SPDX-License-Identifier: Apache-2.0
"""What the report says about conversations: counts of `stats.json`, and the first rows with what is trained."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from tokenmill.pipeline import filenames, schemas, storage
from tokenmill.pipeline.output.writers import formats
from tokenmill.tokenizer import Tokenizer

EXAMPLES = 3
"""How many rows are shown."""
_MOST_TOKENS = 400
"""How many tokens of each."""


def describe(output: str, found: Mapping[str, Any], stats: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the counts of conversations and `examples`; None if documents are texts.

    Args:
      output: the folder.
      found: its manifest.
      stats: its `stats.json`.
    """
    counts = stats.get("chat")
    return None if counts is None else {**counts, "examples": list(itertools.islice(_rows(output, found), EXAMPLES))}


def _rows(output: str, found: Mapping[str, Any]) -> Iterator[list[dict[str, Any]]]:
    """Yields the rows of the first shard as stretches of `text` that are `trained` or not, the last cut."""
    tokenizer = Tokenizer.from_str(storage.read_text(storage.join(output, filenames.TOKENIZER)))
    name = found["shards"][0]["file"]
    with storage.open_read(storage.join(output, name)) as handle:
        for batch in formats.read_rows(handle, name):
            for row in batch.select(["input_ids", "n_tokens", schemas.LOSS_MASK.name]).slice(0, EXAMPLES).to_pylist():
                ids, mask = (row[name][: min(row["n_tokens"], _MOST_TOKENS)] for name in ("input_ids", "loss_mask"))
                runs = itertools.groupby(zip(mask, ids, strict=True), key=lambda pair: pair[0])
                yield [
                    {"text": tokenizer.decode([i for _, i in run], skip_special_tokens=False), "trained": trained}
                    for trained, run in runs
                ]
