# SPDX-License-Identifier: Apache-2.0
"""Whole tokenizers from SentencePiece models of every type and option, against sentencepiece."""

import dataclasses
import io
from pathlib import Path
from typing import Any

import pytest

spm = pytest.importorskip("sentencepiece", reason="needs the test group: sentencepiece")

import pyarrow as pa  # noqa: E402

from tests.parity import families  # noqa: E402
from tokenmill.tokenizer import Tokenizer, TokenizerFileError  # noqa: E402
from tokenmill.tokenizer.formats import sentencepiece  # noqa: E402
from tokenmill.tokenizer.formats.sentencepiece import BPE, SentencePieceFile, TrainerSpec, tokenizer_parts  # noqa: E402
from tokenmill.tokenizer.models.unigram import PieceType  # noqa: E402

pytestmark = pytest.mark.parity

DIFFERENCES = {
    "decode of an unknown piece": "its token, nothing with skip_special_tokens; sentencepiece writes ⁇",
    "SentencePiece models of words": "refused: sentencepiece fuses unknown words, which no model here or in HF does",
    "offsets of parts of a character": "each has the whole of it, as in HF; sentencepiece gives it to the last",
    "spaces as bytes in front of a text": "go with the prefix, as in HF's decoder; sentencepiece keeps them",
    "unused pieces of SentencePiece BPE": "refused: how sentencepiece cuts them up depends on the merges it tried",
}
RAW = {
    "normalization_rule_name": "identity", "remove_extra_whitespaces": False, "allow_whitespace_only_pieces": True,
}  # fmt: skip
BYTES = {"byte_fallback": True, "character_coverage": 0.995}
SYMBOLS = ["<sep>", "[MASK]", "ill", "é", "..", "mill", "\n", "▁▁", "▁▁▁", "  ", "玫"]
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "llama2": {**RAW, **BYTES, "split_digits": True},
    "gemma": {**RAW, **BYTES, "split_digits": True, "add_dummy_prefix": False, "user_defined_symbols": SYMBOLS},
    "symbols": {"user_defined_symbols": SYMBOLS, "control_symbols": ["<ctl>", "<|im_start|>"]},
    "no prefix": {"add_dummy_prefix": False},
    "suffix": {"treat_whitespace_as_suffix": True},
    "suffix with symbols": {"treat_whitespace_as_suffix": True, "user_defined_symbols": SYMBOLS},
    "spaces kept": {"remove_extra_whitespaces": False},
    "nfkc": {"normalization_rule_name": "nfkc", "split_by_unicode_script": False},
    "nmt_nfkc_cf": {"normalization_rule_name": "nmt_nfkc_cf", "split_by_number": False},
    "across spaces": {"split_by_whitespace": False},
}
TYPES = ["unigram", "bpe", "char"]
PIECES = [
    "<sep>", "[MASK]", "ill", "é", "..", "mill", "\n", "  ", "   ", " ", "\t", "▁", "<ctl>", "<s>", "<unk>", "<0x41>",
    "É", "ab", "aba", "12", "½", "ﬁ", "玫", "瑰", "😀", "\u3000", "\u200b", "<|im_start|>", "the", " the",
]  # fmt: skip


def train(model_type: str, options: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    lines = [line for text in families.sample() for line in text.split("\n") if line.strip()]
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(lines[:400]), model_writer=out, minloglevel=2, hard_vocab_limit=False, num_threads=1,
        model_type=model_type, vocab_size=2000 if model_type != "char" else 900, **options,
    )  # fmt: skip
    return out.getvalue()


@pytest.fixture(scope="module", params=[(t, o) for t in TYPES for o in OPTIONS], ids="-".join)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, Any]:
    """A model in both libraries."""
    model_type, name = request.param
    data = train(model_type, OPTIONS[name])
    path = tmp_path_factory.mktemp("model") / "m.model"
    path.write_bytes(data)
    return Tokenizer.from_file(path), spm.SentencePieceProcessor(model_proto=data)


def assert_same(ours: Tokenizer, theirs: Any, texts: list[str]) -> None:
    rows = ours.encode_arrow(pa.array(texts, pa.large_string())).to_pylist()
    for text, row, expected in zip(texts, rows, theirs.encode(texts), strict=True):
        assert row == expected, text[:300]


def test_hf_loads_what_was_written(pair: tuple[Tokenizer, Any]) -> None:
    hf = pytest.importorskip("tokenizers", reason="needs the test group: HF tokenizers")
    ours, theirs = pair
    if '"sentencepiece"' not in ours.to_str():
        # Spaces at the end of words; a piece of two spaces, of which the normalizer leaves nothing.
        assert ours.normalizer.treat_whitespace_as_suffix or "  " in ours.normalizer.user_defined_symbols
        with pytest.raises(Exception, match=r"untagged enum|SentencePieceNormalizer"):
            hf.Tokenizer.from_str(ours.to_str())
        return
    loaded = hf.Tokenizer.from_str(ours.to_str())
    loaded.encode_special_tokens = True
    texts = [line for text in families.sample() for line in text.split("\n") if line.strip()]
    same = [row.ids == ids for row, ids in zip(loaded.encode_batch(texts), theirs.encode(texts), strict=True)]
    assert sum(same) >= 0.93 * len(same)


def load(proto: bytes) -> Tokenizer:
    return Tokenizer.from_parts(tokenizer_parts(sentencepiece.read(proto, "model")), cache_bytes=1 << 20)


