# SPDX-License-Identifier: Apache-2.0
"""Mixtures: shares in tokens at every prefix, exact counts, the order when a run is resumed, and what is refused."""

import json
import pickle
import random
import re
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokenmill.data
from tests.pipeline.data.test_samples import Cluster
from tests.plain_job import PlainJob
from tests.reference import mixture as reference
from tokenmill.data import Mixture, Rows, mix


class Made(Rows):
    """Rows that are numbers from `first` on, with given numbers of tokens, some of which are trained."""

    def __init__(self, sizes, first: int = 0, name: str = "made", columns=None, trained=None) -> None:
        self.arrays = {
            "row": pa.array(first + np.arange(len(sizes))),
            "n_tokens": pa.array(np.asarray(sizes, np.int32)),
        }
        if trained is not None:
            masks = [[i < n for i in range(size)] for size, n in zip(sizes, trained, strict=True)]
            self.arrays["loss_mask"] = pa.array(masks, pa.large_list(pa.bool_()))
        self.arguments, self.name, self.digest = (sizes, first, name), name, f"{name}{len(sizes)}"
        self.trained = trained
        fields = [pa.field(key, array.type, nullable=False) for key, array in self.arrays.items()]
        self.batch = pa.record_batch(list(self.arrays.values()), schema=pa.schema(fields))
        self.batch = self.batch.select(columns or list(self.arrays))
        self.schema = self.batch.schema

    def __len__(self) -> int:
        return self.batch.num_rows

    def take(self, rows):
        return self.batch.take(pa.array(self.checked(rows)))

    def with_columns(self, columns):
        return Made(*self.arguments, columns, self.trained)


sizes_of_rows = st.lists(st.integers(0, 50), min_size=1, max_size=9).filter(any)


def check_prefixes(mixture: Mixture, sizes: list, stages: list[dict[str, int]], names: list[str]) -> np.ndarray:
    """Checks each prefix against what each source should have given by then; returns the tokens that all gave."""
    sources, rows = mixture.places(np.arange(len(mixture)))
    tokens = np.array([sizes[source][row] for source, row in zip(sources, rows, strict=True)])
    now = np.cumsum(tokens)
    asked = np.cumsum([[0] * len(names), *([stage.get(name, 0) for name in names] for stage in stages)], axis=0)
    longest = max(map(max, sizes))
    for i in range(len(names)):
        given_ = np.cumsum(np.where(sources == i, tokens, 0))
        should = np.interp(now, asked.sum(axis=1), asked[:, i])
        assert (given_ - should).max() <= max(sizes[i]) + 1e-6
        assert (should - given_).max() <= longest + 1e-6
        assert asked[-1, i] <= given_[-1] < asked[-1, i] + max(sizes[i])
    return np.bincount(sources, tokens, len(names))


