# SPDX-License-Identifier: Apache-2.0
"""Settings for all libraries that we measure against (one thread, one tokenizer), and the pipeline peers.

All of them get the same tokenizer: TokenMill's `tokenizer.json`, read by Hugging Face's `tokenizers`.

As a command this runs one of the pipeline peers in a process of its own, start-up and imports included:
`python -m benchmarks.peers datatrove|datasets|gigatoken INPUT_FOLDER TOKENIZER_JSON OUTPUT_FOLDER WORKERS`.
"""

import importlib.util
import itertools
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

# One thread against one thread. `tokenizers` reads these when it first encodes, in this process and its children.
ONE_THREAD = {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}
os.environ.update(ONE_THREAD, HF_HUB_OFFLINE="1")


def stay_on_one_core() -> None:
    """Keeps this process, with all threads that its libraries start, on the first core that it may use.

    fastokens starts threads of its own whatever the environment says. Does nothing if the system cannot do it.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def for_peers(tokenizer_json: str) -> str:
    """Returns the tokenizer without its template, which some peers would apply, and without its added tokens.

    With added tokens a peer would turn `[MASK]` in a text into the control token; TokenMill reads it as text.
    """
    changed = {"post_processor": None, "added_tokens": []}
    return json.dumps(json.loads(tokenizer_json) | changed, ensure_ascii=False)


Encode = Callable[[Sequence[str]], Any]


class Peer(NamedTuple):
    """A library with a tokenizer."""

    load: Callable[[], Encode]
    """Loads the tokenizer again, ready to encode."""
    to_ids: Callable[[Any], list[list[int]]]
    """Turns what it returns for a batch into lists of ids."""
    other_rules: bool = False
    """Whether it follows other rules, so that some documents may get other ids; it is timed on the rest."""


GPT2_PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""


def for_tokenizer_json(text: str, *, other_rules: bool = False) -> dict[str, Peer]:
    """Returns `tokenizers`, with `encode_batch_fast`, which leaves the ids in the library's own objects."""
    if not _has("tokenizers"):
        return {}
    import tokenizers as hf_tokenizers

    bare = for_peers(text)

    def load() -> Encode:
        loaded = hf_tokenizers.Tokenizer.from_str(bare)
        return lambda texts: loaded.encode_batch_fast(texts, add_special_tokens=False)

    return {"tokenizers": Peer(load, _rows, other_rules)}


def for_byte_level_bpe(text: str, ranks: dict[bytes, int]) -> dict[str, Peer]:
    """Returns engines for byte-level BPE, for a `tokenizer.json` with GPT-2's pattern and its ranks."""
    found: dict[str, Peer] = {}
    bare = for_peers(text)
    if _has("tiktoken"):
        import tiktoken

        def load_tiktoken() -> Encode:
            encoding = tiktoken.Encoding("gpt2", pat_str=GPT2_PATTERN, mergeable_ranks=ranks, special_tokens={})
            return lambda texts: [encoding.encode_ordinary(t) for t in texts]

        found["tiktoken"] = Peer(load_tiktoken, list)
    if _has("gigatoken"):
        import gigatoken
        import tokenizers as hf_tokenizers

        def load_gigatoken() -> Encode:
            loaded = gigatoken.Tokenizer(hf_tokenizers.Tokenizer.from_str(bare))
            return lambda texts: loaded.encode_batch(list(texts), parallel=False)

        found["gigatoken"] = Peer(load_gigatoken, lambda rows: rows.to_list())
    if _has("fastokens"):
        import fastokens

        def load_fastokens() -> Encode:
            loaded = fastokens.Tokenizer.from_json_str(bare)
            return lambda texts: loaded.encode_batch(list(texts))

        found["fastokens"] = Peer(load_fastokens, _rows)
    if _has("snaptokens"):
        import snaptokens

        def load_snaptokens() -> Encode:
            loaded = snaptokens.Tokenizer.from_json_str(bare)
            return lambda texts: loaded.encode_batch_flat(list(texts))

        found["snaptokens"] = Peer(load_snaptokens, _flat_rows)
    return found | for_tokenizer_json(text)


def for_wordpiece(text: str) -> dict[str, Peer]:
    """Returns engines for WordPiece, for a `tokenizer.json` of BERT."""
    found: dict[str, Peer] = {}
    if _has("nanotoken"):
        import nanotoken

        bare = for_peers(text)

        def load_nanotoken() -> Encode:
            loaded = nanotoken.WordPieceTokenizer.from_json(bare)
            return lambda texts: loaded.encode_batch(texts, add_special_tokens=False, parallel=False)

        found["nanotoken"] = Peer(load_nanotoken, lambda rows: _cut(*rows))
    return found | for_tokenizer_json(text)


