# SPDX-License-Identifier: Apache-2.0
"""Runs a job on a page of text, in parts that run at once, to compile the kernels that it needs. No Beam here.

Kernels are compiled where they are first called. So there is no list of them that could be out of date: a part runs the
job's own code, in a folder that is then removed. A part begins in the middle of the job, with made-up input in place of
the results of the part before it, so that no part waits for another.
"""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tokenmill.pipeline import schemas
from tokenmill.pipeline.books.partitions import partition_configs
from tokenmill.pipeline.books.shard_entry import runs_of
from tokenmill.pipeline.config.formats import SUFFIXES, USUAL, FormatName, format_of
from tokenmill.pipeline.config.input import NO_LIMITS
from tokenmill.pipeline.config.job import Config, JobName
from tokenmill.pipeline.config.output import largest
from tokenmill.pipeline.counting import count, finishing
from tokenmill.pipeline.counting.partitions import N_PARTITIONS
from tokenmill.pipeline.input.readers import READERS
from tokenmill.pipeline.jobs import planning
from tokenmill.pipeline.jobs.finish import finish_output
from tokenmill.pipeline.output.shard import Shard
from tokenmill.pipeline.output.staging import Staging
from tokenmill.pipeline.output.writers.base import TokenizerInfo
from tokenmill.pipeline.statistics.tally import Statistics
from tokenmill.pipeline.tokenizing.tokenize import merge_planned, tokenize_split
from tokenmill.pipeline.training.tokenizers import counting_tokenizer, train_tokenizer
from tokenmill.tokenizer import Tokenizer, WordPiece

_WORDS = 26_000
"""Distinct words of the sample: enough for tables to grow, and for more than 256 ids, which are written differently."""

_FOREIGN = (
    "Größe, naïve café; Ελληνικά и русский: 玫瑰花 3Ⰻ7 서울 東京タワー हिन्दी العربية 👩\u200d🔬 ﬁn½ […] "
    "'tis don't 12,345.67"
)

_VOCAB_SIZE = 4000
_SPLIT_BYTES = 3 << 16
"""Cuts the sample into a large split and a small one: arrays of a few rows may have another type, to compile for."""


def parts_of(name: JobName, config: Config) -> list[str]:
    """Returns the parts of a job, the longest to compile first."""
    train = config.tokenizer.train if name in ("run", "train") else None
    parts = ["tokenizing"] if name in ("run", "tokenize") else []
    if name in ("count", "train", "run") and (name == "count" or (train is not None and train.counts is None)):
        parts.append("counting")
    if train is not None:
        parts.append("training")
    if "tokenizing" in parts and config.output.shuffle is None and config.output.packing is None:
        parts.append("writing")
    return parts


def rehearse(part: str, name: JobName, config: Config) -> None:
    """Does a part of a job on the sample; leaves nothing behind but kernels in their cache.

    Raises:
      Exception: whatever the job's code raises for such a sample. Kernels compiled before that stay.
    """
    with tempfile.TemporaryDirectory(prefix="tokenmill-rehearsal-") as folder:
        _PARTS[part](name, on_sample(config, Path(folder)))


def _count(name: JobName, config: Config) -> None:
    plan = planning.plan_job(name, config)
    assert plan.counting_json is not None
    planning.prepare(plan, "new")
    output, counts = config.output.path, config.counts
    tokenizer = Tokenizer.from_str(plan.counting_json)
    key = count.count_key(config.input, counts, plan.counting_json, config.text)
    splits = [
        count.count_split(split, config.input, output, tokenizer, key, counts, text=config.text)
        for split in plan.splits
    ]
    partitions = [
        finishing.merge_partition(number, N_PARTITIONS, splits, output, counts.by) for number in range(N_PARTITIONS)
    ]
    finishing.finish_counts(splits, partitions, output, key, plan.counting_json, counts.by)


def _train(_: JobName, config: Config) -> None:
    train_tokenizer(_word_counts(), config.tokenizer, tuple(config.text.tokens))


def _tokenize(name: JobName, config: Config) -> None:
    for part in partition_configs(config).values():
        assert part.languages is not None
        everything = part.languages.model_copy(update={"partition": None})  # the sample is in no language
        _tokenize(name, part.model_copy(update={"languages": everything}))
    if config.tokenizer.by is not None:
        return
    tokenizer = _tokenizer(config) if config.tokenizer.train is not None else None
    if tokenizer is not None:  # as if it had been trained, and saved
        path = Path(config.output.path).parent / "tokenizer.json"
        path.write_text(tokenizer.to_str(), encoding="utf-8")
        section = config.tokenizer.model_copy(update={"train": None, "file": str(path), "oov": None})
        config = config.model_copy(update={"tokenizer": section})
    plan = planning.plan_job("tokenize", config)
    assert plan.tokenizer is not None
    planning.prepare(plan, "new")
    tokenizer = Tokenizer.from_str(plan.tokenizer.to_str())
    entries = [tokenize_split(split, config, tokenizer, len(plan.splits)) for split in plan.splits]
    for shard in plan.shards():
        merge_planned(shard, [runs_of(entry) for entry in entries], config, tokenizer)
    finish_output(config, plan.job, plan.splits, tokenizer)