def test_a_model_with_added_pieces(tmp_path: Path) -> None:
    """Chinese pieces appended with score 0, as tools that extend Llama's vocabulary do."""
    model = sentencepiece.read(train("bpe", OPTIONS["llama2"]), "model")
    have = set(model.pieces)
    sample = "".join(families.sample())
    han = [c for c in dict.fromkeys(sample) if "一" <= c <= "龥"]
    words = {sample[i : i + n] for i in range(len(sample)) for n in (2, 3) if set(sample[i : i + n]) <= set(han)}
    added = [p for p in [*han, *sorted(words)] if p not in have]
    longer = SentencePieceFile.of(
        [*model.pieces, *added], [*model.scores, *[0.0] * len(added)], [*model.types, *[1] * len(added)],
        model.trainer, model.normalizer,
    )  # fmt: skip
    path = tmp_path / "m.model"
    path.write_bytes(sentencepiece.write(longer))
    ours = Tokenizer.from_file(path)
    assert ours.model.is_tied
    assert_same(ours, spm.SentencePieceProcessor(model_file=str(path)), families.sample())


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize("options", [(), ("add_dummy_prefix",), ("remove_extra_whitespaces", "escape_whitespaces")])
def test_a_denormalizer_changes_the_decoded_text(tmp_path: Path, kind: str, options: tuple[str, ...]) -> None:
    (tmp_path / "rules.tsv").write_text("61\t41\n20 2e\t2e\n62 62\t63\n65\t\n", encoding="utf-8")
    model = sentencepiece.read(train(kind, {"denormalization_rule_tsv": str(tmp_path / "rules.tsv")}), "model")
    assert model.denormalizer is not None
    spec = dataclasses.replace(model.denormalizer, **dict.fromkeys(options, True))
    data = sentencepiece.write(dataclasses.replace(model, denormalizer=spec))
    theirs, ours = spm.SentencePieceProcessor(model_proto=data), load(data)
    ours.save(tmp_path / "again.model", format="sentencepiece")
    texts = [*families.sample()[:20], "a mill . bb e", "  abba  . ", "", " a", " ."]
    for each in (ours, Tokenizer.from_str(ours.to_str()), Tokenizer.from_file(tmp_path / "again.model")):
        assert_same(each, theirs, texts)
        rows = [row for row in theirs.encode(texts) if theirs.unk_id() not in row]
        assert len(rows) > 5
        assert each.decode_batch(rows) == theirs.decode(rows)


def test_a_piece_that_no_text_becomes() -> None:
    pieces = [("<unk>", 0.0, 2), *((piece, -i - 1.0, 1) for i, piece in enumerate(["ma", "<mask>", *"▁mask"]))]
    data = sentencepiece.write(SentencePieceFile.of(*zip(*pieces, strict=True), TrainerSpec(model_type=BPE)))
    assert_same(load(data), spm.SentencePieceProcessor(model_proto=data), ["<mask> ma", "mask", "<<", "a<m"])


def test_the_differences_are_these(tmp_path: Path) -> None:
    seen = set()
    path = tmp_path / "m.model"
    path.write_bytes(train("unigram", {}))
    theirs, ours = spm.SentencePieceProcessor(model_file=str(path)), Tokenizer.from_file(path)
    assert theirs.decode([theirs.unk_id()]) == " ⁇ "
    if [ours.decode([theirs.unk_id()], skip) for skip in (True, False)] == ["", "<unk>"]:
        seen.add("decode of an unknown piece")
    path.write_bytes(train("word", {}))
    theirs = spm.SentencePieceProcessor(model_file=str(path))
    assert theirs.encode("xq qx mill") == [theirs.unk_id(), theirs.piece_to_id("▁mill")]
    with pytest.raises(TokenizerFileError, match="models of words are not supported"):
        Tokenizer.from_file(path)
    seen.add("SentencePiece models of words")

    for model_type in ("unigram", "bpe"):
        path.write_bytes(train(model_type, OPTIONS["llama2"]))
        theirs, ours = spm.SentencePieceProcessor(model_file=str(path)), Tokenizer.from_file(path)
        got, expected = ours.encode("a\u0e5b"), theirs.encode("a\u0e5b", return_type="proto").pieces
        assert got.tokens[-3:] == [piece.piece for piece in expected[-3:]] == ["<0xE0>", "<0xB9>", "<0x9B>"]
        assert got.offsets[-3:] == [(1, 2)] * 3
        if [piece.surface for piece in expected[-3:]] == ["", "", "\u0e5b"]:
            seen.add("offsets of parts of a character")
        ids = [theirs.piece_to_id("<0x20>"), theirs.piece_to_id("a")]
        if (ours.decode(ids), theirs.decode(ids)) == ("a", " a"):
            seen.add("spaces as bytes in front of a text")

    model = sentencepiece.read(train("bpe", {}), "model")
    place = model.pieces.index("▁the")
    types = model.types.copy()
    types[place] = PieceType.UNUSED
    path.write_bytes(sentencepiece.write(dataclasses.replace(model, types=types)))
    theirs = spm.SentencePieceProcessor(model_file=str(path))
    assert place not in theirs.encode("the")
    with pytest.raises(TokenizerFileError, match="unused pieces of a BPE model are not supported: '▁the'"):
        Tokenizer.from_file(path)
    seen.add("unused pieces of SentencePiece BPE")
    assert seen == set(DIFFERENCES)