@given(
    st.lists(sizes_of_rows, min_size=1, max_size=8),
    st.lists(st.sampled_from([256, 512, 1024]), min_size=1, max_size=3),
    st.randoms(use_true_random=False),
)
def test_shares_are_within_one_sample_at_every_prefix(sizes, totals, chance) -> None:
    names = [f"s{i}" for i in range(len(sizes))]
    rows = {name: {"rows": Made(size, name=name)} for name, size in zip(names, sizes, strict=True)}
    stages = [{"total_tokens": totals[0], "sources": {name: {"weight": chance.choice([1, 2, 3])} for name in names}}]
    for total in totals[1:]:
        its = {
            name: {"weight": chance.choice([1 / 3, 1, 7, 100])} for name in chance.sample(names, len(names) // 2 + 1)
        }
        stages.append({"total_tokens": total, "sources": its})
    plan = mix(rows, stages=stages, seed=None)
    assert [sum(stage.values()) for stage in plan.stages] == totals
    with TemporaryDirectory() as folder:
        mixture = plan.write(folder)
        counts = check_prefixes(mixture, sizes, plan.stages, names)
        # Totals are powers of two, so that the kernel computes without rounding, too.
        goals = [[stage.get(name, 0) for name in names] for stage in plan.stages]
        assert mixture.places(np.arange(len(mixture)))[0].tolist() == reference.choose(sizes, goals)
    assert [mixture.record["given"][name]["tokens"] for name in names] == counts.tolist()


def test_ten_thousand_samples_are_what_was_asked_and_their_counts_those_of_a_recount(tmp_path) -> None:
    chance = np.random.default_rng(58)
    sizes = [
        np.maximum(1, chance.lognormal(5, spread, n).astype(int)) for spread, n in ((1, 5000), (0.1, 90), (2, 700))
    ]
    names = ["web", "code", "books"]
    sources = [Made(size, 10_000 * i, name) for i, (size, name) in enumerate(zip(sizes, names, strict=True))]
    shares_ = [{"weight": 0.6}, {"epochs": 20}, {"weight": 0.3}]
    plan = mix(
        {name: {"rows": rows, **share} for name, rows, share in zip(names, sources, shares_, strict=True)},
        total_tokens=3_100_000,
        seed=4,
    )
    assert plan.tokens["code"] == 20 * sizes[1].sum()
    assert abs(plan.tokens["web"] - 2 * plan.tokens["books"]) <= 2
    mixture = plan.write(tmp_path / "mix")
    assert len(mixture) > 10_000
    counts = check_prefixes(mixture, [size.tolist() for size in sizes], plan.stages, names)
    read = [row for batch in mixture.samples(64) for row in batch["row"].tolist()]
    for i, name in enumerate(names):
        its = [row - 10_000 * i for row in read if row // 10_000 == i]
        given_ = mixture.record["given"][name]
        assert given_ == {"rows": len(its), "tokens": int(counts[i])}
        assert sum(sizes[i][its]) == counts[i]
        for first in range(0, len(its), len(sizes[i])):  # every row once in each epoch
            epoch = its[first : first + len(sizes[i])]
            assert len(set(epoch)) == len(epoch)
    assert mixture.record["given"]["code"]["rows"] == 20 * 90
    chosen = chance.integers(0, len(mixture), 500)
    assert mixture[chosen]["row"].to_pylist() == [read[i] for i in chosen]
    assert (tmp_path / "mix/samples.bin").stat().st_size < 1.1 * len(mixture) + 2000
    again = plan.write(tmp_path / "again")
    assert again.digest == mixture.digest
    assert mix({"web": {"rows": sources[0]}}, total_tokens=9).write(tmp_path / "again").digest != mixture.digest


def test_a_run_over_a_mixture_reads_each_sample_once_on_any_number_of_ranks(tmp_path) -> None:
    chance = random.Random(5)
    sizes = [[chance.randint(0, 90) for _ in range(n)] for n in (700, 31)]
    sources = {
        "a": {"rows": Made(sizes[0], 0, "a"), "weight": 2},
        "b": {"rows": Made(sizes[1], 1000, "b"), "weight": 1},
    }
    mixture = mix(sources, total_tokens=60_000).write(tmp_path / "mix")
    whole = mixture[:]["row"].to_pylist()
    read: list[int] = []
    state, n_kills = None, 0
    while len(read) < 2 * len(whole):
        run = Cluster(mixture, chance.randint(1, 12), chance.randint(1, 5), state, seed=None)
        for _, rows in zip(range(chance.randint(0, 4)), run.steps(), strict=False):
            read += rows
        state = run.state()
        n_kills += 1
    assert n_kills > 20
    assert read == (3 * whole)[: len(read)]  # its order is the index's own, in each epoch


def test_weights_sizes_and_temperature_are_solved_before_work() -> None:
    rows = {"big": {"rows": Made([100] * 90)}, "small": {"rows": Made([100] * 10)}}
    assert mix(rows, total_tokens=1000).tokens == {"big": 900, "small": 100}
    assert mix(rows, total_tokens=1000, temperature=2).tokens == {"big": 750, "small": 250}
    assert mix(rows, total_tokens=1000, temperature=1e9).tokens == {"big": 500, "small": 500}
    fixed = {"big": {**rows["big"], "tokens": 700}, "small": {**rows["small"], "epochs": 2.5}}
    plan = mix(fixed)
    assert plan.tokens == {"big": 700, "small": 2500}
    assert plan.epochs == {"big": 7 / 90, "small": 2.5}
    assert mix(fixed, total_tokens=3200).tokens == plan.tokens
    lines = str(plan).splitlines()
    assert lines[0].split() == ["source", "has", "tokens", "gives", "share", "epochs"]
    assert lines[2].split() == ["small", "1,000", "2,500", "78.12%", "2.50"]
    stages = [
        {"total_tokens": 600, "sources": {"big": {"weight": 1}}},
        {"total_tokens": 400, "sources": {"big": {"weight": 1}, "small": {"tokens": 300}}},
    ]
    assert str(mix(rows, stages=stages)).splitlines()[-1] == "stage 2: 400 tokens: big 25.00%, small 75.00%"


def test_shares_are_of_trained_tokens_if_asked(tmp_path) -> None:
    sources = {
        "long": {"rows": Made([50] * 20, 0, trained=[5] * 20), "weight": 1},
        "short": {"rows": Made([10] * 20, 100, trained=[10] * 20), "weight": 1},
    }
    mixture = mix(sources, total_tokens=200, trained=True).write(tmp_path / "mix")
    rows = np.array(mixture[:]["row"])
    assert (np.sum(rows < 100), np.sum(rows >= 100)) == (20, 10)
    with pytest.raises(ValueError, match="none has no trained tokens"):
        mix({"none": {"rows": Made([3], trained=[0])}}, trained=True)


@pytest.mark.parametrize(
    ("sources", "options", "message"),
    [
        ({}, {}, "a mixture has 1 to 255 sources, not 0"),
        ({"a": {}}, {}, "a: give a path or rows, and one of weight, tokens, epochs"),
        ({"a": {"weigth": 2}}, {}, "a: give a path or rows"),
        ({"a": {"weight": 1, "tokens": 2}}, {}, "a: give one of weight, tokens, epochs, not weight and tokens"),
        ({"a": {"weight": 0}}, {"total_tokens": 9}, "a: weight must be a number above 0 and below 2\\*\\*62, not 0"),
        ({"a": {"epochs": float("nan")}}, {}, "a: epochs must be a number above 0 and below 2\\*\\*62, not nan"),
        ({"a": {"weight": 1}}, {"total_tokens": "1e9"}, "total_tokens must be a number above 0 and .*, not '1e9'"),
        ({"a": {"weight": 1}}, {"total_tokens": 1e30}, "total_tokens must be .* below 2\\*\\*62, not 1e\\+30"),
        ({"a": {"weight": 1}}, {}, "total_tokens is needed: the weights of a are shares of it"),
        ({"a": {"epochs": 2}}, {"total_tokens": 50}, "total_tokens is 50, but tokens and epochs of a ask for 60"),
        ({"a": {"epochs": 1}}, {"total_tokens": 50}, "total_tokens is 50, but tokens and epochs of a ask for 30"),
        ({"a": {"epochs": 1}, "b": {"weight": 1}}, {"total_tokens": 30}, "which leaves nothing for b"),
        ({"a": {"weight": 1}, "b": {"weight": 1e9}}, {"total_tokens": 30}, "a gives no token in any stage"),
        ({"a": {"weight": 1}}, {"stages": []}, "with stages, each of them has its total_tokens"),
        ({"a": {"tokens": 1}}, {"temperature": 0}, "temperature must be a number above 0 and below 2\\*\\*62, not 0"),
    ],
)
def test_what_cannot_be_mixed_is_refused(sources, options, message) -> None:
    for name, spec in sources.items():
        if spec and "weigth" not in spec:
            spec["rows"] = Made([10, 10, 10], name=name)
    with pytest.raises(ValueError, match=message):
        mix(sources, **options)


def test_stages_name_sources_that_there_are() -> None:
    rows = {"a": {"rows": Made([10])}}
    for stage, message in [
        ({"total_tokens": 5, "sources": {"b": {"weight": 1}}}, "a stage names b, but the sources are a"),
        ({"total_tokens": 5}, "a stage has total_tokens and sources, not total_tokens"),
        ({"total_tokens": 5, "sources": {"a": {"path": "x"}}}, "a: give one of weight, tokens, epochs, not path"),
    ]:
        with pytest.raises(ValueError, match=message):
            mix(rows, stages=[stage])
    with pytest.raises(ValueError, match="empty has no tokens"):
        mix({"empty": {"rows": Made([0])}})


@pytest.fixture(scope="module")
def vocab(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("vocab") / "vocab.txt"
    path.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"the mill grinds text a ##s".split()]))
    return path


