# SPDX-License-Identifier: Apache-2.0
"""SentencePiece files: reading, writing, hostile bytes, parts; the normalizer and its reference implementation."""

import dataclasses
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import charsmaps, strategies
from tests.reference.tracing import traced
from tokenmill.tokenizer.errors import TokenizerFileError
from tokenmill.tokenizer.formats import sentencepiece
from tokenmill.tokenizer.formats.sentencepiece import BPE, NormalizerSpec, SentencePieceFile, TrainerSpec
from tokenmill.tokenizer.normalizers.sentencepiece import SentencePieceNormalizer

PIECES = [
    ("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3), ("<sep>", 0.0, 4), ("▁", -2.5, 1), ("a", -2.0, 1),
    ("b", -2.25, 1), ("ab", -3.0, 1), ("▁a", -2.75, 1), ("玫", -5.0, 1), ("ba", -3.0, 5),
]  # fmt: skip


def make(pieces: list[tuple[str, float, int]] = PIECES, **fields: object) -> SentencePieceFile:
    texts, scores, types = zip(*pieces, strict=True)
    return SentencePieceFile.of(texts, scores, types, **fields)


def charsmap(rules: dict[str, str]) -> bytes:
    return charsmaps.build({key.encode(): text for key, text in rules.items()})


RULES = {
    "A": "a", "ﬁ": "fi", "\t": " ", "x\u0301": "ẍ", "xy": "z", "\u3000": " ", "\u200b": "", "…": ". . ", "½": " 1/2",
}  # fmt: skip


def test_a_round_trip_keeps_everything() -> None:
    model = make(
        trainer=TrainerSpec(unk_surface="?", pad_id=7),
        normalizer=NormalizerSpec("nfkc", charsmap(RULES), False, False, True),
        denormalizer=NormalizerSpec("x", add_dummy_prefix=False),
    )
    again = sentencepiece.read(sentencepiece.write(model), "model")
    for field in dataclasses.fields(model):
        found, expected = (getattr(each, field.name) for each in (again, model))
        assert np.array_equal(found, expected) if isinstance(found, np.ndarray) else found == expected, field.name
    assert sentencepiece.write(again) == sentencepiece.write(model)


def test_a_file_cut_off_anywhere_is_an_error_or_a_smaller_model() -> None:
    data = sentencepiece.write(make(normalizer=NormalizerSpec("identity")))
    for n in range(len(data)):
        try:
            read = sentencepiece.read(data[:n], "cut.model").pieces
        except TokenizerFileError:
            continue
        assert read == make().pieces[: len(read)]


@given(st.integers(0, 10**6), st.integers(0, 255))
def test_one_changed_byte_never_does_worse_than_an_error(at: int, byte: int) -> None:
    data = bytearray(sentencepiece.write(make(normalizer=NormalizerSpec("n", charsmap({"A": "a", "xy": "z"})))))
    data[at % len(data)] = byte
    try:
        model = sentencepiece.read(bytes(data), "x.model")
        sentencepiece.normalizer_of(model).normalize_str("Axyxay \u3000 xy")
    except ValueError:
        pass


@pytest.mark.parametrize(
    "data, message",
    [
        (b"\x0a\xff\xff\xff\xff\x0f", "no sentencepiece model, or not all of one"),
        (b"\x0a", "no sentencepiece model, or not all of one"),
        (b"\x0a\x00", "piece 0 is empty"),
        (b"\x0a\x00" * (2 << 20) + b"\x8a\x00\x00", "has 2097153 pieces; a sentencepiece model has at most 2097152"),
        (b"\x08\x01", "a model has 1..16777216 pieces, got 0"),
    ],
)
def test_broken_wires(data: bytes, message: str) -> None:
    with pytest.raises(TokenizerFileError, match=message):
        sentencepiece.read(data, "x.model")


@pytest.mark.parametrize(
    "pieces, fields, message",
    [
        ([("a", 0.0, 1)], {}, "exactly one unknown piece .type 2., got 0"),
        ([("a", 0.0, 2), ("b", 0.0, 2)], {}, "exactly one unknown piece .type 2., got 2"),
        ([("", 0.0, 2)], {}, "piece 0 is empty"),
        ([("u", 0.0, 2), ("a", 0.0, 1), ("a", 0.0, 4)], {}, "piece 2, 'a', stands in the model twice"),
        ([("u", 0.0, 2), ("a", float("nan"), 1)], {}, "score of piece 1, 'a', must be finite"),
        ([("u", 0.0, 2), ("a", 0.0, 9)], {}, "type of piece 1, 'a', must be one of 1..6, got 9"),
        ([("u", 0.0, 2), ("<0x00>", 0.0, 6)], {}, "byte piece '<0x00>' stands in a model whose byte_fallback is false"),
        ([("u", 0.0, 2)], {"trainer": TrainerSpec(byte_fallback=True)}, "byte_fallback needs the byte pieces"),
        ([("u", 0.0, 2)], {"trainer": TrainerSpec(model_type=9)}, "model_type must be one of 1..4, got 9"),
    ],
)
def test_models_that_sentencepiece_would_not_load(pieces: list, fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(pieces, **fields)


NORMALIZERS = st.builds(
    SentencePieceNormalizer,
    st.sampled_from([b"", charsmap(RULES)]),
    *[st.booleans()] * 4,
    st.sets(st.sampled_from(["<sep>", "A", "AA", " x", "xy", "é", "\u3000", "a b"]), max_size=4).map(
        lambda symbols: tuple(sorted(symbols))
    ),
)
TEXTS = st.one_of(
    strategies.texts(30),
    st.lists(
        st.sampled_from([*RULES, " ", "  ", "▁", "x", "y", "AA", "<sep>", "é", "a b", "e", "\0", "xé"]), max_size=12
    ).map("".join),
)


@given(NORMALIZERS, st.lists(TEXTS, max_size=6))
def test_the_compiled_normalizer_agrees_with_its_reference_implementation(
    normalizer: SentencePieceNormalizer, texts: list[str]
) -> None:
    expected = [traced(normalizer, text).text for text in texts]
    assert normalizer.normalize_arrow(pa.array(texts, pa.large_string())).to_pylist() == expected


def with_one_key(n_bytes: int) -> bytes:
    """A character map with a single key: "a" so many times."""
    end = 1 << 17
    bases = [*((k + 1) ^ 0x61 for k in range(n_bytes)), end]
    units = [(base ^ k) << 10 | 0x61 * (k > 0) | 256 * (k == n_bytes) for k, base in enumerate(bases)]
    units += [1 << 31] * (end + 256 - len(units))
    return struct.pack(f"<{1 + len(units)}I", 4 * len(units), *units) + b"x\0"


def test_keys_have_a_length_that_kernels_have_room_for() -> None:
    assert SentencePieceNormalizer(with_one_key(12)).normalize_str("a" * 13) == "▁xa"
    assert SentencePieceNormalizer(with_one_key(1 << 16)).normalize_str("a" * (1 << 16)) == "▁x"
    with pytest.raises(ValueError, match="has keys without end"):
        SentencePieceNormalizer(with_one_key((1 << 16) + 1))


@pytest.mark.parametrize(
    "blob, message",
    [
        (b"abc", "has only 3 bytes"),
        (struct.pack("<I", 1 << 31) + bytes(2000), "says its trie has 2147483648 bytes, of 2004 in all"),
        (struct.pack("<III", 1024, 0, 1 | 1 << 10) + bytes(1016 + 1), "has keys without end"),
        (charsmap({"A": "a"})[:-1], "lies outside of it or has no end"),
        (charsmap({"A": "a"})[:-2] + b"\xff\0", "not UTF-8"),
    ],
)
def test_broken_character_maps(blob: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SentencePieceNormalizer(blob)


@pytest.mark.parametrize(
    "extra, fields, message",
    [
        ([], {"model_type": 3}, "models of words are not supported; use one of"),
        ([("xy", -1.0, 1)], {"model_type": BPE}, "piece 11, 'xy', is made of 'x', which is no piece"),
        ([("c", -1.0, 5)], {"model_type": BPE}, "unused pieces of a BPE model are not supported"),
    ],
)
def test_what_parts_cannot_represent_is_refused(extra: list, fields: dict, message: str) -> None:
    pieces = [p for p in PIECES if p[2] != 5] if message.startswith("piece") else PIECES
    message = message.replace("11", "10")
    with pytest.raises(TokenizerFileError, match=message):
        sentencepiece.tokenizer_parts(make(pieces + extra, trainer=TrainerSpec(**fields)))
