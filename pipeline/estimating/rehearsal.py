# SPDX-License-Identifier: Apache-2.0
"""A job on a page of made-up text, which compiles its kernels: those of a job whose input is not there yet.

Kernels are compiled where they are first called. So there is no list of them that could be out of date: the job itself
is run, with its own config, in a folder that is then removed.
"""

import itertools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from tokenmill.pipeline.books import parts
from tokenmill.pipeline.config.formats import SUFFIXES, USUAL, format_of
from tokenmill.pipeline.config.input import NO_LIMITS, InputConfig
from tokenmill.pipeline.config.job import Config, JobName
from tokenmill.pipeline.estimating.trial import run
from tokenmill.pipeline.input.readers import write
from tokenmill.pipeline.jobs import planning
from tokenmill.pipeline.training.tokenizers import given_tokenizer, stand_in
from tokenmill.tokenizer.compiling import kernel

_WORDS = 26_000
"""Distinct words of the sample: enough for tables to grow, and for more than 256 ids, which are written differently."""
_FOREIGN = (
    "Größe, naïve café; Ελληνικά и русский: 玫瑰花 3Ⰻ7 서울 東京タワー हिन्दी العربية 👩\u200d🔬 ﬁn½ […] "
    "'tis don't 12,345.67"
)
_VOCAB_SIZE, _ALPHABET = 4000, 64
_SPLIT_BYTES = 3 << 16
"""Cuts the sample into a large split and a small one: arrays of a few rows may have another type, to compile for."""


def rehearse(name: JobName, config: Config, look: Callable[[str], None] = lambda output: None) -> None:
    """Runs a job on the sample; leaves nothing behind but kernels in their cache.

    Args:
      look: what is done with each output folder that has rows.

    Raises:
      Exception: whatever the job raises for such a text. Kernels compiled before that stay.
    """
    from tokenmill.pipeline.reporting import page

    with tempfile.TemporaryDirectory(prefix="tokenmill-rehearsal-") as folder:
        small = _on_sample(config, Path(folder))
        plan = planning.plan_job(name, small)
        run(plan, publishes=True)
        for output in parts.folders_of(small.output.path) if plan.tokenizes else ():
            if small.output.report:
                page.draw(output)
            look(output)


def rehearse_encoding(config: Config) -> list[Path]:
    """Does first what `rehearse` does last: encodes, and tokenizes with a vocabulary of one letter.

    Another process compiles the kernels of reading, counting and training meanwhile; none is compiled twice.

    Returns:
      The kernels that this process has compiled.
    """
    tokenizer = stand_in(config) if config.tokenizer.train else given_tokenizer(config)
    if tokenizer is not None:
        tokenizer.encode_bare(pa.array(_texts(), pa.large_string()))
        assert tokenizer.encode(_FOREIGN).offsets
        with tempfile.TemporaryDirectory(prefix="tokenmill-rehearsal-") as folder:
            file = Path(folder, "tokenizer.json")
            file.write_text(tokenizer.to_str(), encoding="utf-8")
            section = config.tokenizer.model_copy(update={"train": None, "file": str(file)})
            rehearse("tokenize", config.model_copy(update={"tokenizer": section}))
    return kernel.saved


def _on_sample(config: Config, folder: Path) -> Config:
    """Returns the config with the sample for its input, written as its files are.

    The sample is in no language that a config would name, so all of it is kept, in one folder, with one vocabulary.
    """
    config = next(iter(parts.configs(config).values()))
    section = _input(config.input, folder / "sample")
    if config.input.sources:
        sources = {name: _input(each, folder / name) for name, each in config.input.by_source.items()}
        section = section.model_copy(update={"paths": [], "sources": sources})
    changes: dict[str, Any] = {"max_unknown_fraction": 1.0}  # of a made-up text
    if (train := config.tokenizer.train) is not None:
        smaller: dict[str, Any] = {"vocab_size": _VOCAB_SIZE + len(train.tokens)}
        if train.limit_alphabet is not None:  # so that some characters are unknown, as in a larger corpus
            smaller["limit_alphabet"] = min(train.limit_alphabet, _ALPHABET + len(train.initial_alphabet or ()))
        changes["train"] = train.model_copy(update=smaller)
    of, languages = config.output.parts, config.languages
    one = of.model_copy(update={"by": None}) if of is not None and of.shares else None
    return config.model_copy(
        update={
            "input": section,
            "counts": config.counts.model_copy(update={"sources": {}}),  # whose patterns do not know the sample
            "tokenizer": config.tokenizer.model_copy(update=changes),
            "output": config.output.model_copy(update={"path": str(folder / "out"), "parts": one}),
            "languages": languages and languages.model_copy(update={"keep": [], "drop": []}),
            "chat": None,
        }
    )


def _input(section: InputConfig, path: Path) -> InputConfig:
    """Returns the section `input`, or that of a source, with the sample, in its format, for its files."""
    names = [each.lower() for each in section.paths]
    guessed = format_of(next((end for end in SUFFIXES if any(end in name for name in names)), ""))
    name = section.format if section.format != "auto" else guessed.name if guessed else USUAL
    path = path.with_suffix(f".{name}")
    records = [
        {"number": [number, 1.5e3, True, None], section.id_field or "id": f"{number}", section.text_field: text}
        for number, text in enumerate(_texts())
    ]
    path.write_bytes(write(name, records, section))
    return section.model_copy(
        update={
            "paths": [str(path)], "format": name, "compression": "none", "encoding": "utf-8", **NO_LIMITS,
            "text_fields": [], "keep_fields": [], "messages_field": None, "chat_fields": {}, "chat_roles": {},
            "sample": section.sample and 0.5, "split_bytes": _SPLIT_BYTES,
        }
    )  # fmt: skip


def _texts() -> Iterator[str]:
    """Yields documents: in many scripts, escaped, empty, long."""
    syllables = [first + second for first in "bdfgklmnprstvz" for second in "aeiou"]
    longer = (itertools.product(syllables, repeat=n) for n in (1, 2, 3))
    words = list(itertools.islice(map("".join, itertools.chain.from_iterable(longer)), _WORDS))
    yield _FOREIGN
    yield ""
    yield 'a "quoted"\tword\n' + "x" * 300
    for start in range(0, _WORDS, 60):
        yield ", ".join(words[start : start + 60]).capitalize() + ". The mill grinds text into tokens.\n"
