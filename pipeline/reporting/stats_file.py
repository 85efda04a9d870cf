# SPDX-License-Identifier: Apache-2.0
"""All numbers of stats.json, described once: types that are made of counts, check a file, and give its JSON Schema.

A field is the count of its name in the books, or says by `Of` which one it is, by `Per` of which two the ratio; that is
null where it would divide by zero. `stats` adds the rest; `summary` and the report show it. A change that a reader
could notice raises `FORMAT_VERSION`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter

from tokenmill.pipeline import filenames
from tokenmill.pipeline.books import json_files
from tokenmill.pipeline.books.json_files import Count
from tokenmill.pipeline.config import sections
from tokenmill.pipeline.statistics.vocabulary import ratio

FORMAT_VERSION = 3


@dataclass(frozen=True)
class Of:
    """Says that a field is another count of the books than `n_` and its name; names are without `n_`."""

    name: str


@dataclass(frozen=True)
class Per:
    """Says that a field is the ratio of two counts of the books."""

    numerator: str
    denominator: str


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @classmethod
    def of(cls, counts: Mapping[str, Any], /, **more: Any) -> Self:
        """Returns the fields that are counts of the books, or ratios of two; `more` has all others by their names."""

        def number(name: str) -> int | None:
            found: int | None = counts.get(f"n_{name}", counts.get(name))
            return found

        values = dict(more)
        for name, each in cls.model_fields.items():
            how = next((each for each in each.metadata if isinstance(each, (Of, Per))), Of(name))
            if name in values:
                continue
            if isinstance(how, Per):
                values[name] = ratio(number(how.numerator) or 0, number(how.denominator) or 0)
            elif each.annotation is int and (each.is_required() or number(how.name) is not None):
                values[name] = number(how.name) or 0
        return cls.model_validate(values)

    def to_record(self) -> dict[str, Any]:
        """Returns plain JSON, without what does not apply to the job."""
        return self.model_dump(exclude_unset=True)


def _has_keys(*keys: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def check(value: dict[str, Any]) -> dict[str, Any]:
        if {*value} != {*keys}:
            raise ValueError(f"keys must be {', '.join(keys)}")
        return value

    return check


Ratio = float | None
Share = float | None
"""From 0 to 1."""


class TokensMade(_Part):
    """Where the tokens of rows come from: text + special + added = tokens + cut."""

    text: Annotated[Count, Of("text_tokens")]
    """Tokens that the tokenizer made of the texts."""
    cut: Annotated[Count, Of("cut_tokens")]
    """Tokens of the texts that truncation cut off; they are in no row."""
    kept: Count
    """Tokens of the texts that are in rows."""
    special: Annotated[Count, Of("special_tokens")]
    """Tokens that the tokenizer's template puts around texts."""
    added: Annotated[Count, Of("added_tokens")]
    """Tokens of `output.prepend` and `output.append`."""
    share_cut: Annotated[Share, Per("cut_tokens", "text_tokens")]
    """cut / text."""
    documents_cut: Annotated[Count, Of("cut_documents")]
    """Documents from which truncation cut something."""
    share_of_documents_cut: Annotated[Share, Per("cut_documents", "documents")]


class Token(_Part):
    """An entry of the vocabulary."""

    id: int
    token: str | None
    """The token as the vocabulary spells it; null for an id without a token."""
    count: Count
    """How often it occurs in rows."""


class UnreachableToken(_Part):
    """An entry that occurs in the encoding of none of the texts tried."""

    id: int
    token: str


class Pieces(_Part):
    """Entries whose bytes are not whole UTF-8 characters, as a byte-level token for half of a Chinese character."""

    entries: Count
    tokens: Count
    """How many tokens of the rows are such entries."""
    share_of_tokens: Share


class Point(_Part):
    """A point of the coverage curve."""

    entries: Count
    share: float
    """The share of all tokens that the `entries` most frequent entries make up."""


