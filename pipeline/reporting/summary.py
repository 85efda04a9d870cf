# SPDX-License-Identifier: Apache-2.0
"""The summary of a finished job on the screen: one table, from the files that it wrote."""

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, TypeAdapter
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tokenmill.pipeline import filenames, storage
from tokenmill.pipeline.books import json_files, parts
from tokenmill.pipeline.books.json_files import Count
from tokenmill.pipeline.books.manifest import read as read_manifest
from tokenmill.pipeline.books.reject_limits import LossyFiles, unknown_tokens
from tokenmill.pipeline.config.formats import format_of, formats_with
from tokenmill.pipeline.config.input import SourceConfig
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.config.text import UNKNOWN
from tokenmill.pipeline.counting import counts
from tokenmill.pipeline.reporting import stats_file
from tokenmill.pipeline.reporting.advice import LEAST_SHARE, of_cut, of_documents
from tokenmill.pipeline.reporting.stats_file import StatsFile
from tokenmill.pipeline.running.display import duration, megabytes
from tokenmill.tokenizer import Tokenizer


def summarize(output: str, seconds: float, *, is_resumed: bool = False) -> RenderableType:
    """Returns the summary of the finished job in an output folder.

    Args:
      seconds: how long the job took; for the screen only, no file contains it.
      is_resumed: whether earlier runs did a part of it; then its speed is not known.
    """
    if parts.is_in_parts(output):
        return _parts(output, seconds)
    manifest = read_manifest(output)
    rows = [*(_tokens if manifest["shards"] else _counts)(output, manifest)]
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim", overflow="fold")
    for row in [*rows, _speed(rows, seconds, is_resumed)]:
        table.add_row(*row)
    return Group(Text(f"{manifest['job']}: done", style="bold green"), table, *_files(output, manifest))


def _parts(output: str, seconds: float) -> RenderableType:
    """Returns the summary of an output in parts: a row for each, and one for all."""
    found = parts.read(output)
    table = Table("", "documents", "rejected", "tokens", "vocabulary", "unknown tokens", box=None, padding=(0, 2, 0, 0))
    for part in [*found["parts"], found]:
        totals, size = part["totals"], part["tokenizer"]["vocab_size"] if "tokenizer" in part else None
        rejected = sum(totals["rejected"].values())
        numbers = (totals["n_documents"], rejected, totals["n_tokens"], size, totals["n_oov_tokens"])
        table.add_row(part.get("folder", "all"), *("" if n is None else f"{n:,}" for n in numbers))
    totals = found["totals"]
    filtered = f", {sum(totals['filtered'].values()):,} filtered" if totals["filtered"] else ""
    read = f"{totals['n_records']:,} records{filtered}, {megabytes(totals['n_bytes'])} in {duration(seconds)}"
    is_one = len({part["tokenizer"]["digest"] for part in found["parts"]}) == 1
    vocabulary = f", the vocabulary in {parts.vocabulary_in(output)}" if is_one else ""
    lines = [f"{read}; in {output}, with {filenames.PARTS}{vocabulary}"]
    done = Text(f"{found['job']}: done", style="bold green")
    for part in found["parts"]:
        for step, _, grown in _resized(stats_file.read(storage.join(output, part["folder"]))):
            lines.append(f"{part['folder']}: {step}: {grown}")
    return Group(done, table, *lines)


Row = tuple[str, str, str]


class _Training(BaseModel):
    """What is read of `training.json`."""

    model_config = ConfigDict(strict=True)

    model: str
    asked_vocab_size: Count
    vocab_size: Count
    n_distinct_words: Count
    label: str | None = None
    coverage: list[Mapping[str, float]] = []


_TRAINING = TypeAdapter(_Training)
_MOST_SOURCES = 20
_MOST_FIELDS = 5
_LINES_PER_FILE = 1000
"""Where the config does not say what a document is, this many per file are warned of."""


