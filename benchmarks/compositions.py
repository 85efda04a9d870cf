# SPDX-License-Identifier: Apache-2.0
"""Encodes texts with random compositions of models, normalizers and pre-tokenizers: every way must give the same ids.

Each composition has a number, which makes it and its texts again. Its vocabulary is made of parts of words that also
occur as whole words. These must give the same ids: plain Python; one text at a time; a column; columns in another order
and in small batches, by a tokenizer that has encoded others before; tables of 2 and 8 lines with batches of a few
spans; and `tokenizers`, where it can read the composition. Words that are counted must be the same, too. The exit code
is 1 if there is a difference.
"""

import collections
import contextlib
import dataclasses
import functools
import io
import itertools
import random
import sys
import time
import traceback
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
from unittest import mock

import pyarrow as pa

from benchmarks import report
from tests.reference.counting import sentencepiece_words
from tests.reference.spellings import PATTERNS
from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer import normalizers as nm
from tokenmill.tokenizer import pre_tokenizers as pt
from tokenmill.tokenizer.added_tokens import AddedToken
from tokenmill.tokenizer.engines import tables
from tokenmill.tokenizer.errors import UnknownCharacterError
from tokenmill.tokenizer.formats import sentencepiece as sentencepiece_file
from tokenmill.tokenizer.kernels import encode_loop
from tokenmill.tokenizer.models import BPE, Unigram, WordLevel, WordPiece
from tokenmill.tokenizer.models.byte_alphabet import BYTE_ALPHABET
from tokenmill.tokenizer.pre_tokenizers.known_patterns import TIKTOKEN_PATTERNS
from tokenmill.tokenizer.ragged import text_rows
from tokenmill.tokenizer.reference_encoding import wordpiece
from tokenmill.tokenizer.traced import Traced

SCRIPTS = (
    "abcdeABE", "éßİıſÅςñ", "日本語中文々", "かなカナー", "한국어가각힣", "ไทยกำลังๆ", "हिन्दीक्षत्र", "தமிழ்", "مرحبا",
    "שלום", "👨👩👧🏽🇩🇪❤", "абвЁё", "0123½²", "ﬁＡｂ①㍿", "e\u0301o\u0323\u0301",
)  # fmt: skip
"""Alphabets of words; a few of them make the words of a composition."""
BETWEEN = (
    " ", " ", " ", "", "  ", "\n", "\t", "\r\n", "\u3000", ".", ", ", "'", "-", "_", "#", "\u200d", "▁", "<s>", "'s ",
    "\xa0", "<|endoftext|>", "12 ",
)  # fmt: skip
BYTE_TOKENS = [f"<0x{b:02X}>" for b in range(256)]
DEEPSEEK = (
    r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"| ?[\p{P}\p{S}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+",
)  # fmt: skip
PATTERNS_OF_OUR_OWN = (r"\p{L}+|\d|\s+", r"\w+|[^\w\s]+", r"[aeiou]", "...", r"\s+", r"(?=[A-Z])|中")
BEHAVIORS = ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous")


class Made(NamedTuple):
    """A composition, and texts for it."""

    parts: dict[str, Any]
    """Arguments of `Tokenizer`."""
    texts: list[str]


def main(arguments: list[str]) -> int:
    """Runs compositions until the time is over; returns the exit code."""
    parser = report.parser("compositions", __doc__)
    parser.add_argument("--minutes", type=float, default=60, help="how long (default 60)")
    parser.add_argument("--seed", type=int, default=0, help="the first number is a million times this (default 0)")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="one composition, and what it is made of")
    options = parser.parse_args(arguments)
    if options.only is not None:
        print(make(options.only).parts, *check(options.only)[0], sep="\n")
        return 0
    stop = time.monotonic() + options.minutes * 60
    counts: collections.Counter[str] = collections.Counter()
    n_wrong = 0
    for number in itertools.count(options.seed * 1_000_000):
        if time.monotonic() > stop:
            break
        try:
            problems, seen = check(number)
        except Exception:  # whatever a composition does to us is what is looked for
            problems, seen = [traceback.format_exc()], {}
        counts.update(seen)
        n_wrong += bool(problems)
        for problem in problems[:3]:
            print(f"composition {number}: {problem}", flush=True)
    print(", ".join(f"{n} {what}" for what, n in sorted(counts.items())) + f"; {n_wrong} compositions with differences")
    return int(n_wrong > 0)


