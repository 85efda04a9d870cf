# SPDX-License-Identifier: Apache-2.0
"""`as_sentencepiece()` does what sentencepiece does, for models of every type and option."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

spm = pytest.importorskip("sentencepiece", reason="needs the test group: sentencepiece")

import numpy as np  # noqa: E402
from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from tests import strategies  # noqa: E402
from tests.parity.test_sentencepiece_tokenizers import OPTIONS, PIECES, train  # noqa: E402
from tokenmill.tokenizer import Tokenizer  # noqa: E402

pytestmark = pytest.mark.parity

DIFFERENCES = {
    "scores of characters of BPE": "behind those of merges; the file's are not kept, and decide nothing",
    "names of bos, eos and pad": "<s>, </s> and <pad>, if these are control pieces; a file may say others",
    "order of n-best with equal scores": "the longer last piece first; sentencepiece sums in single precision",
    "what sentencepiece draws": "other random numbers, from a seed: the same each time",
    "sampling of BPE": "refused: HF's dropout tries a merge again, sentencepiece's does not",
    "protocol buffers and offset_mapping": "refused; offsets are those of `Tokenizer.encode`",
}
CASES = [("unigram", "plain"), ("unigram", "llama2"), ("unigram", "symbols"), ("unigram", "suffix"), ("char", "plain")]
CASES += [("bpe", name) for name in ("plain", "llama2", "gemma", "no prefix", "spaces kept")]
TEXTS = strategies.texts(30) | st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    model_type, name = request.param
    data = train(model_type, OPTIONS[name] | {"pad_id": 3})
    path = tmp_path_factory.mktemp("model") / "m.model"
    path.write_bytes(data)
    return Tokenizer.from_file(path).as_sentencepiece(), spm.SentencePieceProcessor(model_proto=data)


def outcome(function: Any, *arguments: Any, **options: Any) -> Any:
    """Returns what a call gives; of an error its type."""
    try:
        found = function(*arguments, **options)
    except (IndexError, TypeError, ValueError) as error:
        return type(error)
    return (found.dtype, found.tolist()) if isinstance(found, np.ndarray) else found


def test_texts_become_the_same_ids_and_pieces(both: tuple[Any, Any]) -> None:
    ours, theirs = both
    flags = st.fixed_dictionaries(
        {}, optional={name: st.booleans() for name in ("add_bos", "add_eos", "reverse", "emit_unk_piece")}
    )

    @strategies.FEWER
    @given(TEXTS, flags, st.sampled_from([int, str, "numpy"]))
    def check(text: str, options: dict[str, bool], out_type: Any) -> None:
        found, expected = (outcome(each.encode, text, out_type=out_type, **options) for each in both)
        assert found == expected
        assert ours.encode([text, text, "a"], **options) == theirs.encode([text, text, "a"], **options)
        assert ours.normalize(text) == theirs.normalize(text)

    check()


def test_ids_and_pieces_become_the_same_texts(both: tuple[Any, Any]) -> None:
    ours, theirs = both
    ids = st.lists(st.integers(0, len(theirs) - 1) | st.integers(0, 5), max_size=12)
    pieces = st.lists(st.sampled_from([*PIECES, "▁the", "▁"]), max_size=8)

    @strategies.FEWER
    @given(ids, pieces)
    def check(ids: list[int], pieces: list[str]) -> None:
        for each in (ids, pieces, [ids, ids[:2]], ids[:1], np.array(ids, np.int32), np.array([ids, ids], np.uint16)):
            assert ours.decode(each) == theirs.decode(each)

    check()


def test_the_vocabulary_is_the_same(both: tuple[Any, Any]) -> None:
    ours, theirs = both
    ids = list(range(len(theirs)))
    for name in ("id_to_piece", "is_unknown", "is_control", "is_unused", "is_byte"):
        assert getattr(ours, name)(ids) == getattr(theirs, name)(ids)
    for piece in ("the", "▁the", "<s>", "no such piece", "<unk>"):
        assert ours.piece_to_id(piece) == theirs.piece_to_id(piece) == ours[piece]
    for name in ("unk_id", "bos_id", "eos_id", "pad_id", "get_piece_size", "__len__"):
        assert getattr(ours, name)() == getattr(theirs, name)()
    has_merges = getattr(ours._tokenizer.model, "merges", None)
    for i in ids:
        if has_merges is None or (has_merges and len(theirs.id_to_piece(i)) > 1):
            assert ours.get_score(i) == theirs.get_score(i), theirs.id_to_piece(i)
    for function in (ours.id_to_piece, theirs.id_to_piece, ours.decode, theirs.decode):
        with pytest.raises(IndexError, match="out of range"):
            function(len(ids))


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., tuple[Tokenizer, Any]]:
    """Returns a function that trains a model, for both libraries."""

    def make(model_type: str, **options: Any) -> tuple[Tokenizer, Any]:
        data = train(model_type, options)
        (tmp_path / "m.model").write_bytes(data)
        return Tokenizer.from_file(tmp_path / "m.model"), spm.SentencePieceProcessor(model_proto=data)

    return make


def test_the_best_ways_are_the_same(made: Any) -> None:
    tokenizer, theirs = made("unigram")
    ours = tokenizer.as_sentencepiece(out_type=str)
    for text in ("the mill grinds", "玫 ☃☃ tokens", ""):
        for options in ({"nbest_size": 3}, {"nbest_size": 4, "add_eos": True, "reverse": True}):
            assert ours.nbest_encode(text, **options) == theirs.nbest_encode(text, out_type=str, **options)
    assert ours.nbest_encode_as_ids("the mill", 2) == theirs.nbest_encode_as_ids("the mill", 2)
    with pytest.raises(ValueError, match="n-best is for Unigram models of sentencepiece"):
        made("bpe")[0].as_sentencepiece().nbest_encode("the mill", nbest_size=2)


def test_draws_differ_and_come_again(made: Any) -> None:
    tokenizer, theirs = made("unigram")
    text = "the miller's mill grinds text ☃ into tokens"
    first, second = ([tokenizer.as_sentencepiece(seed=seed) for _ in range(2)] for seed in (1, 2))
    draws = [[each.sample_encode_as_pieces(text, alpha=0.3) for _ in range(20)] for each in (*first, second[0])]
    assert draws[0] == draws[1]
    assert draws[0] != draws[2]
    assert len(set(map(tuple, draws[0]))) > 5
    assert {"".join(each) for each in draws[0]} == {"".join(theirs.encode(text, out_type=str))}
    assert first[0].encode([text, text], enable_sampling=True, alpha=0.0) == first[1].encode(
        [text, text], enable_sampling=True, alpha=0.0
    )


def test_what_it_does_not_have_is_refused(made: Any) -> None:
    tokenizer, _ = made("unigram", bos_id=-1)
    ours = tokenizer.as_sentencepiece()
    assert ours.EncodeAsIds("the mill") == ours.encode("the mill") == ours.tokenize(b"the mill")
    with pytest.raises(ValueError, match="the model has no control piece for add_bos"):
        ours.encode("a", add_bos=True)
    with pytest.raises(ValueError, match="out_type must be int, str, bytes or 'numpy', got 'proto'"):
        ours.encode("a", return_type="proto")
    with pytest.raises(TypeError, match="unknown option 'bos'; there are out_type, add_bos"):
        ours.encode("a", bos=True)
    with pytest.raises(TypeError, match="unknown option 'bos'; there are out_type, add_bos"):
        tokenizer.as_sentencepiece(bos=True)
    with pytest.raises(ValueError, match="nbest_size must be above 1, or -1 for all, to draw, got 1"):
        ours.encode("a", enable_sampling=True, nbest_size=1)
    with pytest.raises(ValueError, match="sampling is for Unigram models: sentencepiece's dropout"):
        made("bpe")[0].as_sentencepiece(enable_sampling=True).encode("a")
    with pytest.raises(TypeError, match="a text must be str or bytes, got 3"):
        ours.encode(["a", 3])
    with pytest.raises(ValueError, match="decode gives str or bytes, and has no other options"):
        ours.decode([5], out_type="numpy")
    for ids, got in ((np.array([5.0]), "float64 in 1"), (np.full((1, 1, 1), 5), "int64 in 3")):
        with pytest.raises(TypeError, match=f"ids must be integers in one dimension or two, got {got}"):
            ours.decode(ids)
    with pytest.raises(AttributeError, match="no attribute 'encode_as_proto'"):
        ours.EncodeAsProto("a")
    with pytest.raises(ValueError, match="cannot hold"):
        Tokenizer.for_bert(["[UNK]", "a"]).as_sentencepiece()
