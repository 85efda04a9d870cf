# SPDX-License-Identifier: Apache-2.0
"""`tokenmill fidelity`: what a config loses between text and ids, measured on a sample of its input."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.config.text import LanguageOptions
from tokenmill.pipeline.input import languages
from tokenmill.pipeline.input.reading import read_split
from tokenmill.pipeline.input.splitting import plan_splits
from tokenmill.pipeline.tokenizing import parts
from tokenmill.pipeline.training.tokenizers import load_tokenizer
from tokenmill.tokenizer import WordPiece, fidelity
from tokenmill.tokenizer.languages import DEFAULT, LanguageTextTokenizer
from tokenmill.tokenizer.text import TextChain


def measure(config: Config, n_documents: int) -> dict[str, Any]:
    """Returns the report of a config with `tokenizer.file`, as plain JSON.

    It reads the first documents of each split, about equally many of each, and holds them in memory.

    Args:
      config: the config of a job that tokenizes.
      n_documents: at most this many documents are read.

    Raises:
      OSError, ValueError: if the input or the tokenizer cannot be read.
    """
    documents, sources = _sample(config, n_documents)
    tokenizer = config.text.wrap(load_tokenizer(config.tokenizer))
    tokenizer.tokenizer.no_truncation()
    tokenizer.tokenizer.no_padding()
    text = documents.column("text")
    codes = documents.column("lang").to_pylist()
    prepared = languages.prepare(tokenizer, documents if config.languages is not None else documents.select(["text"]))
    report: dict[str, Any] = {
        "documents": documents.num_rows,
        "steps": _steps(config, tokenizer, text.to_pylist(), codes),
        "round_trip": {
            "by_language": _trips(fidelity.round_trips(tokenizer, text, codes)),
            "by_source": _trips(fidelity.round_trips(tokenizer, text, sources)),
        },
    }
    if isinstance(tokenizer.tokenizer.model, WordPiece):
        costs = fidelity.oov_costs(tokenizer.tokenizer, prepared.texts())
        report["oov"] = {cost.policy: dataclasses.asdict(cost) for cost in costs}
    return report


def _sample(config: Config, n_documents: int) -> tuple[pa.RecordBatch, list[str]]:
    """Returns documents with their languages, without those that a filter leaves out, and their sources."""
    splits = plan_splits(config.input, "")
    options = config.languages.options if config.languages is not None else LanguageOptions()
    batches: list[pa.RecordBatch] = []
    sources: list[str] = []
    for number, split in enumerate(splits):
        wanted = n_documents * (number + 1) // len(splits) - len(sources)
        for batch in read_split(dataclasses.replace(split, fields=""), config.input):
            if wanted <= 0:
                break
            batch = dataclasses.replace(batch, documents=batch.documents.slice(0, n_documents))
            batch = languages.tell_languages(batch, options)[0]
            if (of := config.output.parts) is not None and of.only is not None:
                batch = parts.leave_out_others(batch, config)[0]
            told = batch.documents.slice(0, wanted)
            wanted -= told.num_rows
            batches.append(told)
            sources += [split.source or split.pieces[piece].name for piece in told.column("piece").to_pylist()]
    if not sources:
        raise ValueError("input.paths: no document to look at")
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0], sources


def _steps(config: Config, tokenizer: Any, texts: Sequence[str], codes: Sequence[str]) -> list[dict[str, Any]]:
    """Returns what each step does; spans are not cut out here, so that each step sees whole documents."""
    chains: Mapping[str, TextChain] = {"": tokenizer.chain}
    if isinstance(tokenizer, LanguageTextTokenizer):
        chains = dict(zip(tokenizer.router.names, tokenizer.chains, strict=True))
    found: list[dict[str, Any]] = []
    for name, chain in chains.items():
        mine = [t for t, c in zip(texts, codes, strict=True) if not name or name == (c if c in chains else DEFAULT)]
        prefix = f"{name}." if name else ""
        losses = fidelity.step_losses(chain, mine) if mine else []
        found += [{**dataclasses.asdict(loss), "step": prefix + loss.step} for loss in losses]
    return found


def _trips(trips: Sequence[fidelity.RoundTrip]) -> dict[str, Any]:
    return {trip.group: {**dataclasses.asdict(trip), "rate": trip.rate} for trip in trips}


def render(report: Mapping[str, Any]) -> list[Any]:
    """Returns the report as what rich prints."""
    from rich.table import Column, Table

    parts: list[Any] = [f"{report['documents']:,} documents"]
    if report["steps"]:
        table = Table(
            Column("step", no_wrap=True),
            "characters",
            "changed",
            "dropped",
            "inserted",
            "merged",
            "most frequent merges",
        )
        for step in report["steps"]:
            merges = ", ".join(f"{old!r} to {new!r} {n:,}" for old, new, n in step["merged"][:3])
            numbers = (f"{step[f'n_{n}']:,}" for n in ("chars", "changed", "dropped", "inserted", "merged"))
            table.add_row(step["step"], *numbers, merges)
        parts.append(table)
    for group, trips in report["round_trip"].items():
        table = Table(group.removeprefix("by_"), "documents", "come back", "but for spaces", "first that does not")
        for name, trip in trips.items():
            example = " | ".join(repr(side) for side in trip["examples"][0]) if trip["examples"] else ""
            share = f"{trip['rate']:.1%}"
            same = f"{trip['n_same_but_spaces'] / trip['n_documents']:.1%}"
            table.add_row(name, f"{trip['n_documents']:,}", share, same, example)
        parts.append(table)
    if "oov" in report:
        table = Table("oov", "words", "touched", "characters swallowed", "not in the vocabulary", "swallowed by script")
        for name, cost in report["oov"].items():
            scripts = ", ".join(f"{script} {n:,}" for script, n in list(cost["swallowed"].items())[:6])
            numbers = (f"{cost[f'n_{n}']:,}" for n in ("words", "words_touched", "chars_swallowed", "chars_unknown"))
            table.add_row(name, *numbers, scripts)
        parts.append(table)
    return parts