def make(number: int) -> Made:
    """Makes the composition with a number, and its texts."""
    chance = random.Random(number)
    alphabet = "".join(chance.sample(SCRIPTS, chance.randint(1, 3)))
    few = chance.sample(alphabet, min(len(alphabet), chance.randint(3, 12)))
    words = ["".join(chance.choices(few, k=chance.choice((1, 1, 2, 2, 3, 4, 6, 9, 20)))) for _ in range(25)]
    # Parts of words, and words of words.
    words += [word[: chance.randint(1, len(word))] for word in words] + [
        "".join(chance.choices(words, k=chance.randint(2, 4))) for _ in range(10)
    ]
    # The same word, composed and decomposed.
    words += [unicodedata.normalize(chance.choice(("NFC", "NFD", "NFKD")), word) for word in words]
    normalizer, pre_tokenizer = _normalizer(chance), _pre_tokenizer(chance)
    make_model = chance.choice((_bpe, _bpe, _bpe, _unigram, _wordpiece, _wordlevel))
    spelled = pt.is_byte_level(pre_tokenizer)
    if make_model is _bpe and not spelled and chance.random() < 0.4:
        # What byte-level models have.
        byte_level = pt.ByteLevel(add_prefix_space=chance.random() < 0.3, use_regex=pre_tokenizer is None)
        pre_tokenizer = byte_level if pre_tokenizer is None else pt.Sequence((pre_tokenizer, byte_level))
        spelled = True
    learnt = [word for word in words if chance.random() < 0.8]
    if normalizer is not None and _maybe(chance):
        # What training learns: words as they are after the normalizer. The texts have them as they were before.
        learnt = [text for word in learnt if (text := normalizer.normalize_str(word))] or words[:1]
    metaspace = "▁" if not spelled and (chance.random() < 0.3 or "▁" in repr((normalizer, pre_tokenizer))) else ""
    learnt += [metaspace + word for word in learnt[::2] if metaspace]
    if spelled:
        learnt = ["".join(BYTE_ALPHABET[b] for b in chance.choice((" ", "")).encode() + w.encode()) for w in learnt]
    if isinstance(normalizer, nm.SentencePieceNormalizer):
        pre_tokenizer = None
        make_model = chance.choice((_unigram, _bpe))
    model = make_model(chance, learnt, spelled, isinstance(normalizer, nm.SentencePieceNormalizer))
    texts = [_text(chance, words) for _ in range(chance.randint(5, 30))]
    parts = {"model": model, "normalizer": normalizer, "pre_tokenizer": pre_tokenizer}
    if chance.random() < 0.15:
        n_ids = Tokenizer(model=model).n_ids
        parts["added_tokens"] = [AddedToken(n_ids, "<s>", normalized=_maybe(chance), special=False)]
    return Made(parts, ["", *texts])


def _text(chance: random.Random, words: list[str]) -> str:
    between = chance.sample(BETWEEN, chance.randint(1, 5))
    n = chance.choice((1, 2, 5, 12, 40))
    return "".join(chance.choice(words) + chance.choice(between) for _ in range(n))


# Parts.


def _maybe(chance: random.Random) -> bool:
    return chance.random() < 0.5


