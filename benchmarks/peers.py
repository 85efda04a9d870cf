# SPDX-License-Identifier: Apache-2.0
"""Settings for all libraries that we measure against (one thread, one tokenizer), and the pipeline peers.

All of them get the same tokenizer: TokenMill's `tokenizer.json`, read by Hugging Face's `tokenizers`.

As a command this runs one of the pipeline peers in a process of its own, start-up and imports included:
`python -m benchmarks.peers datatrove|datasets|gigatoken INPUT_FOLDER TOKENIZER_JSON OUTPUT_FOLDER WORKERS`.
"""

import importlib.util
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

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