class Vocabulary(_Part):
    """The vocabulary, measured on the tokens of the rows."""

    size: Count
    """The number of entries."""
    used: Count
    """Entries that occur."""
    coverage: Share
    """used / size."""
    dead: Count
    """Entries that never occur."""
    under_trained: Count
    """Entries that occur, but fewer than 100 times."""
    unreachable: Count
    """Dead entries that occur in the encoding of no text tried. The texts tried are those of each entry: alone, after
    and before characters of many scripts. Added tokens and pieces of characters are not tried."""
    unreachable_tokens: list[UnreachableToken]
    """The first 100 unreachable entries."""
    pieces: Pieces
    entropy_bits: Ratio
    """Shannon's entropy, bits per token."""
    renyi_efficiency: Ratio
    """The Rényi entropy of order 2.5, divided by that of a uniform distribution; Zouhar et al. 2023."""
    zipf_slope: Ratio
    """The slope of log(count) over log(rank); about -1 for text."""
    coverage_curve: list[Point]
    top_tokens: list[Token]
    """The 100 most frequent entries."""


class Character(_Part):
    """An unknown character."""

    code_point: str = Field(pattern="^U\\+[0-9A-F]{4,6}$")
    character: str
    count: Count


class Script(_Part):
    """Unknown characters of one script."""

    script: str
    """The name of the script in Unicode; `Common` for characters that belong to no single script."""
    count: Count


class Word(_Part):
    """A word with an unknown character."""

    word: str
    count: Count


class Unknown(_Part):
    """Unknown tokens, and the characters and words that were lost to them."""

    tokens: Annotated[Count, Of("oov_tokens")]
    share_of_tokens: Annotated[Share, Per("oov_tokens", "tokens")]
    characters: Annotated[Count, Of("oov_chars")]
    """Characters of the normalized text that unknown tokens stand for."""
    share_of_characters: Annotated[Ratio, Per("oov_chars", "chars")]
    """characters / those of the texts; above 1 where the tokenizer's normalizer makes several of one."""
    words: Annotated[Count, Of("oov_words")]
    """Words with an unknown token, all occurrences."""
    share_of_words: Annotated[Share, Per("oov_words", "words")]
    words_not_listed: Annotated[Count, Of("oov_words_dropped")]
    """Occurrences of words that were not kept because there were too many; the distinct words do not include them."""
    distinct_characters: Count
    characters_to_add: Annotated[dict[str, Count], AfterValidator(_has_keys("50%", "90%", "95%", "99%", "100%"))]
    """How many characters, the most frequent first, would have to be added to the vocabulary so that this share of the
    unknown ones becomes known: 50%, 90%, 95%, 99%, 100%."""
    distinct_words: Count
    scripts: list[Script]
    """All scripts, the one with most unknown characters first."""
    top_characters: list[Character]
    top_words: list[Word]


class AddedToken(_Part):
    """A special or other added token whose text was found in documents. The text of special tokens stays text."""

    token: str
    count: Count


class Bin(_Part):
    """Rows by how many tokens they have."""

    model_config = ConfigDict(serialize_by_alias=True)

    from_: int = Field(alias="from")
    to: int
    rows: Count


class Lengths(_Part):
    """Tokens of documents, or of rows cut to a length; padding does not count."""

    min: int | None
    max: int | None
    mean: Annotated[Ratio, Per("tokens", "documents")]
    percentiles: Annotated[
        dict[str, Count | None], AfterValidator(_has_keys("p1", "p5", "p25", "p50", "p75", "p90", "p95", "p99"))
    ]
    """By nearest rank: p1, p5, p25, p50, p75, p90, p95, p99. Exact below 4096 tokens; above, the power of two below."""
    histogram: list[Bin]


class Resized(_Part):
    """A language of which a step adds or removes more than 1 % of the characters."""

    language: str | None
    """null: all documents, whose languages are not identified."""
    characters: Count
    """Characters of its documents before the step."""
    characters_after: Count
    share: Ratio
    """Characters added, as a share of those before; negative if they are removed."""