@functools.cache
def _charsmap(folds_case: bool) -> bytes:
    """Returns the character map of sentencepiece's NFKC, also of the one that lower-cases."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b c d e"]), model_writer=model, vocab_size=9, hard_vocab_limit=False,
        normalization_rule_name="nmt_nfkc_cf" if folds_case else "nmt_nfkc", minloglevel=2,
    )  # fmt: skip
    return sentencepiece_file.read(model.getvalue(), "sentencepiece").normalizer.precompiled_charsmap


def _normalizer(chance: random.Random) -> nm.Normalizer | None:
    kind = chance.random()
    if kind < 0.35:
        return None
    if kind < 0.45:
        charsmap = _charsmap(_maybe(chance)) if _maybe(chance) else b""
        return nm.SentencePieceNormalizer(charsmap, *(_maybe(chance) for _ in range(3)), chance.random() < 0.2)
    makers: list[Callable[[], nm.Normalizer]] = [
        lambda: nm.BertNormalizer(_maybe(chance), _maybe(chance), chance.choice((None, True, False)), _maybe(chance)),
        nm.NFC, nm.NFD, nm.NFKC, nm.NFKD, nm.Lowercase, nm.StripAccents, nm.Nmt,
        lambda: nm.Strip(_maybe(chance), _maybe(chance)),
        lambda: nm.Replace(chance.choice((" ", "a", "日", "'", "..")), chance.choice(("▁", "", "b", " 中 "))),
        lambda: nm.Replace(*chance.choice(((" {2,}", " "), (r"\s+", " "), (" {2,}", "▁"), ("[0-9]", "0"))), True),
        lambda: nm.Prepend(chance.choice(("▁", " ", "a"))),
        lambda: nm.Precompiled(_charsmap(_maybe(chance))),
        lambda: nm.Sequence((nm.Prepend("▁"), nm.Replace(" ", "▁"))),
        nm.ByteLevel,
    ]  # fmt: skip
    steps = [chance.choice(makers)() for _ in range(chance.choice((1, 1, 2, 3)))]
    return steps[0] if len(steps) == 1 else nm.Sequence(tuple(steps))


def _pre_tokenizer(chance: random.Random) -> pt.PreTokenizer | None:
    if chance.random() < 0.15:
        return None
    if chance.random() < 0.05:
        return pt.Sequence(tuple(pt.Split(pattern, "isolated", is_regex=True) for pattern in DEEPSEEK))
    patterns = (*PATTERNS, *TIKTOKEN_PATTERNS.values(), *PATTERNS_OF_OUR_OWN)
    makers: list[Callable[[], pt.PreTokenizer]] = [
        lambda: pt.Split(chance.choice(patterns), "isolated", is_regex=True),
        lambda: pt.Split(chance.choice(patterns), "removed", invert=True, is_regex=True),
        lambda: pt.Split(chance.choice(patterns), chance.choice(BEHAVIORS), _maybe(chance), is_regex=True),
        lambda: pt.Split(chance.choice((" ", "日", "ab")), chance.choice(BEHAVIORS), _maybe(chance)),
        lambda: pt.Metaspace("▁", chance.choice(("always", "never", "first")), split=_maybe(chance)),
        lambda: pt.ByteLevel(_maybe(chance), use_regex=_maybe(chance)),
        lambda: pt.Punctuation(chance.choice(BEHAVIORS)),
        lambda: pt.Digits(_maybe(chance)),
        lambda: pt.CharDelimiterSplit(chance.choice((" ", "a", "中"))),
        lambda: pt.FixedLength(chance.choice((1, 2, 5))),
        pt.BertPreTokenizer, pt.Whitespace, pt.WhitespaceSplit, pt.UnicodeScripts,
        lambda: pt.Sequence((pt.WhitespaceSplit(), pt.Metaspace("▁", "always", split=True))),
    ]  # fmt: skip
    steps = [chance.choice(makers)() for _ in range(chance.choice((1, 1, 1, 2, 3)))]
    return steps[0] if len(steps) == 1 else pt.Sequence(tuple(steps))


def _bpe(chance: random.Random, words: list[str], spelled: bool, like_sentencepiece: bool) -> BPE:
    prefix = chance.choice(("", "", "##", "@")) if not like_sentencepiece else ""
    suffix = chance.choice(("", "</w>", "</w>", "_", "▁")) if not like_sentencepiece else ""
    alphabet = list(BYTE_ALPHABET) if spelled else sorted(set("".join(words)))
    alphabet = [c for c in alphabet if chance.random() < 0.98] if chance.random() < 0.3 else alphabet
    vocab = dict.fromkeys(["<unk>", *alphabet, *(c + suffix for c in alphabet)])
    vocab |= dict.fromkeys([p + c + s for c in alphabet for p in (prefix,) for s in ("", suffix)])
    ranks: dict[tuple[str, str], int] = {}
    for word in chance.choices(words, k=chance.choice((0, 10, 60))):
        symbols = [(prefix if i else "") + c + (suffix if i == len(word) - 1 else "") for i, c in enumerate(word)]
        while len(symbols) > 1:
            found = [(ranks[pair], i) for i, pair in enumerate(itertools.pairwise(symbols)) if pair in ranks]
            i = min(found)[1] if found else chance.randrange(len(symbols) - 1)
            pair = symbols[i], symbols[i + 1]
            if not set(pair) <= vocab.keys():
                break
            symbols[i : i + 2] = [pair[0] + pair[1][len(prefix) :]]
            ranks.setdefault(pair, len(ranks))
            vocab.setdefault(symbols[i])
            if not found and chance.random() < 0.5:
                break
    if chance.random() < 0.4:  # entries that no merge makes
        vocab |= dict.fromkeys(chance.choices(words, k=5))
    byte_fallback = chance.random() < 0.3
    if byte_fallback:
        vocab |= dict.fromkeys(BYTE_TOKENS if _maybe(chance) else chance.sample(BYTE_TOKENS, 200))
    options = {} if like_sentencepiece else {"ignore_merges": chance.random() < 0.3, "fuse_unk": _maybe(chance)}
    if like_sentencepiece:
        options = {"fuse_unk": True, "merge_ranks": list(ranks.values())}
    return BPE(
        {token: i for i, token in enumerate(vocab)}, list(ranks),
        unk_token="<unk>" if like_sentencepiece or chance.random() < 0.7 else None, byte_fallback=byte_fallback,
        continuing_subword_prefix=prefix or None, end_of_word_suffix=suffix or None, byte_level=spelled, **options,
    )  # fmt: skip


def _pieces_of(chance: random.Random, words: list[str], n: int) -> list[str]:
    pieces = sorted(set("".join(words)))
    pieces = [c for c in pieces if chance.random() < 0.95] if _maybe(chance) else pieces
    for word in chance.choices(words, k=n):
        start = chance.randrange(len(word)) if _maybe(chance) else 0
        pieces.append(word[start : chance.randint(start + 1, len(word))])
    return list(dict.fromkeys(pieces))


def _unigram(chance: random.Random, words: list[str], spelled: bool, like_sentencepiece: bool) -> Unigram:
    pieces = [piece for piece in _pieces_of(chance, words, 60) if piece != "<unk>"]
    scores = [float(-chance.randint(1, 4)) if _maybe(chance) else -round(chance.random() * 12, 9) for _ in pieces]
    byte_fallback = chance.random() < 0.3
    vocab = [("<unk>", 0.0), *zip(pieces, scores, strict=True)]
    types = [2] + [1] * len(pieces)
    if byte_fallback:
        vocab, types = vocab + [(token, 0.0) for token in BYTE_TOKENS], types + [6] * 256
    unk_id = 0 if like_sentencepiece or chance.random() < 0.9 else None
    return Unigram(vocab, unk_id, byte_fallback, types if like_sentencepiece else None)


def _wordpiece(chance: random.Random, words: list[str], spelled: bool, like_sentencepiece: bool) -> WordPiece:
    prefix = chance.choice(("##", "##", "", "@", "a"))
    pieces = [chance.choice(("", prefix)) + piece for piece in _pieces_of(chance, words, 80)]
    tokens = dict.fromkeys(["[UNK]", *BYTE_TOKENS, *pieces] if chance.random() < 0.2 else ["[UNK]", *pieces])
    policies = ["word", "word", "contain", "char", *(["byte"] if BYTE_TOKENS[0] in tokens else [])]
    return WordPiece(
        {token: i for i, token in enumerate(tokens)}, "[UNK]", prefix, chance.choice((5, 100)), chance.choice(policies)
    )


def _wordlevel(chance: random.Random, words: list[str], spelled: bool, like_sentencepiece: bool) -> WordLevel:
    tokens = dict.fromkeys(["[UNK]", *chance.sample(words, len(words) // 2)])
    return WordLevel({token: i for i, token in enumerate(tokens)}, unk_token="[UNK]")


# Checks.


def by_reference(tok: Tokenizer, text: str) -> list[int]:
    """Encodes a text in plain Python, without added tokens; raises an UnknownCharacterError if the model does not."""
    return [i for word in _words(tok, text) for i in _of_word(tok, word)]


def _words(tok: Tokenizer, text: str) -> list[bytes]:
    """Returns the words of a text; bytes if they are spelled, else UTF-8."""
    pre_tokenizer, raw = tok.pre_tokenizer, Traced.original(text_rows([text]))
    traced = raw if tok.normalizer is None else tok.normalizer.trace(raw)
    if not traced.rows.n_values:
        return []
    if pre_tokenizer is None:
        return [traced.rows.values.tobytes()]
    words = pre_tokenizer.split_rows(traced.rows, traced.starts[:1] == 0)
    return [words.word(i) for i in range(words.n_words)]


def _counted(tok: Tokenizer, text: str) -> list[bytes]:
    """Returns the words of a text as a `WordCounter` has them."""
    normalizer = tok.normalizer
    if not isinstance(normalizer, nm.SentencePieceNormalizer) or not normalizer.escape_whitespaces:
        return _words(tok, text)
    at_end = normalizer.treat_whitespace_as_suffix
    return [word.encode() for word in sentencepiece_words(normalizer.normalize_str(text), at_end)]


def _of_word(tok: Tokenizer, word: bytes) -> list[int]:
    model, spelled = tok.model, pt.is_byte_level(tok.pre_tokenizer)
    if isinstance(model, BPE):
        if spelled and not model.byte_level:
            model = dataclasses.replace(model, byte_level=True)
        return [i for i, _ in model.tokenize_bytes(word)]
    text = "".join(BYTE_ALPHABET[b] for b in word) if spelled else word.decode()
    if isinstance(model, WordPiece):
        return [model.vocab[token] for token, _ in wordpiece(text, model)]
    ids = [i for i, _ in model.tokenize(text)]
    if min(ids, default=0) < 0:
        raise UnknownCharacterError
    return ids


@contextlib.contextmanager
def _small(n_lines: int, limit: int) -> Iterator[None]:
    """Makes tables of a few lines, and batches of a few spans, meanwhile."""
    new_table = tables.new_table
    with (
        mock.patch.object(tables, "n_lines", side_effect=lambda *_: n_lines),
        mock.patch.object(tables, "new_table", side_effect=lambda n, _: new_table(n, 32 * n_lines)),
        mock.patch.object(encode_loop, "BATCH", limit),
    ):
        yield


def _column(texts: Sequence[str]) -> pa.Array:
    return pa.array(texts, pa.large_string())


def check(number: int) -> tuple[list[str], dict[str, int]]:
    """Returns the differences between all ways to encode the texts of a composition, and how much was compared."""
    try:
        made = make(number)
        tok, problems = Tokenizer(**made.parts), []
    except ValueError:
        return [], {"refused": 1}
    chance = random.Random(-number)
    has_added = bool(tok.added_tokens)
    texts, expected = [], []
    for text in made.texts:
        try:
            ids = tok.encode(text, add_special_tokens=False).ids
        except UnknownCharacterError:
            try:
                tok.encode_arrow(_column([text]))
                problems.append(f"a column takes {text!r}, which has an unknown character")
            except UnknownCharacterError:
                pass
            continue
        texts.append(text)
        expected.append(ids)
    seen = {"compositions": 1, "texts": len(texts)}

    def compare(way: str, results: list[Any], wanted: list[Any] = expected, of: Sequence[str] = texts) -> None:
        for text, got, ids in zip(of, results, wanted, strict=True):
            if got != ids:
                same = next(i for i, (a, b) in enumerate(itertools.zip_longest(got, ids)) if a != b)
                near, kernel = slice(same, same + 9), tok.explain().splitlines()[0]
                found = f"gives {got[near]}, encode {ids[near]} from token {same} on, for {text!r}"
                problems.append(f"{kernel}: {way} {found}")
                return

    if not has_added:
        compare("plain Python", [by_reference(tok, text) for text in texts])
    tally = tok.new_tally()
    fresh = Tokenizer(**made.parts)
    compare("a column", fresh.encode_arrow(_column(texts), tally=tally).to_pylist())
    # Again, in another order and in pieces, by a tokenizer that knows the words.
    order = chance.sample(range(len(texts)), len(texts))
    ids: list[Any] = []
    begin, others = 0, fresh.new_tally()
    while begin < len(texts):
        end = begin + chance.randint(1, 4)
        column = _column([texts[i] for i in order[begin:end]])
        ids += fresh.encode_arrow(column, tally=others).to_pylist()
        begin = end
    compare("a known column", ids, [expected[i] for i in order], [texts[i] for i in order])
    _compare_tallies("in small batches", tally, others, problems)
    for n_lines in (2, 8):
        with _small(n_lines, chance.choice((1, 2, 3, 7))):
            small, others = Tokenizer(**made.parts), tok.new_tally()
            for counted in (None, others, None):
                compare(f"tables of {n_lines} lines", small.encode_arrow(_column(texts), tally=counted).to_pylist())
            _compare_tallies(f"with tables of {n_lines} lines", tally, others, problems)
    if not has_added:
        counter = tok.new_word_counter()
        counter.update(_column(texts))
        words = collections.Counter(word for text in texts for word in _counted(tok, text))
        if _counts(counter.to_table()) != words:
            problems.append(f"words that are counted are {_difference(_counts(counter.to_table()), words)}")
    seen["texts compared with tokenizers"] = _compare_with_hf(tok, texts, compare)
    return problems, seen


def _counts(table: pa.Table) -> dict[bytes, int]:
    return {row["word"]: row["count"] for row in table.to_pylist()}


def _difference(found: dict[bytes, int], wanted: dict[bytes, int]) -> str:
    words = [word for word in found | wanted if found.get(word) != wanted.get(word)]
    return ", ".join(f"{word!r}: {found.get(word, 0)} instead of {wanted.get(word, 0)}" for word in words[:5])


def _compare_tallies(when: str, tally: Any, other: Any, problems: list[str]) -> None:
    if tally.n_words != other.n_words:
        problems.append(f"{when} there are {other.n_words} words, else {tally.n_words}")
    words, others = _counts(tally.oov_words()), _counts(other.oov_words())
    if words != others:
        problems.append(f"{when} unknown words are {_difference(others, words)}")


def _compare_with_hf(tok: Tokenizer, texts: list[str], compare: Callable[..., None]) -> int:
    """Compares with `tokenizers`, if it is there and reads the composition; returns the number of texts."""
    import tokenizers as hf

    try:
        theirs = hf.Tokenizer.from_str(tok.to_str())
    except Exception:
        return 0
    if _differs(tok):
        return 0
    theirs.encode_special_tokens = True
    found = []
    for text in texts:
        try:
            found.append(theirs.encode(text, add_special_tokens=False).ids)
        except BaseException:  # a panic is none of Python's exceptions
            return 0
    compare("tokenizers", found)
    return len(texts)


def _differs(tok: Tokenizer) -> bool:
    """Whether `tokenizers` means something else by a composition, as tests/parity/test_families.py lists."""
    if isinstance(tok.model, WordPiece) and tok.model.oov_policy != "word":
        return True
    # sentencepiece's white space, and the start of a text after steps that change it.
    is_only = isinstance(tok.pre_tokenizer, pt.Metaspace) and tok.normalizer is None
    has_start = "first" in repr(tok.pre_tokenizer) and not is_only
    return isinstance(tok.normalizer, nm.SentencePieceNormalizer) or has_start


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