@pytest.fixture(scope="module")
def outputs(tmp_path_factory, vocab) -> dict[str, Path]:
    made = {}
    for name, words in (("web", "the mill"), ("code", "grinds a text")):
        texts = [" ".join([words] * (i % 9)) for i in range(40)]
        folder = tmp_path_factory.mktemp(name)
        made[name] = PlainJob(folder, texts, vocab, output={"format": ["parquet", "memmap"]}).run().output
    return made


@pytest.fixture
def mixture(outputs, tmp_path) -> Mixture:
    sources = {name: {"path": path, "weight": 1} for name, path in outputs.items()}
    return mix(sources, total_tokens=500).write(tmp_path / "mix")


def test_a_mixture_of_outputs_is_read_from_its_folder_wherever_they_are(outputs, mixture, tmp_path) -> None:
    data = {name: tokenmill.data.open(path) for name, path in outputs.items()}
    sources, rows = mixture.places(np.arange(len(mixture)))
    expected = [data[list(outputs)[source]][int(row)] for source, row in zip(sources, rows, strict=True)]
    assert [row["input_ids"].tolist() for row in mixture.__getitems__(range(len(mixture)))] == [
        row["input_ids"].tolist() for row in expected
    ]
    again = tokenmill.data.open(mixture.name, columns=["input_ids"], format="memmap")
    assert again.schema.names == ["input_ids"]
    assert again[:]["input_ids"].equals(mixture[:]["input_ids"])
    pickled = pickle.dumps(again)
    assert len(pickled) < 2000
    assert pickle.loads(pickled)[7:3:-1].equals(again[7:3:-1])
    assert again[[]].num_rows == 0
    shutil.copytree(outputs["web"], tmp_path / "moved")
    moved = tokenmill.data.open(mixture.name, sources={"web": tmp_path / "moved"})
    assert moved.digest == mixture.digest
    assert moved.sources["web"].name == str(tmp_path / "moved")
    assert f"{len(mixture)} samples: web 2" in repr(moved)
    assert mixture.n_tokens == sum(each["tokens"] for each in mixture.record["given"].values())