class Step(_Part):
    """What one text step did."""

    step: str
    """The step as in a config."""
    documents: Count
    documents_changed: Count
    documents_rejected: Count
    """Documents on which it gave up."""
    characters: Count
    """Characters before the step."""
    characters_after: Count
    characters_changed: Count
    """Characters replaced, removed, or inserted."""
    resized: list[Resized]
    """Languages of which the step adds or removes more than 1 % of the characters."""


class Text(_Part):
    """What `normalize` and `spans` did; absent without them."""

    steps: list[Step]
    spans: dict[str, Count]
    """How often each kind of span was found, by its token."""


class Sample(_Part):
    """Counts of a sample of documents: about 32 KiB of text from each split, or all of a smaller split.

    Which documents these are depends on their positions in the splits, so also on `input.split_bytes`, but not on
    workers. No text above 1 MiB is sampled.
    """

    documents: Annotated[Count, Of("sampled_documents")]
    bytes: Annotated[Count, Of("sampled_bytes")]
    """Of their texts."""
    documents_round_trip: Annotated[Count, Of("round_trips")]
    """Documents whose tokens decode to their text, both normalized."""
    documents_round_trip_but_for_spaces: Annotated[Count, Of("round_trips_but_spaces")]
    """The same, with white space ignored."""
    share_round_trip: Annotated[Share, Per("round_trips", "sampled_documents")]
    """documents_round_trip / documents."""
    spaced_words: Annotated[Count, Of("sampled_words")]
    whole_words: Count
    """Words that the tokenizer keeps as one token, alone or after a space. An unknown token does not count."""
    strr: Annotated[Share, Per("whole_words", "sampled_words")]
    """whole_words / spaced_words: single token retention rate."""


class Language(_Part):
    """Counts of the documents of one language."""

    documents: Count
    mixed: Count
    """Documents that are in more than one language."""
    bytes: Count
    """Of the texts after steps and spans, as UTF-8."""
    characters: Count
    spaced_words: Count
    text_tokens: Count
    """Tokens of texts, including those that were cut, without special tokens; the ratios below count these."""
    tokens: Count
    """Tokens of rows."""
    oov_tokens: Count
    """Unknown tokens of rows."""
    filtered: Count
    """Documents that a filter left out; no other number includes them."""
    tokens_per_spaced_word: Annotated[Ratio, Per("text_tokens", "spaced_words")]
    """Fertility, f. If no word is without a token, 1 - 1 / f is the share of tokens that continue a word."""
    bytes_per_token: Annotated[Ratio, Per("bytes", "text_tokens")]
    tokens_per_character: Annotated[Ratio, Per("text_tokens", "characters")]
    premium: Ratio
    """Tokens per character, as a multiple of those in the reference language."""
    share_of_oov_tokens: Annotated[Share, Per("oov_tokens", "tokens")]
    """Unknown tokens as a share of the tokens of rows."""
    sample: Sample


class Languages(_Part):
    """Counts by language; absent if the config has no `languages`."""

    reference: str | None
    """The language with the most characters, and one that was identified: not `und`."""
    gini_of_tokens_per_character: Ratio
    """The Gini coefficient over languages: 0 if all have the same tokens per character, near 1 if very unequal."""
    by_code: dict[str, Language]


class Packing(_Part):
    """Packed sequences; absent without `output.packing`."""

    sequences: Count
    segments: Count
    documents: Count
    empty_documents: Count
    """Documents without a token, which are in no sequence."""
    split_documents: Count
    """Documents that are cut into several sequences."""
    tokens: Count
    separators: Count
    padding: Count
    share_of_padding: Share
    share_of_documents_split: Annotated[Share, Per("split_documents", "documents")]
    segments_per_sequence: Annotated[Ratio, Per("segments", "sequences")]


class Windows(_Part):
    """Windows of documents; absent without `tokenizer.truncation.overflow: rows`."""

    windows: Count
    documents: Count
    split_documents: Count
    """Documents with several windows."""
    tokens: Count
    repeated: Count
    """Tokens that windows have in common with the previous window."""
    special: Count
    share_of_tokens_repeated: Share
    """repeated / (tokens + repeated)."""
    windows_per_document: Annotated[Ratio, Per("windows", "documents")]