def _tokens(output: str, manifest: Mapping[str, Any]) -> Iterator[Row]:
    totals, stats = manifest["totals"], stats_file.read(output)
    made, vocabulary = stats.tokens_made, stats.vocabulary
    yield from _input(totals)
    for name, each in itertools.islice((stats.sources or {}).items(), _MOST_SOURCES):
        rejected = f"{each.rejected:,} rejected, " if each.rejected else ""
        yield f"  {name}", f"{each.documents:,}", f"documents, {rejected}{each.tokens:,} tokens"
    yield "words", f"{stats.spaced_words:,}", f"{totals['n_chars']:,} characters"
    yield from _resized(stats)
    used = f"{vocabulary.used:,} of {vocabulary.size:,} vocabulary entries used"
    yield "tokens", f"{totals['n_tokens']:,}", used
    if made.cut:
        share = _share(made.share_cut, f"of the {made.text:,} tokens of the text")
        yield "cut", f"{made.cut:,}", f"{share}, from {made.documents_cut:,} documents"
    if n_around := made.special + made.added:
        of = f"around documents: {made.special:,} special, {made.added:,} of output.prepend and append"
        yield "not of the text", f"{n_around:,}", of
    yield "unknown tokens", f"{totals['n_oov_tokens']:,}", _share(stats.oov.share_of_tokens, "of tokens")
    ratios = {"tokens per word": stats.tokens_per_spaced_word, "bytes per token": stats.bytes_per_token}
    yield from ((name, f"{ratio:.3f}" if ratio is not None else "-", "") for name, ratio in ratios.items())
    yield from _rows_of(stats)
    if added := stats.added_tokens_in_text:
        in_text = ", ".join(f"{token.token} {token.count:,}" for token in added[:3])
        yield "added tokens in text", f"{sum(token.count for token in added):,}", in_text


def _rows_of(stats: StatsFile) -> Iterator[Row]:
    """Yields what is said of rows that are no plain documents."""
    if (windows := stats.windows) is not None:
        repeated = _share(windows.share_of_tokens_repeated, "of tokens repeated")
        of = f"{windows.special:,} special tokens, {repeated}, {windows.split_documents:,} documents of several"
        yield "windows", f"{windows.windows:,}", of
    if (packing := stats.packing) is not None:
        split = _share(packing.share_of_documents_split, "of documents split")
        yield "sequences", f"{packing.sequences:,}", f"{_share(packing.share_of_padding, 'padding')}, {split}"
    if (chat := stats.chat) is None:
        return
    share = _share(chat.share_of_tokens_trained, "of tokens")
    yield "trained tokens", f"{chat.trained_tokens:,}", f"{share}, in {chat.turns:,} turns"
    if n := chat.unrendered_messages:
        yield "messages not shown", f"{n:,}", "the template leaves out their content"
    if lost := chat.fields_not_shown:
        most = [f"{name} {n:,}" for name, n in sorted(lost.items(), key=lambda item: -item[1])[:_MOST_FIELDS]]
        more = f", and {len(lost) - len(most)} more in stats.json" if len(lost) > len(most) else ""
        yield "fields not shown", f"{sum(lost.values()):,}", ", ".join(most) + more
    if n := chat.text_arguments:
        yield "arguments as text", f"{n:,}", "tool calls have them as JSON in a text"


def _counts(output: str, manifest: Mapping[str, Any]) -> Iterator[Row]:
    report = _read(output, manifest)
    if report is not None:
        totals, pruned = report["totals"], report["pruned"]
        yield from _input(totals)
        yield "words", f"{totals['n_words']:,}", f"{totals['n_distinct_words']:,} distinct"
        if report["labels"]:
            yield "groups", f"{len(report['groups']):,}", f"by {', '.join(report['labels'])}"
        if pruned["bound"]:
            left_out = f"distinct left out, {pruned['n_occurrences']:,} occurrences"
            yield "pruned", f"{pruned['n_words']:,}", f"{left_out}, none more than {pruned['bound']:,} times"
    by_size = sorted(_trained(output, manifest), key=lambda each: (os.path.dirname(each[0]), each[1]["vocab_size"]))
    for folder, record in by_size:
        of = f"tokens of {record['model']}, from {record['n_distinct_words']:,} distinct words"
        yield f"{folder}/", f"{record['vocab_size']:,}", of


