# SPDX-License-Identifier: Apache-2.0
"""The report as one page, which opens offline, loads nothing, runs no script, and shows text as text.

It presents what `facts.gather` returns; nothing is counted again. A document may be an attack: every text goes through
`elements.element`, which escapes it.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

from pipeline import filenames, storage
from pipeline.reporting import blocks, charts
from pipeline.reporting.blocks import code, details, left_out, percent, section, table
from pipeline.reporting.charts import number
from pipeline.reporting.elements import element
from pipeline.reporting.facts import gather
from pipeline.running.display import duration, megabytes
from tokenizer.languages import UNKNOWN

_LOST = ("rejected", "cut")
_KEPT = ("documents", "bytes of documents", "tokens")
_CHARTED, _MOST_STEPS, _MOST_ITEMS = 20, 50, 100


def draw(output: str) -> str:
    """Writes the page of a finished job into its output folder; returns its path.

    Raises:
      ValueError: if the folder holds no finished job with shards; OSError: if a file cannot be read or written.
    """
    path = storage.join(output, filenames.REPORT)
    storage.write_atomic(path, render(gather(output)).encode("utf-8"))
    return path


class Report(dict[str, Any]):
    """The report of a finished job, as `tokenmill report --json` prints it; a notebook shows it as a page."""

    def _repr_html_(self) -> str:
        return blocks.framed(render(self))


def read_report(output: str) -> Report:
    """Returns the report of a finished job; `stats` has the contents of `stats.json`.

    Args:
      output: its output folder.

    Raises:
      ValueError: if the folder holds no finished job with shards; OSError: if a file cannot be read.
    """
    return Report(gather(output))


def render(facts: Mapping[str, Any]) -> str:
    """Returns the page as HTML. Equal facts give equal pages; of the facts only `clock` differs from run to run.

    Args:
      facts: as `facts.gather` returns them.
    """
    sections = [made for made in _sections(facts) if made is not None]
    return blocks.document("TokenMill report", _sentence(facts), sections, _headline(facts["headline"]))


def _sections(facts: Mapping[str, Any]) -> Iterable[Element | None]:
    yield _advice(facts["advice"])
    yield _flow(facts)
    yield _vocabulary(facts["stats"])
    yield _lengths(facts["stats"])
    yield _languages(facts["languages"])
    yield _unknown(facts["stats"]["oov"])
    yield _text(facts["stats"].get("text"))
    yield _rejects(facts["rejected"])
    yield _sources(facts)
    yield _time(facts["clock"])
    yield _origin(facts)


def _advice(lines: Sequence[str]) -> Element:
    if not lines:
        return section("What to look at", "Nothing is unusual.")
    return section(
        "What to look at",
        "What is unusual, with the cause as far as it is known; the sections below have the details.",
        element("ul", *(element("li", line) for line in lines)),
    )


def _sentence(facts: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in sorted(facts["versions"].items()))
    file = (facts["clock"] or {}).get("tokenizer")
    named = f" {blocks.shortened(file)}" if file else ""  # a job that trained it has no file of it
    job, tokenizer = facts["job_digest"][:16], facts["tokenizer"]["digest"][:16]
    return f"Job {facts['job']}, digest {job}; tokenizer{named}, digest {tokenizer}; {versions}."


def _headline(headline: Mapping[str, Any]) -> Element:
    share = headline["share_of_unknown_tokens"]
    entries = [
        ("documents", number(headline["documents"])),
        ("input", megabytes(headline["bytes"])),
        ("tokens", number(headline["tokens"])),
        ("shards", f"{headline['shards']:,}, {megabytes(headline['shard_bytes'])}"),
        ("bytes per token", number(headline["bytes_per_token"])),
        ("tokens per word", number(headline["tokens_per_word"])),
        ("unknown tokens", percent(share)),
        ("rejected records", number(headline["rejected"])),
        ("filtered documents", number(headline["filtered"])),
        ("vocabulary", number(headline["vocabulary"])),
    ]
    return blocks.headline(entries)


def _flow(facts: Mapping[str, Any]) -> Element:
    stages = (_stage(stage) for stage in facts["flow"])
    return section(
        "Where everything went",
        "Each bar is a total; its parts are counted independently and must add up to it.",
        *stages,
    )


def _stage(stage: Mapping[str, Any]) -> Element:
    total, parts = stage["total"], {name: n for name, n in stage["parts"].items() if n or name in _KEPT}
    added, of = sum(stage["parts"].values()), ", ".join(f"{n:,} {name}" for name, n in stage["of"].items())
    pieces = (
        element("span", class_=_kind(name), style=f"width:{100 * n / total:.4f}%", title=f"{name}: {n:,}")
        for name, n in parts.items()
        if total
    )
    rows = ([name, f"{n:,}", percent(n / total if total else None)] for name, n in parts.items())
    is_right = added == total
    verdict = f"the parts add up to {added:,}" + ("" if is_right else f", which is not {total:,}")
    return element(
        "div",
        element("p", element("strong", f"{total:,} {stage['what']}"), f": {of}" if len(stage["of"]) > 1 else ""),
        element("div", *pieces, class_="bar", aria_hidden="true"),
        table(("part", stage["unit"], "share"), rows),
        element("p", verdict, class_="sum" if is_right else "sum wrong"),
        class_="stage",
    )


def _kind(name: str) -> str:
    return "kept" if name in _KEPT else "lost" if name.startswith(_LOST) else "other"


def _vocabulary(stats: Mapping[str, Any]) -> Element:
    vocabulary = stats["vocabulary"]
    used = f"{vocabulary['used']:,} of {vocabulary['size']:,} entries occur; "
    idle = f"{vocabulary['dead']:,} never do; {vocabulary['unreachable']:,} of them cannot, as no tried text is "
    idle += f"encoded with them, and {vocabulary['under_trained']:,} occur fewer than 100 times."
    curve = vocabulary["coverage_curve"]
    measures = [
        ["bits of entropy per token", number(vocabulary["entropy_bits"]), "more, where tokens are more even"],
        ["Rényi efficiency", number(vocabulary["renyi_efficiency"]), "of 1; order 2.5, Zouhar et al. 2023"],
        ["Zipf slope", number(vocabulary["zipf_slope"]), "about -1 for text"],
        ["share of tokens that continue a word", percent(stats["share_of_continuations"]), ""],
        ["tokens per word between white space", number(stats["tokens_per_spaced_word"]), ""],
        *_sample(stats["sample"]),
        [
            "share of tokens that are pieces of characters",
            percent(vocabulary["pieces"]["share_of_tokens"]),
            f"{vocabulary['pieces']['entries']:,} entries are",
        ],
    ]
    top = (
        [token["id"], _shown(token["token"]), f"{token['count']:,}"] for token in vocabulary["top_tokens"][:_CHARTED]
    )
    lost = ([token["id"], _shown(token["token"])] for token in vocabulary["unreachable_tokens"])
    figure = charts.line(
        "Share of all tokens that the most frequent entries make up, in percent.",
        [f"{point['entries']:,}" for point in curve],
        [100 * point["share"] for point in curve],
        ("entries", "percent of tokens"),
    )
    return section(
        "Vocabulary",
        used + idle,
        *([figure] if curve else []),
        table(("measure", "value", ""), measures),
        details("most frequent entries", table(("id", "token", "count"), top)),
        details("entries that no text is encoded with", table(("id", "token"), lost))
        if vocabulary["unreachable"]
        else "",
    )


def _sample(sample: Mapping[str, Any]) -> list[list[str]]:
    of = f"of a sample of {sample['documents']:,} documents, {megabytes(sample['bytes'])}"
    n_same = sample["documents_round_trip_but_for_spaces"]
    return [
        ["such words that are kept as one token", percent(sample["strr"]), of],
        [
            "documents whose tokens decode to their text, both normalized",
            percent(sample["share_round_trip"]),
            f"{of}; {n_same:,} do if white space is ignored",
        ],
    ]


def _lengths(stats: Mapping[str, Any]) -> Element:
    lengths = stats["lengths"]
    histogram = [bin_ for bin_ in lengths["histogram"] if bin_["rows"] or bin_["from"]]
    labels = [
        f"{each['from']:,}" if each["from"] == each["to"] else f"{each['from']:,}-{each['to']:,}" for each in histogram
    ]
    percentiles = (
        [f"{percent} %", number(value)]
        for percent, value in sorted((int(name[1:]), value) for name, value in lengths["percentiles"].items())
    )
    said = f"From {number(lengths['min'])} to {number(lengths['max'])} tokens, {number(lengths['mean'])} on average."
    figure = charts.columns(
        "Documents by how many tokens they have.", labels, [each["rows"] for each in histogram], ("tokens", "documents")
    )
    percents = table(("so many documents have at most", "tokens"), percentiles)
    return section("Lengths", said, *([figure] if histogram else []), percents)


def _languages(languages: Mapping[str, Any] | None) -> Element | None:
    if languages is None:
        return None
    rows = languages["rows"]
    known = (row for row in rows if row["premium"] and row["language"] != UNKNOWN)
    paid = sorted(known, key=lambda row: -row["premium"])[:_CHARTED]
    reference = languages["reference"]
    said = (
        f"The premium is what a character costs in tokens, against {reference}, which has most characters. Characters "
        "are those of the texts after the text steps, spaces that a step put between words included. "
        f"{UNKNOWN} stands for documents whose language was not found. The Gini "
        f"coefficient over languages is {number(languages['gini_of_tokens_per_character'])}; 0 is the same for "
        "all. Texts differ between languages, so this is a diagnostic, no measure of a language. Words are what stands "
        "between white space; which of them are kept whole is of a sample."
        if paid
        else "No document of a known language has a token."
    )
    listed = (
        [
            row["language"],
            f"{row['documents']:,}",
            f"{row['tokens']:,}",
            number(row["bytes_per_token"]),
            number(row["tokens_per_spaced_word"]),
            percent(row["sample"]["strr"]),
            number(row["premium"]),
            percent(row["share_of_oov_tokens"]),
            f"{row['filtered']:,}",
        ]
        for row in rows
    )
    heads = (
        *("language", "documents", "tokens", "bytes per token", "tokens per word", "words kept whole", "premium"),
        *("unknown tokens", "filtered"),
    )
    figure = charts.bars(
        f"Tokens per character, as a multiple of {reference}.",
        [row["language"] for row in paid],
        [row["premium"] for row in paid],
        "times",
    )
    return section(
        "Languages", said, *([figure] if paid else []), table(heads, listed), _left_out(languages, "languages")
    )


def _unknown(oov: Mapping[str, Any]) -> Element | None:
    if not oov["characters"]:
        return None
    needed = oov["characters_to_add"]
    said = (
        f"{oov['characters']:,} characters are unknown, {oov['distinct_characters']:,} different ones, in "
        f"{oov['words']:,} words. The {needed['95%']:,} most frequent, added to the vocabulary, would remove 95 % of "
        f"all that is unknown; {needed['50%']:,} would remove half of it."
    )
    listed = oov["top_characters"]
    characters = ([each["code_point"], _shown(each["character"]), f"{each['count']:,}"] for each in listed)
    share = sum(each["count"] for each in listed) / oov["characters"]
    removed = element(
        "p", f"These {len(listed):,} together are {percent(share)} of all that is unknown.", class_="soft"
    )
    more = left_out(oov["distinct_characters"] - len(listed), "characters")
    words = ([_shown(each["word"]), f"{each['count']:,}"] for each in oov["top_words"][:_CHARTED])
    scripts = ([each["script"], f"{each['count']:,}"] for each in oov["scripts"][:_CHARTED])
    top = oov["top_characters"][:_CHARTED]
    return section(
        "Unknown characters",
        said,
        charts.bars(
            "The most frequent unknown characters.",
            [f"{each['code_point']} {each['character']}" for each in top],
            [each["count"] for each in top],
            "occurrences",
        ),
        table(("script", "unknown characters"), scripts),
        details(
            "characters, most frequent first",
            element("div", table(("code point", "character", "count"), characters), removed, more),
        ),
        details("words with an unknown character", table(("word", "count"), words)),
    )


def _text(text: Mapping[str, Any] | None) -> Element | None:
    if text is None:
        return None
    steps = [step for step in text["steps"] if step["documents_changed"] or step["documents_rejected"]]
    idle = len(text["steps"]) - len(steps[:_MOST_STEPS])
    rows = (
        [
            step["step"],
            f"{step['documents_changed']:,} of {step['documents']:,}",
            f"{step['characters_changed']:,}",
            f"{step['characters_after'] - step['characters']:+,}",
            f"{step['documents_rejected']:,}",
        ]
        for step in steps[:_MOST_STEPS]
    )
    heads = ("step", "documents changed", "characters changed", "characters more or less", "given up on")
    resized = [
        [
            step["step"],
            each["language"] or "all",
            f"{each['characters']:,}",
            f"{each['characters_after']:,}",
            "" if each["share"] is None else f"{each['share']:+.1%}",
        ]
        for step in steps[:_MOST_STEPS]
        for each in step["resized"][:_MOST_STEPS]
    ]
    spans = ([token, f"{n:,}"] for token, n in itertools.islice(text["spans"].items(), _MOST_STEPS))
    merged = (
        [
            step["step"],
            _shown(each["word"]),
            ", ".join(f"{source} {n:,}" for source, n in list(each["sources"].items())[:5]),
        ]
        for step in steps[:_MOST_STEPS]
        for each in step.get("top_merged_words", ())[:10]
    )
    return section(
        "Text steps",
        "What each step changed, in the order in which they ran.",
        table(heads, rows),
        element("p", f"{idle:,} more steps changed nothing or are not shown.", class_="soft") if idle else "",
        table(("span", "found"), spans) if text["spans"] else "",
        element("p", "Steps that add or remove more than 1 % of the characters of a language:") if resized else "",
        table(("step", "language", "characters", "after it", "change"), resized) if resized else "",
        details("words that became one", table(("step", "word", "was"), merged)),
    )


def _rejects(rejected: Mapping[str, Mapping[str, Any]]) -> Element | None:
    if not rejected:
        return None
    reasons = (
        element(
            "div",
            element("p", element("strong", f"{found['count']:,} {reason}"), f": {found['meaning']}."),
            table(
                ("file", "offset", "what was found", "the record begins"),
                (
                    [each["source"], f"{each['offset']:,}", each["detail"], code(each["record"])]
                    for each in found["samples"]
                ),
            ),
        )
        for reason, found in rejected.items()
    )
    return section(
        "Rejected records",
        "All of them are in the folder rejected/ of the output; tokenmill replay CONFIG tokenizes them after a fix, "
        "without the rest.",
        *reasons,
    )


def _sources(facts: Mapping[str, Any]) -> Element:
    sources, shards = facts["sources"], facts["shards"]
    files = (
        [
            each["name"],
            megabytes(each["n_bytes"]),
            *(f"{each[name]:,}" for name in ("documents", "rejected", "filtered", "tokens")),
            number(each["characters_per_token"]),
            number(each["tokens_per_spaced_word"]),
            percent(each["share_of_oov_tokens"]),
        ]
        for each in sources["rows"]
    )
    heads = (
        *("input", "size", "documents", "rejected", "filtered", "tokens", "characters per token", "tokens per word"),
        "unknown tokens",
    )
    written = (
        [each["file"], f"{each['rows']:,}", f"{each['tokens']:,}", megabytes(each["n_bytes"])]
        for each in shards["rows"]
    )
    return section(
        "Files",
        f"{sources['n_all']:,} files were read, {shards['n_all']:,} shards written.",
        table(heads, files),
        _left_out(sources, "files, smaller ones,"),
        table(("shard", "rows", "tokens", "size"), written),
        _left_out(shards, "shards, smaller ones,"),
    )


def _time(clock: Mapping[str, Any] | None) -> Element | None:
    if clock is None:
        return None
    splits, lengths, points = clock["splits"], clock["seconds_of_splits"], clock["throughput"]
    run = "last run" if splits["earlier"] else "job"
    said = f"The {run} began at {clock['started']} and took {duration(clock['seconds'])}. "
    if lengths:
        machines = f"{clock['hosts']:,} machine{'s' if clock['hosts'] != 1 else ''}"
        said += (
            f"{clock['workers']:,} workers on {machines} found something to read in {splits['timed']:,} of "
            f"{splits['planned']:,} splits, in {duration(clock['cpu_seconds'])} of processor time; half of "
            f"these splits took at most {duration(lengths['p50'])}, the longest {duration(lengths['p100'])}. "
        )
    if splits["earlier"]:
        said += (
            f"{splits['earlier']:,} of these were done before, by a run that was stopped; the chart is without them."
        )
    figure = charts.line(
        "Megabytes read in a second, over the time in which splits were read.",
        [f"{point['second']:.3g} s" if i % 5 == 4 else "" for i, point in enumerate(points)],
        [point["bytes_per_second"] / 1e6 for point in points],
        ("time", "MB/s"),
    )
    slowest = (
        [
            each["source"],
            f"{each['index']:,}",
            f"{each['seconds']:.3g}",
            f"{each['cpu_seconds']:.3g}",
            megabytes(each["n_bytes"]),
            number(1 / each["speed"] if each["speed"] else None),
            each["host"],
        ]
        for each in clock["slowest"]
    )
    stages = ([each["stage"], f"{each['seconds']:.3g}"] for each in clock["stages"])
    heads = ("first file", "split", "seconds", "of processor", "read", "times as long as usual for its size", "machine")
    return section(
        "Time",
        said,
        *([figure] if splits["timed"] - splits["earlier"] > 1 else []),  # a single split has no course over time
        table(("stage", "seconds"), stages),
        details("the splits that took longest", table(heads, slowest)) if lengths else "",
    )


def _origin(facts: Mapping[str, Any]) -> Element:
    import yaml

    tokenizer = facts["tokenizer"]
    config = yaml.safe_dump(_shortened(facts["config"]), allow_unicode=True, sort_keys=False)
    return section(
        "How to make it again",
        "With this config, the same input and these versions, TokenMill writes the same bytes, whatever the runner.",
        element("pre", config),
        table(
            ("", ""),
            [
                ["tokenizer", code(tokenizer["digest"])],
                ["job", code(facts["job_digest"])],
                *([name, version] for name, version in sorted(facts["versions"].items())),
            ],
        ),
    )


def _shortened(value: Any) -> Any:
    """Returns a part of a config with long lists, mappings and texts cut: it may name each of a million files."""
    if isinstance(value, str):
        return blocks.shortened(value)
    if not isinstance(value, (Mapping, list)):
        return value
    more = f"{len(value) - _MOST_ITEMS:,} more" if len(value) > _MOST_ITEMS else None
    if isinstance(value, list):
        return [*map(_shortened, value[:_MOST_ITEMS]), *([f"... and {more}"] if more else [])]
    kept = {key: _shortened(each) for key, each in itertools.islice(value.items(), _MOST_ITEMS)}
    return kept | ({"...": more} if more else {})


def _left_out(cut: Mapping[str, Any], what: str) -> Element | str:
    return left_out(cut["n_all"] - len(cut["rows"]), what)


def _shown(token: str | None) -> Element:
    return code("(no token)" if token is None else token)