def for_sentencepiece(path: Path, text: str) -> dict[str, Peer]:
    """Returns sentencepiece, which reads its own file, and `tokenizers`, which reads `text` and has its own rules."""
    found: dict[str, Peer] = {}
    if _has("sentencepiece"):
        import sentencepiece

        def load_sentencepiece() -> Encode:
            processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
            return lambda texts: processor.encode(list(texts), num_threads=1)

        found["sentencepiece"] = Peer(load_sentencepiece, list)
    return found | for_tokenizer_json(text, other_rules=True)


def _has(module: str) -> bool:
    there = importlib.util.find_spec(module) is not None
    if not there:
        print(f"{module} is not installed; ./run.sh bench installs it")
    return there


def _flat_rows(encoded: tuple[bytes, bytes]) -> list[list[int]]:
    return _cut(np.frombuffer(encoded[0], np.uint32), np.frombuffer(encoded[1], np.uint64))


def _cut(ids: npt.NDArray[Any], offsets: npt.NDArray[Any]) -> list[list[int]]:
    return [ids[a:b].tolist() for a, b in itertools.pairwise(offsets.tolist())]


def _rows(encoded: Any) -> list[list[int]]:
    """Returns lists of ids from whatever a library returns for a batch."""
    return [list(getattr(row, "ids", row)) for row in encoded]


def missing(peer: str) -> list[str]:
    """Returns the modules that a peer needs and this environment lacks."""
    needs = {
        "tokenizers": ["tokenizers"], "datatrove": ["datatrove", "orjson"], "datasets": ["datasets"],
        "gigatoken": ["gigatoken", "awkward"],
    }  # fmt: skip
    return [name for name in needs[peer] if importlib.util.find_spec(name) is None]


def run_datatrove(input_folder: str, tokenizer: str, output_folder: str, workers: int) -> None:
    """Runs `DocumentTokenizer` after a `JsonlReader`, one task and one process per worker, documents in order."""
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.input.reading import JsonlReader
    from datatrove.pipeline.tokens import DocumentTokenizer

    steps = [
        JsonlReader(input_folder),
        DocumentTokenizer(f"{output_folder}/tokens", tokenizer, shuffle_documents=False),
    ]
    LocalPipelineExecutor(steps, tasks=workers, workers=workers, logging_dir=f"{output_folder}/logs").run()


def run_datasets(input_folder: str, tokenizer: str, output_folder: str, workers: int) -> None:
    """Runs `load_dataset("json")`, `map` in batches over processes, and `to_parquet`."""
    import datasets
    import tokenizers as hf_tokenizers

    hf_tokenizer = hf_tokenizers.Tokenizer.from_file(tokenizer)

    def encode(batch: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        encodings = hf_tokenizer.encode_batch_fast(batch["text"], add_special_tokens=False)
        return {"input_ids": [encoding.ids for encoding in encodings]}

    files = sorted(str(path) for path in Path(input_folder).glob("*.jsonl"))
    cache = f"{output_folder}/cache"
    rows = datasets.load_dataset("json", data_files=files, split="train", cache_dir=cache, num_proc=workers)
    rows = rows.map(encode, batched=True, num_proc=workers, remove_columns=["text"])
    rows.to_parquet(f"{output_folder}/tokens.parquet")


def run_gigatoken(input_folder: str, tokenizer: str, output_folder: str, workers: int) -> None:
    """Runs the script that people write instead of a pipeline: all ids in memory, one file, no ids, no books."""
    import awkward
    import gigatoken
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = sorted(Path(input_folder).glob("*.jsonl"))
    ids = gigatoken.Tokenizer(tokenizer).encode_files(gigatoken.JsonlFileSource(files))
    column = awkward.to_arrow(ids, extensionarray=False)
    pq.write_table(pa.table({"input_ids": column}), f"{output_folder}/tokens.parquet")


PIPELINES: dict[str, Callable[[str, str, str, int], None]] = {
    "gigatoken": run_gigatoken,
    "datatrove": run_datatrove,
    "datasets": run_datasets,
}

if __name__ == "__main__":
    PIPELINES[sys.argv[1]](sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