def test_an_index_over_other_data_or_that_was_changed_is_refused(outputs, mixture, tmp_path) -> None:
    with pytest.raises(ValueError, match=r"its source 'web' has the digest \w+, but .*make the index again"):
        tokenmill.data.open(mixture.name, sources={"web": outputs["code"]})
    with pytest.raises(ValueError, match="has no source 'wbe', only web, code"):
        tokenmill.data.open(mixture.name, sources={"wbe": outputs["code"]})
    with pytest.raises(ValueError, match=r"(?s)its source 'code' cannot be opened: .* is no finished output.*sources="):
        tokenmill.data.open(mixture.name, sources={"code": tmp_path / "gone"})
    with pytest.raises(ValueError, match="it is not the data that is meant"):
        tokenmill.data.open(mixture.name, digest="0")
    with pytest.raises(ValueError, match="is no index, which has sources"):
        tokenmill.data.open(outputs["web"], sources={"web": outputs["web"]})
    with pytest.raises(ValueError, match="holds something that is no mixture"):
        mix({"web": {"path": outputs["web"], "epochs": 1}}).write(outputs["code"])
    data, record = tmp_path / "mix/samples.bin", tmp_path / "mix/mixture.json"
    whole, text = data.read_bytes(), record.read_text()
    for changed, message in [
        (whole[:-1], "samples.bin: cut short: "),
        (b"", "samples.bin: cut short: 0 bytes"),
        (whole + b"\0", "samples.bin: changed: "),
        (whole[:-1] + b"\1", "samples.bin: changed: its SHA-256 is"),
    ]:
        data.write_bytes(changed)
        with pytest.raises(ValueError, match=message):
            tokenmill.data.open(mixture.name)
    data.unlink()
    with pytest.raises(ValueError, match=r"samples.bin: not there, but mixture.json lists it; copy the index again"):
        tokenmill.data.open(mixture.name)
    data.write_bytes(whole)
    for changed_text, message in [
        (text.replace('"format_version": 1', '"format_version": 2'), "has format 2, this TokenMill reads 1"),
        (text.replace('"seed": 0', '"seed": 1'), "was changed: its digest is"),
        (text[:-5], "is not a mixture as TokenMill writes it"),
        (json.dumps([]), "is not a mixture as TokenMill writes it"),
    ]:
        record.write_text(changed_text)
        with pytest.raises(ValueError, match=re.escape(message)):
            tokenmill.data.open(mixture.name)


def test_outputs_that_do_not_fit_together_are_refused(outputs, tmp_path, vocab) -> None:
    other = tmp_path / "vocab.txt"
    other.write_text(vocab.read_text() + "\nmore")
    job = PlainJob(tmp_path, ["the mill"], other).run()
    with pytest.raises(ValueError, match="web and other have ids of different tokenizers"):
        mix({"web": {"path": outputs["web"]}, "other": {"path": job.output}})
    sources = {"made": {"rows": Made([5], name="m"), "tokens": 5}, "web": {"path": outputs["web"], "tokens": 5}}
    mixture = mix(sources).write(tmp_path / "mix")
    assert mixture.schema.names == ["n_tokens"]
    with pytest.raises(ValueError, match="its source 'made' has the digest m1, but it is not given"):
        tokenmill.data.open(mixture.name)
    assert len(tokenmill.data.open(mixture.name, sources={"made": Made([5], name="m")})) == len(mixture)
    long = pa.record_batch([pa.array([5])], schema=pa.schema([pa.field("n_tokens", pa.int64(), nullable=False)]))
    made = Made([5], name="m")
    made.batch, made.schema = long, long.schema
    with pytest.raises(ValueError, match="n_tokens is int64 in made, but int32 in web"):
        tokenmill.data.open(mixture.name, sources={"made": made})
