# SPDX-License-Identifier: Apache-2.0
"""Each library reads the same rows from a dataset as the dataset itself; with its own workers, and after a restart."""

import json
import os

import numpy as np
import pytest

import tokenmill.data


@pytest.fixture
def data(jobs):
    return tokenmill.data.open(jobs["documents"].output, columns=["input_ids", "n_tokens"], format="arrow")


@pytest.fixture
def packed(jobs):
    return tokenmill.data.open(jobs["packed"].output, columns=["input_ids"], format="arrow")


def _rows(batches) -> list[list[int]]:
    return [row.tolist() for batch in batches for row in batch["input_ids"]]


def test_numpy_alone_gets_arrays_of_two_dimensions_or_lists_of_arrays(data, packed) -> None:
    batch = next(iter(packed.samples(4)))
    assert batch["input_ids"].shape == (4, 16)
    assert batch["input_ids"].dtype == np.int32
    batch = next(iter(data.samples(4)))
    assert [ids.size for ids in batch["input_ids"]] == batch["n_tokens"].tolist()


class TestTorch:
    @pytest.fixture(autouse=True)
    def torch(self):
        return pytest.importorskip("torch")

    @pytest.mark.parametrize("options", [{}, {"num_workers": 2, "prefetch_factor": 4, "persistent_workers": True}])
    def test_workers_read_ahead_and_are_not_counted(self, packed, options) -> None:
        expected = _rows(packed.samples(3, seed=1, rank=1, world_size=2))
        samples = packed.samples(3, seed=1, rank=1, world_size=2)
        loader = tokenmill.data.TorchLoader(samples, **options)
        assert _rows(loader) == expected
        assert len(loader) == -(-len(packed) // 6)
        second = _rows(packed_epoch := packed.samples(3, seed=1, rank=1, world_size=2))
        second = _rows(packed_epoch)  # the next epoch
        read = []
        for n, batch in enumerate(loader):  # stopped early, with workers ahead
            read += _rows([batch])
            if n == 2:
                break
        state = json.loads(json.dumps(loader.state_dict()))
        assert (state["epoch"], state["consumed"]) == (1, 18)
        assert read + _rows(loader) == second
        other = tokenmill.data.TorchLoader(packed.samples(5, world_size=1), **options)
        other.load_state_dict(state)
        rest = {json.dumps(row) for row in _rows(other)}
        assert rest >= {json.dumps(row) for row in second[9:]}

    def test_a_dataset_is_a_map_style_dataset(self, torch, packed) -> None:
        loader = torch.utils.data.DataLoader(packed, batch_size=8, num_workers=2)
        assert _rows(loader) == packed[:]["input_ids"].to_pylist()

    def test_batches_are_tensors_of_their_own(self, torch, data, packed) -> None:
        batch = next(iter(tokenmill.data.TorchLoader(packed.samples(4))))
        assert batch["input_ids"].dtype == torch.int32
        batch["input_ids"] += 1
        ragged = next(iter(tokenmill.data.TorchLoader(data.samples(4))))
        assert [len(ids) for ids in ragged["input_ids"]] == ragged["n_tokens"].tolist()

    @pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata 0.11 with PyTorch 2.15
    @pytest.mark.parametrize("n_workers", [0, 2])
    def test_a_stateful_loader_saves_and_restores_its_place(self, packed, n_workers) -> None:
        stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader

        def loader():
            steps = tokenmill.data.Steps(packed.samples(3, seed=1))
            own = tokenmill.data.TorchLoader(steps.samples, stateful, num_workers=n_workers)
            return own, own._loader

        whole = _rows(packed.samples(3, seed=1))
        _, first = loader()
        read = []
        for n, batch in enumerate(first):
            read += _rows([batch])
            if n == 3:
                break
        state = first.state_dict()  # of torchdata, for the same number of workers
        _, second = loader()
        second.load_state_dict(state)
        assert read + _rows(second) == whole
        own, _ = loader()  # ours, for any
        own.load_state_dict({**own.state_dict(), "consumed": len(read)})
        assert read + _rows(own) == whole


def test_grain_reads_a_dataset_as_a_source(packed) -> None:
    grain = pytest.importorskip("grain")
    read = [row["input_ids"].tolist() for row in grain.MapDataset.source(packed)]
    assert read == packed[:]["input_ids"].to_pylist()
    shuffled = grain.MapDataset.source(packed).shuffle(seed=1).batch(4)
    assert shuffled[0]["input_ids"].shape == (4, 16)
    sampler = grain.samplers.IndexSampler(len(packed), grain.sharding.NoSharding(), shuffle=True, num_epochs=1, seed=2)
    loader = grain.DataLoader(data_source=packed, sampler=sampler, worker_count=0)
    assert sorted(row["input_ids"].tolist() for row in loader) == sorted(read)


def test_tensorflow_gets_ragged_tensors(data) -> None:
    tf = pytest.importorskip("tensorflow")
    read = tokenmill.data.to_tf(data.samples(5, seed=1))
    rows = [row for batch in read for row in batch["input_ids"].to_list()]
    assert rows == _rows(data.samples(5, seed=1))
    (batch,) = read.take(1)
    assert batch["input_ids"].to_tensor().dtype == tf.int32
    assert batch["n_tokens"].numpy().tolist() == [len(row) for row in batch["input_ids"].to_list()]


@pytest.mark.parametrize("format", ["parquet", "arrow", "memmap", "megatron"])
def test_hugging_face_datasets_has_the_same_rows(jobs, format, tmp_path, monkeypatch) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    data = tokenmill.data.open(jobs["documents"].output, columns=["input_ids", "n_tokens"], format=format)
    theirs = tokenmill.data.to_hf(data)
    assert theirs[:]["input_ids"] == data[:]["input_ids"].to_pylist()
    assert theirs.column_names == ["input_ids", "n_tokens"]
    chosen = tokenmill.data.to_hf(data.where([3, 5, 90]))
    assert chosen[:]["input_ids"] == data[[3, 5, 90]]["input_ids"].to_pylist()


def test_a_fork_opens_everything_anew(data) -> None:
    expected = data[7]["input_ids"].tolist()
    data._lock.acquire()  # as if another thread had it
    if not (child := os.fork()):
        os._exit(data[7]["input_ids"].tolist() != expected or data[[7]]["input_ids"].to_pylist() != [expected])
    assert os.waitpid(child, 0)[1] == 0
    data._lock.release()