def _trained(output: str, manifest: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields the folder and the training record of every vocabulary that the job trained."""
    for name in sorted({record["file"] for record in manifest["files"]}):
        folder, _, base = name.rpartition("/")
        if base == filenames.TRAINING_NAME:
            yield folder, json_files.read(output, name, _TRAINING)


def _speed(rows: Iterable[Row], seconds: float, is_resumed: bool) -> Row:
    if is_resumed:
        return "time", duration(seconds), "of this run; earlier ones did a part"
    n_bytes = next((int(number.replace(",", "")) for name, number, _ in rows if name == "bytes"), None)
    speed = f"{n_bytes / 1e6 / max(seconds, 1e-9):.1f} MB/s, start and end included" if n_bytes is not None else ""
    return ("time", duration(seconds), speed)


def _files(output: str, manifest: Mapping[str, Any]) -> list[str]:
    """Returns a line for each kind of file that the job wrote."""
    lines = []
    for kind, one in {"shards": "shard", "companions": "companion", "rejects": "reject file"}.items():
        records = manifest[kind]
        if records:
            n_bytes = sum(record["n_bytes"] for record in records)
            more = f" ... {records[-1]['file']}" if len(records) > 1 else ""
            plural = "s" if len(records) > 1 else ""
            lines.append(f"{len(records)} {one}{plural}, {megabytes(n_bytes)}: {records[0]['file']}{more}")
    others = [record["file"] for record in manifest["files"]]
    folders = sorted({f"{name.partition('/')[0]}/" if "/" in name else name for name in others})
    drawn = [name for name in filenames.OF_THE_MOMENT if storage.exists(storage.join(output, name))]
    lines.append(", ".join([*folders, filenames.MANIFEST, *drawn]))
    return [f"in {output}", *(f"  {line}" for line in lines)]


def _share(share: float | None, of: str) -> str:
    return f"{100 * share:.3f}% {of}" if share is not None else ""


def _input(totals: Mapping[str, Any]) -> Iterator[Row]:
    yield "documents", f"{totals['n_documents']:,}", f"of {totals['n_records']:,} records"
    for kind in ("rejected", "filtered"):
        if totals[kind] or kind == "rejected":
            yield kind, f"{sum(totals[kind].values()):,}", _listed(totals[kind])
    yield "bytes", f"{totals['n_bytes']:,}", megabytes(totals["n_bytes"])


def warnings(output: str, config: Config) -> list[str]:
    """Returns warnings about a finished job, a line each."""
    if parts.is_in_parts(output):
        return [
            f"{name}: {line}"
            for name, part in parts.configs(config).items()
            for line in (
                warnings(part.output.path, part)
                if name != f"lang={UNKNOWN}" or (part.languages is not None and UNKNOWN in part.languages.keep)
                else _lossy(part.output.path, read_manifest(part.output.path), part)
            )
        ]
    manifest = read_manifest(output)
    return [
        *_lossy(output, manifest, config),
        *_of_rows(output, manifest, config),
        *_of_vocabularies(output, manifest, config),
        *_of_input(manifest, config),
    ]


def _read(output: str, manifest: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Returns what says what was read: the manifest, or the report of a job that only counted; None if it did not."""
    if manifest["shards"]:
        return manifest
    has_counts = any(record["file"] == counts.REPORT_NAME for record in manifest["files"])
    return counts.read_report(output) if has_counts else None


def _lossy(output: str, manifest: Mapping[str, Any], config: Config) -> list[str]:
    read = _read(output, manifest)
    if read is None or not read["totals"]["rejected"]:
        return []
    inputs = read["inputs"] if manifest["shards"] else counts.inputs_of(output, read)
    return LossyFiles(config.input, inputs).warnings()


def _of_input(manifest: Mapping[str, Any], config: Config) -> Iterator[str]:
    """Yields warnings of fields that no document has, and of text files whose lines became documents unasked."""
    section, n_documents = config.input, manifest["totals"]["n_documents"]
    has_field = manifest["totals"].get("has_field", {})
    absent = [name for name, n in has_field.items() if not n and name in section.keep_fields]
    if absent and n_documents:
        yield f"input.keep_fields: no document has {', '.join(map(repr, absent))}"
    for each in section.by_source.values():
        name = each.own_id_field
        n_without = n_documents - has_field.get(name, n_documents)
        if n_without and (not section.sources or n_without == n_documents):
            yield (
                f"{each.where}.id_field: {n_without:,} of {n_documents:,} documents have no {name!r}; their ids are "
                "made of the name of the file and the place in it"
            )
    sections: Mapping[str, SourceConfig] = section.sources or {"": section}
    silent = {
        name for name, each in sections.items() if "document" not in each.model_fields_set and each.document == "line"
    }
    # Of a file without documents the manifest has no number of them; of other names the plan has warned.
    read = [
        each.get("read", {}).get("n_documents", 0)
        for each in (manifest["inputs"] if silent and manifest["shards"] else ())
        if format_of(each["name"]) and each["format"] in formats_with("document")
        if not {"", each["name"].partition("/")[0]}.isdisjoint(silent)
    ]
    if len(read) > 1 and sum(read) >= _LINES_PER_FILE * len(read):
        yield (
            f"input.document: {len(read):,} text files became {sum(read):,} documents, one per line; if a document is "
            "a file or a paragraph, say file or blank_line there; say line if it is right"
        )


def _of_rows(output: str, manifest: Mapping[str, Any], config: Config) -> Iterator[str]:
    """Yields warnings of an output without documents, of much that is cut, and of many unknown tokens."""
    read = _read(output, manifest)
    if read is not None:
        totals = read["totals"]
        lost = {kind: totals[kind] for kind in ("filtered", "rejected")}
        if none := of_documents(totals["n_documents"], totals["n_records"], lost):
            yield str(none)
    truncation = config.tokenizer.truncation
    if truncation is not None and manifest["shards"]:
        made, least = stats_file.read(output).tokens_made, truncation.warn_above
        if much := of_cut(made.cut, made.text, least, is_chat=config.input.is_chat):
            yield f"{much} (tokenizer.truncation.warn_above is {least})"


def _of_vocabularies(output: str, manifest: Mapping[str, Any], config: Config) -> Iterator[str]:
    """Yields warnings of vocabularies that are smaller than asked for, or lack much of what they were trained on.

    A job that also tokenizes has counted its unknown tokens.
    """
    train, trained = config.tokenizer.train, [*_trained(output, manifest)]
    for folder, record in trained:
        if record["vocab_size"] < record["asked_vocab_size"]:
            yield (
                f"tokenizer.train.vocab_size is {record['asked_vocab_size']:,}, but {folder} has "
                f"{record['vocab_size']:,} tokens: {record['n_distinct_words']:,} distinct words give no more within "
                "the limits of tokenizer.train, such as min_frequency; train on more text or ask for fewer"
            )
    for folder, record in trained if train is not None and not manifest["shards"] else ():
        assert train is not None
        vocabulary = Tokenizer.from_str(storage.read_text(storage.join(output, folder, "tokenizer.json"))).get_vocab()
        if record["model"] == "wordlevel":
            n = len(vocabulary.keys() - {*train.tokens, *config.text.tokens})
            what, share = "words", _share_of_other_words(record, n)
        elif record["model"] == "byte_level_bpe" or train.byte_fallback or record.get("label") is not None:
            continue  # nothing is unknown; or the counts do not say which characters the label has
        else:
            alphabet = counts.open_counts(train.counts or output).alphabet()
            known = {ord(each) for token in vocabulary if len(each := token.removeprefix("##")) == 1}
            what, share = "characters", 1 - alphabet[[*known]].sum() / max(1, alphabet.sum())
        if share > LEAST_SHARE:
            yield (
                f"about {share:.1%} of the {what} that {folder} was trained on are unknown to it, as it has "
                f"{record['vocab_size']:,} entries: raise {_WHAT_TO_RAISE[record['model']]}"
            )
    n_tokens, n_unknown = manifest["totals"]["n_tokens"], manifest["totals"]["n_oov_tokens"]
    if n_unknown > LEAST_SHARE * n_tokens:
        yield unknown_tokens(n_tokens, n_unknown, config.tokenizer)


_WHAT_TO_RAISE = {
    "wordlevel": "tokenizer.train.vocab_size, or lower tokenizer.train.min_frequency",
    "char": "tokenizer.train.vocab_size and character_coverage, or lower tokenizer.train.min_frequency",
    "unigram": "tokenizer.train.character_coverage",
    **dict.fromkeys(("wordpiece", "bpe"), "tokenizer.train.limit_alphabet and vocab_size"),
}


def _share_of_other_words(record: Mapping[str, Any], n: int) -> float:
    """Returns the share of all words but the `n` most frequent: training.json has it for powers of two."""
    tops, shares = zip(*((each["top_words"], each["share"]) for each in record["coverage"]), strict=True)
    return 1 - float(np.interp(np.log2(max(n, 1)), np.log2(tops), shares)) * (n > 0)


def _resized(stats: StatsFile) -> Iterator[Row]:
    """Yields a row for each step and language of which the step adds or removes more than 1 % of the characters."""
    for step in stats.text.steps if stats.text else ():
        for each in step.resized:
            share = "" if each.share is None else f", {each.share:+.1%}"
            of = "" if each.language is None else f" of {each.language}"
            grown = f"characters{of}: {each.characters:,} became {each.characters_after:,}{share}"
            yield step.step, f"{each.characters_after - each.characters:+,}", grown


def _listed(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {n:,}" for reason, n in sorted(reasons.items()))