class Chat(_Part):
    """Conversations; absent without `input.messages_field`."""

    turns: Count
    """Turns that are trained."""
    trained_tokens: Count
    """Tokens that are trained: those that rows mark as such. They are `marked_tokens` without the next two."""
    marked_tokens: Count
    """Tokens that are to be trained in the conversations that rows are made of."""
    cut_tokens: Count
    """Those of them that truncation cuts off."""
    first_tokens: Count
    """Those of them that nothing predicts: the first of a row, and the first behind a cut, where packing cuts."""
    straddling_tokens: Count
    """Trained tokens that begin or end outside of the text that is trained."""
    unrendered_messages: Count
    """Messages of which the template shows nothing."""
    shared_messages: Count
    """Messages that are the prompt of a preference pair: both sides have them."""
    text_arguments: Count = 0
    """Tool calls whose arguments are JSON in a text; `chat.parse_arguments` makes objects of them."""
    rejected_tokens: Count = 0
    """Tokens of the rejected sides of pairs, which no other number counts."""
    fields_not_shown: dict[str, Count] = {}
    """By name, fields of messages and records that are not in the text, and are used for nothing else."""
    share_of_tokens_trained: Share
    tokens_by_role: dict[str, Count]
    """Tokens of the texts of messages by role, before rows are cut, and those of the template and its headers."""


class Source(_Part):
    """Counts of a source of `input.sources`."""

    documents: Count
    rejected: Count
    filtered: Count
    characters: Annotated[Count, Of("chars")]
    tokens: Count
    characters_per_token: Annotated[Ratio, Per("chars", "text_tokens")]
    tokens_per_spaced_word: Annotated[Ratio, Per("text_tokens", "spaced_words")]
    share_of_oov_tokens: Annotated[Share, Per("oov_tokens", "tokens")]


class StatsFile(_Part):
    """Statistics of a tokenized corpus, over all splits. All counts are exact; those in `sample` are of a sample."""

    format_version: Literal[3]
    documents: Count
    bytes: Annotated[Count, Of("text_bytes")]
    """Bytes of the texts as UTF-8, after steps and spans."""
    characters: Annotated[Count, Of("chars")]
    """Code points of the texts."""
    words: Count
    """Pre-tokens, all occurrences."""
    spaced_words: Count
    """Words between white space, which do not depend on the tokenizer; `tokenmill compare` counts the same."""
    tokens: Count
    """Tokens of the rows, without padding."""
    tokens_made: TokensMade
    tokens_per_word: Annotated[Ratio, Per("text_tokens", "words")]
    """Fertility. This and the next four count the tokens of the text, cut ones included."""
    share_of_continuations: Share
    """The share of tokens that continue a word."""
    tokens_per_spaced_word: Annotated[Ratio, Per("text_tokens", "spaced_words")]
    """Fertility by words between white space, which are the same for all tokenizers."""
    bytes_per_token: Annotated[Ratio, Per("text_bytes", "text_tokens")]
    characters_per_token: Annotated[Ratio, Per("chars", "text_tokens")]
    sample: Sample
    vocabulary: Vocabulary
    oov: Unknown
    added_tokens_in_text: list[AddedToken]
    """The 100 most frequent ones."""
    lengths: Lengths
    text: Text | None = None
    languages: Languages | None = None
    packing: Packing | None = None
    windows: Windows | None = None
    chat: Chat | None = None
    sources: dict[str, Source] | None = None
    """By the name of the source; absent without `input.sources`."""


def json_schema() -> dict[str, Any]:
    """Returns the JSON Schema of stats.json."""
    return sections.json_schema(StatsFile)


def read(output: str) -> StatsFile:
    """Returns the contents of stats.json of a folder.

    Raises:
      ValueError: if they are of another format, or not as `stats` makes them; OSError: if they cannot be read.
    """
    return StatsFile.model_validate(json_files.read(output, filenames.STATS, _SHAPE, versions=[FORMAT_VERSION]))


_SHAPE = TypeAdapter(StatsFile)
