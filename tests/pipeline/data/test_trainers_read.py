# SPDX-License-Identifier: Apache-2.0
"""Readers of other projects get the rows of an output from its files: Megatron-LM, MosaicML's streaming, OLMo-core."""

import numpy as np
import pytest

import tokenmill.data
from tests.pipeline.data.conftest import PACKING, TEXTS
from tests.plain_job import PlainJob


def _tokens(output) -> list[list[int]]:
    batch = tokenmill.data.open(output)[:]
    return [ids[:n] for ids, n in zip(batch["input_ids"].to_pylist(), batch["n_tokens"].to_pylist(), strict=True)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory, session_vocab) -> PlainJob:
    """One shard of packed rows."""
    folder = tmp_path_factory.mktemp("whole")
    output = {"format": ["parquet", "memmap", "megatron", "mds"], "packing": PACKING, "shuffle": {"shards": 1}}
    return PlainJob(folder, TEXTS, session_vocab, output=output).run()


@pytest.mark.filterwarnings("ignore")  # of what Megatron-LM imports
def test_megatron_lm_reads_sequences_and_makes_samples_of_them(whole, tmp_path) -> None:
    indexed = pytest.importorskip("megatron.core.datasets.indexed_dataset", exc_type=ImportError)
    prefix = str(whole.output / "tokens-00000-of-00001")
    rows = _tokens(whole.output)
    theirs = indexed.IndexedDataset(prefix)
    assert [ids.tolist() for ids in theirs] == rows
    gpt = pytest.importorskip("megatron.core.datasets.gpt_dataset", exc_type=ImportError)
    utils = pytest.importorskip("megatron.core.datasets.utils", exc_type=ImportError)

    class Tokenizer:
        vocab_size, eod, pad, unique_identifiers = 11, 3, 0, {"class": "ours"}

    config = gpt.GPTDatasetConfig(
        random_seed=1, sequence_length=8, split="1,0,0", path_to_cache=str(tmp_path), tokenizer=Tokenizer(),
        reset_position_ids=False, reset_attention_mask=False, eod_mask_loss=False, blend=None,
    )  # fmt: skip
    n = sum(map(len, rows)) // 8
    data = gpt.GPTDataset(theirs, prefix, np.arange(len(rows), dtype=np.int32), n, utils.Split.train, config)
    stream = {tuple(ids) for ids in np.lib.stride_tricks.sliding_window_view(sum_of(rows, data), 8).tolist()}
    assert all(tuple(data[i]["tokens"].tolist()) in stream for i in range(len(data)))


def sum_of(rows: list[list[int]], data) -> np.ndarray:
    """Returns the tokens in the order in which Megatron-LM has put the sequences."""
    return np.concatenate([rows[i] for i in data.document_index.tolist()])


@pytest.mark.filterwarnings("ignore")
def test_mosaicml_streaming_reads_the_shards(whole) -> None:
    streaming = pytest.importorskip("streaming", exc_type=ImportError)
    data = streaming.LocalDataset(str(whole.output))
    assert [row["tokens"][: row["n_tokens"]].tolist() for row in data] == _tokens(whole.output)


def test_olmo_core_reads_memory_maps_as_a_stream_of_ids(whole) -> None:
    utils = pytest.importorskip("olmo_core.data.utils", exc_type=ImportError)
    path = whole.output / "tokens-00000-of-00001.ids.bin"
    stream = [token for row in _tokens(whole.output) for token in row]
    read = utils.load_array_slice_into_tensor(path, 8, 24, np.uint16)
    assert read.tolist() == stream[8:24]
