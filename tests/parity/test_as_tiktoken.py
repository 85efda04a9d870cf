# SPDX-License-Identifier: Apache-2.0
"""`as_tiktoken()` does what tiktoken does: every method, on any text, for any choice of special tokens."""

import base64

import pytest

tiktoken = pytest.importorskip("tiktoken", reason="needs the test group: tiktoken")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from tests import strategies  # noqa: E402
from tokenmill.tokenizer import Tokenizer  # noqa: E402
from tokenmill.tokenizer.added_tokens import AddedToken  # noqa: E402

pytestmark = pytest.mark.parity

PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
WORDS = [b"th", b"the", b" a", b"an", b" an", b"\xe7\x8e", b"  ", b"<|"]
RANKS = {data: i for i, data in enumerate([*(bytes([b]) for b in range(256)), *WORDS])}
SPECIAL = {"<|endoftext|>": 300, "<|a|>": 301, "|>b": 302}
"""Two overlap, but none begins with another: there what tiktoken does depends on the order of a hash table."""
PARTS = [*SPECIAL, "the", " an", "玫", "😀", "\ud83d", "\ude00", "b"]
TEXTS = strategies.texts(30) | st.lists(st.sampled_from(PARTS)).map("".join)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    path = tmp_path_factory.mktemp("ranks") / "small.tiktoken"
    path.write_bytes(b"".join(b"%s %d\n" % (base64.b64encode(data), i) for data, i in RANKS.items()))
    tokenizer = Tokenizer.from_file(path, pattern="r50k_base")
    tokenizer.added_tokens = [AddedToken(i, content) for content, i in SPECIAL.items()]
    theirs = tiktoken.Encoding("small", pat_str=PATTERN, mergeable_ranks=RANKS, special_tokens=SPECIAL)
    return tokenizer.as_tiktoken("small"), theirs


def outcome(function, *arguments, **options):
    """Returns what a call gives; of an error its type."""
    try:
        found = function(*arguments, **options)
    except (ValueError, KeyError) as error:
        return type(error)
    return (found.dtype, found.tolist()) if hasattr(found, "dtype") else found


SETS = st.just("all") | st.sets(st.sampled_from([*SPECIAL, "the"]))


@strategies.FEWER
@given(text=TEXTS, allowed=SETS, disallowed=SETS | st.just(()))
def test_texts_become_the_same_ids(both, text, allowed, disallowed) -> None:
    ours, theirs = both
    allowed = allowed if allowed == "all" else allowed - {"the"}
    has_halves = any("\ud800" <= c <= "\udfff" for c in text)  # for which tiktoken's `encode_to_numpy` has no remedy
    for name in ("encode",) if has_halves else ("encode", "encode_to_numpy"):
        options = {"allowed_special": allowed, "disallowed_special": disallowed}
        assert outcome(getattr(ours, name), text, **options) == outcome(getattr(theirs, name), text, **options)
    assert ours.encode_ordinary(text) == theirs.encode_ordinary(text)
    assert outcome(ours.encode, text) == outcome(theirs.encode, text)


@strategies.FEWER
@given(ids=st.lists(st.integers(0, 270) | st.sampled_from([300, 301, 302]), max_size=20))
def test_ids_become_the_same_texts(both, ids) -> None:
    ours, theirs = both
    for name in ("decode", "decode_bytes", "decode_tokens_bytes", "decode_with_offsets"):
        assert outcome(getattr(ours, name), ids) == outcome(getattr(theirs, name), ids), name
    assert outcome(ours.decode, ids, "strict") == outcome(theirs.decode, ids, "strict")


def test_the_rest_is_the_same(both) -> None:
    ours, theirs = both
    texts = ["the an", "", "玫瑰", "<| <|a"]
    assert ours.encode_ordinary_batch(texts) == theirs.encode_ordinary_batch(texts)
    texts += ["<|a|>the<|a|><|a|>", "<|a|>", "an<|a|>玫"]
    for allowed in ("all", {"<|a|>"}, set()):
        options = {"allowed_special": allowed, "disallowed_special": ()}
        assert ours.encode_batch(texts, **options) == theirs.encode_batch(texts, **options)
    assert ours.encode_batch(iter(texts), **options) == theirs.encode_batch(texts, **options)
    assert ours.encode_batch([], allowed_special="all") == []
    allowed = {"<|a|>", "unknown"}
    assert ours.encode("<|a|>", allowed_special=allowed) == theirs.encode("<|a|>", allowed_special=allowed)
    assert allowed == {"<|a|>", "unknown"}
    with pytest.raises(ValueError, match=r"special token '<\|a\|>', which is disallowed"):
        ours.encode_batch(texts)
    for ids in map(theirs.encode_ordinary, ["a\u0400b", "玫瑰"]):
        assert ours.decode_with_offsets(ids) == theirs.decode_with_offsets(ids)
    batch = [[256, 257], [300], []]
    assert ours.decode_batch(batch) == theirs.decode_batch(batch)
    assert ours.decode_bytes_batch(batch) == theirs.decode_bytes_batch(batch)
    for value in ("the", b"\xe7\x8e", "<|a|>", "nothing"):
        assert outcome(ours.encode_single_token, value) == outcome(theirs.encode_single_token, value)
    for token in (0, 263, 264, 300, 999):
        assert outcome(ours.decode_single_token_bytes, token) == outcome(theirs.decode_single_token_bytes, token)
        assert ours.is_special_token(token) == theirs.is_special_token(token)
    for name in ("name", "n_vocab", "max_token_value", "eot_token", "special_tokens_set"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert ours.token_byte_values() == theirs.token_byte_values()
    assert repr(ours) == repr(theirs)
    public = {name for name in dir(theirs) if not name.startswith("_")}
    assert public - set(dir(ours)) == {"encode_with_unstable"}


def test_of_special_tokens_that_begin_alike_the_longest_that_is_allowed_is_taken(both) -> None:
    special = {"<|a|>": 301, "<|a|>b": 302, "<|a|>bc": 303}
    tokenizer = both[0]._tokenizer.replace(added_tokens=[AddedToken(i, content) for content, i in special.items()])
    theirs = tiktoken.Encoding("small", pat_str=PATTERN, mergeable_ranks=RANKS, special_tokens=special)
    rest = {"<|a|>": "bc", "<|a|>b": "c", "<|a|>bc": ""}
    possible = [[special[token], *both[1].encode_ordinary(rest[token])] for token in special]
    possible.append(both[1].encode_ordinary("<|a|>bc"))  # if it finds one that is not allowed
    for allowed in ({"<|a|>"}, {"<|a|>", "<|a|>b"}, {"<|a|>bc"}, "all"):
        longest = max(special if allowed == "all" else allowed, key=len)
        options = {"allowed_special": allowed, "disallowed_special": ()}
        assert tokenizer.as_tiktoken().encode("<|a|>bc", **options) == possible[special[longest] - 301]
        assert theirs.encode("<|a|>bc", **options) in possible
