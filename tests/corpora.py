# SPDX-License-Identifier: Apache-2.0
"""Documents of the larger real data, of which a run tries a part that has something of everything."""

import functools
import gzip
import json
from pathlib import Path

from tests.strategies import EXHAUSTIVE, THOROUGH


@functools.lru_cache(maxsize=2)
def documents(shared_data: Path, corpus: str, n_bytes: int = 2_000_000 if THOROUGH else 500_000) -> list[str]:
    """About so many bytes of a corpus: documents from all over it, long ones cut short. Or all of it, as it is."""
    with gzip.open(shared_data / "corpus" / f"{corpus}.jsonl.gz", "rt", encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in lines]
    if EXHAUSTIVE:
        return texts
    texts = [text.encode()[: n_bytes // 16].decode(errors="ignore") for text in texts]
    return texts[:: -(-sum(len(text.encode()) for text in texts) // n_bytes)]