def _tokenizer(config: Config) -> Tokenizer:
    """Returns the tokenizer that training makes of the sample; for WordPiece a similar one, made without training."""
    train = config.tokenizer.train
    assert train is not None
    if train.model != "wordpiece":
        (tokenizer,) = train_tokenizer(_word_counts(), config.tokenizer, tuple(config.text.tokens)).values()
        return tokenizer
    tokens = (*train.tokens, *config.text.tokens)
    characters = sorted({character for text in _texts() for character in text.lower() if character not in " 3Ⰻ"})
    pieces = [word for word in _words() if len(word) % 2]
    vocab = dict.fromkeys([*tokens, *characters, *(f"##{character}" for character in characters), *pieces])
    model = WordPiece(
        {token: number for number, token in enumerate(vocab)},
        unk_token=train.unk_token or tokens[0],
        oov_policy=config.tokenizer.oov or "word",
    )
    return counting_tokenizer(config.tokenizer).with_model(model, tokens, train.user_defined_symbols or ())


def _write(_: JobName, config: Config) -> None:
    """Writes rows as if they had come from a tokenizer."""
    texts = pa.array(list(_texts()))
    vocab_size = _VOCAB_SIZE if config.tokenizer.train is not None else 1 << 17
    lengths = np.arange(len(texts), dtype=np.int64)
    offsets = np.concatenate([np.zeros(1, np.int64), lengths.cumsum()])
    tokens = pa.LargeListArray.from_arrays(offsets, np.arange(offsets[-1], dtype=np.int32) % vocab_size)
    starts = tokens.offsets.to_numpy()[:-1]
    n_oov = Statistics(vocab_size, 1).update(texts, tokens.values.to_numpy(), starts, starts + lengths)
    schema = schemas.placed(schemas.TOKENS)
    columns = {
        "doc_id": pa.array([f"{number}" for number in range(len(texts))]),
        "input_ids": tokens,
        "n_tokens": pa.array(lengths.astype(np.int32)),
        "n_oov": pa.array(n_oov),
    }
    rows = [columns[each.name] if each.name in columns else pa.array([0] * len(texts), each.type) for each in schema]
    batch = pa.RecordBatch.from_arrays(rows, schema=schema)
    info = TokenizerInfo("", vocab_size)
    with Staging(config.output.path, "rehearsal") as staging:
        # Rows joined from several batches are arrays of another type, for which kernels are compiled separately.
        for index, batches in enumerate(([batch], [batch.slice(0, 9)] * 3)):
            shard = Shard(staging, index, 2, config.output, info, schema=schema)
            for each in batches:
                shard.write(each)
            shard.finish()


_PARTS: Mapping[str, Callable[[JobName, Config], None]] = {
    "counting": _count, "training": _train, "tokenizing": _tokenize, "writing": _write,
}  # fmt: skip


def on_sample(config: Config, folder: Path) -> Config:
    """Returns the config with the sample for its input, written as its files are.

    The sample is in no language that a config would name, so all of it is kept, and one vocabulary trained on it.
    """
    if config.tokenizer.train is not None:
        config = next(iter(partition_configs(config).values()), config)
    format_ = _guess_format(config.input.paths) if config.input.format == "auto" else config.input.format
    section = config.input.model_copy(
        update={
            "paths": [_write_sample(config, format_, folder)], "format": format_, "compression": "none",
            "encoding": "utf-8", **NO_LIMITS, "text_fields": [], "keep_fields": [],
            "sample": config.input.sample and 0.5, "split_bytes": _SPLIT_BYTES,
        }
    )  # fmt: skip
    tokenizer = config.tokenizer
    if tokenizer.train is not None:
        size = _VOCAB_SIZE + len(tokenizer.train.tokens)
        tokenizer = tokenizer.model_copy(update={"train": tokenizer.train.model_copy(update={"vocab_size": size})})
    one: dict[str, Any] = {"partition_by": [], "split_by": None, "part": largest(config.output.splits)}
    output = config.output.model_copy(update={"path": str(folder / "out"), **one})
    languages = config.languages
    if languages is not None:
        languages = languages.model_copy(update={"keep": [], "drop": [], "partition": None})
    sections = {"input": section, "tokenizer": tokenizer, "output": output, "languages": languages}
    return config.model_copy(update=sections)


def _guess_format(paths: Sequence[str]) -> FormatName:
    names = [path.lower() for path in paths]
    found = format_of(next((end for end in SUFFIXES if any(end in name for name in names)), ""))
    return USUAL if found is None else found.name


def _write_sample(config: Config, format_: FormatName, folder: Path) -> str:
    path = folder / f"sample.{format_}"
    records = [
        {
            "number": [number, 1.5e3, True, None],
            config.input.id_field or "id": f"{number}",
            config.input.text_field: text,
        }
        for number, text in enumerate(_texts())
    ]
    path.write_bytes(READERS[format_].write(records, config.input))
    return str(path)


def _words() -> Iterator[str]:
    syllables = [first + second for first in "bdfgklmnprstvz" for second in "aeiou"]
    for number in range(_WORDS):
        word = ""
        while number or not word:
            number, digit = divmod(number, len(syllables))
            word += syllables[digit]
        yield word


def _texts() -> Iterator[str]:
    """Yields documents: in many scripts, escaped, empty, long."""
    words = list(_words())
    yield _FOREIGN
    yield ""
    yield 'a "quoted"\tword\n' + "x" * 300
    for start in range(0, _WORDS, 60):
        yield ", ".join(words[start : start + 60]).capitalize() + ". The mill grinds text into tokens.\n"


def _word_counts() -> pa.Table:
    counts = Counter(word for text in _texts() for word in text.lower().split())
    words = sorted(counts, key=str.encode)
    columns = [
        pa.array([word.encode() for word in words], pa.large_binary()),
        pa.array([counts[word] for word in words]),
    ]
    return pa.Table.from_arrays(columns, schema=schemas.WORD_COUNTS)
