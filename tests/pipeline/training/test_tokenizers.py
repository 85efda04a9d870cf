# SPDX-License-Identifier: Apache-2.0
"""The tokenizer section becomes a tokenizer: every key of it shows in the result."""

import base64
import json

import pyarrow as pa
import pytest

from tests.chats import make_tokenizer
from tokenmill.pipeline import schemas
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.config.output import PackingConfig
from tokenmill.pipeline.config.tokenizer import PaddingConfig, TokenizerConfig, TrainConfig, TruncationConfig
from tokenmill.pipeline.output.arranging import packing_ids
from tokenmill.pipeline.training.tokenizers import counting_tokenizer, load_tokenizer, shape_rows, train_tokenizer
from tokenmill.tokenizer import Tokenizer

TEXTS = pa.array(["Mills, Ⰻx"])


def trained(config: TokenizerConfig):
    """The only tokenizer that a section describes."""
    ((size, tokenizer),) = train_tokenizer(COUNTS, config).items()
    assert size == config.train.vocab_size
    return shape_rows(tokenizer, config)


COUNTS = pa.table(
    [pa.array([b"ab", b"abc", b"b"], pa.large_binary()), pa.array([5, 3, 2], pa.int64())], schema=schemas.WORD_COUNTS
)


def ids(tokenizer, texts=TEXTS, **options):
    return tokenizer.encode_arrow(texts, **options).to_pylist()[0]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"lowercase": False}, [1, 17, 1]),
        ({"oov": "contain"}, [7, 13, 17, 1]),
        ({"truncation": TruncationConfig(max_length=2)}, [7, 13]),
        ({"truncation": TruncationConfig(max_length=2, side="left")}, [17, 1]),
        ({"padding": PaddingConfig(length=6)}, [7, 13, 17, 1, 0, 0]),
        ({"padding": PaddingConfig(length=6, side="left")}, [0, 0, 7, 13, 17, 1]),
    ],
)
def test_every_key_changes_what_is_loaded(tiny_vocab_file, changes, expected):
    assert ids(load_tokenizer(TokenizerConfig(file=str(tiny_vocab_file), **changes))) == expected


def test_what_the_file_does_not_say(tmp_path, tiny_vocab_file):
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "MyBertTokenizer"}')
    with pytest.raises(ValueError, match="the class 'MyBertTokenizer' makes tokens is not known"):
        load_tokenizer(TokenizerConfig(file=str(tiny_vocab_file.parent)))
    named = TokenizerConfig(file=str(tiny_vocab_file.parent), as_class="BertTokenizer")
    assert ids(load_tokenizer(named)) == [7, 13, 17, 1]
    ranks = tmp_path / "ranks.tiktoken"
    ranks.write_text("".join(f"{base64.b64encode(bytes([b])).decode()} {b}\n" for b in range(256)))
    assert ids(load_tokenizer(TokenizerConfig(file=str(ranks), pattern="llama3"))) == list("Mills, Ⰻx".encode())
    newer = load_tokenizer(TokenizerConfig(file=str(tiny_vocab_file), unicode="17"))
    assert newer.unicode_versions["categories"] == "17.0.0"
    for changes in ({"as_class": "BertTokenizer"}, {"pattern": "llama3"}, {"unicode": "17"}):
        with pytest.raises(ValueError, match="says how to read `file`, but no file is given"):
            Config.model_validate({"input": {"paths": ["a"]}, "tokenizer": changes, "output": {"path": "out"}})


@pytest.mark.parametrize(
    "model, problem",
    [
        (None, "tokenizer.json' has no model, so no text can be tokenized with it"),
        ({"max_input_chars_per_word": 1 << 63}, "must fit into 64 bits, got 9223372036854775808"),
    ],
)
def test_a_tokenizer_that_cannot_tokenize_is_refused_before_any_text(tiny_vocab_file, tmp_path, model, problem):
    parts = json.loads(Tokenizer.from_file(tiny_vocab_file).to_str())
    parts["model"] = model and {**parts["model"], **model}
    (tmp_path / "tokenizer.json").write_text(json.dumps(parts))
    with pytest.raises(ValueError, match=problem):
        load_tokenizer(TokenizerConfig(file=str(tmp_path / "tokenizer.json")))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"vocab_size": 8}, ["ab"]),
        ({"min_frequency": 4}, ["ab"]),
        ({"limit_alphabet": 2}, ["ab"]),
        ({"rule": "likelihood"}, ["ab", "abc"]),
    ],
)
def test_every_key_changes_what_is_trained(changes, expected):
    base = {"vocab_size": 9, "min_frequency": 1, "special_tokens": ["[UNK]", "[PAD]"]}
    tokenizer = trained(TokenizerConfig(train=TrainConfig(**(base | changes))))
    whole = [token for token in tokenizer.get_vocab() if len(token) > 1 and token[0] not in "[#"]
    assert whole == expected


@pytest.mark.parametrize(
    ("train", "span_tokens", "problem"),
    [
        ({"model": "bpe", "byte_fallback": True, "special_tokens": ["<unk>", "<0x00>"]}, (), "got '<0x00>' twice"),
        ({"model": "unigram", "user_defined_symbols": ["<s>"]}, (), "'<s>' twice"),
        ({"model": "bpe", "user_defined_symbols": ["[URL]"]}, ("[URL]",), r"got '\[URL\]' twice"),
        ({"model": "wordpiece", "initial_alphabet": ["ab"]}, (), "initial_alphabet"),
    ],
)
def test_what_a_trainer_refuses_is_refused_before_words_are_counted(train, span_tokens, problem):
    with pytest.raises(ValueError, match=f"train: .*{problem}"):
        counting_tokenizer(TokenizerConfig(train=train), span_tokens)


PADDING = {"strategy": {"Fixed": 9}, "direction": "Right", "pad_id": 262, "pad_type_id": 0, "pad_token": "<|im_start|>"}


@pytest.mark.parametrize("is_folder", [True, False])
@pytest.mark.parametrize(
    ("config", "changes", "name"),
    [
        ({"pad_token": "<|im_end|>"}, {}, "<|im_end|>"),
        ({"pad_token": {"content": "<|im_end|>", "lstrip": False}}, {"padding": PADDING}, "<|im_end|>"),
        ({"pad_token": None}, {"padding": PADDING}, "<|im_start|>"),
        (None, {"padding": {**PADDING, "pad_id": 0, "pad_token": "[PAD]"}}, None),
        (None, {"special": ["<pad>"]}, "<pad>"),
        (None, {"special": ["[PAD]"]}, "[PAD]"),
        (None, {}, None),
    ],
)
def test_rows_are_filled_with_the_token_that_the_files_name(tmp_path, is_folder, config, changes, name):
    tokenizer = make_tokenizer()
    tokenizer.add_special_tokens(changes.get("special", []))
    made = json.loads(tokenizer.to_str())
    (tmp_path / "tokenizer.json").write_text(json.dumps({**made, "padding": changes.get("padding")}))
    if config is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    path = str(tmp_path if is_folder else tmp_path / "tokenizer.json")
    loaded = load_tokenizer(TokenizerConfig(file=path))
    eos = tokenizer.token_to_id("</s>")
    padded = TokenizerConfig(file=path, padding=PaddingConfig(length=4))
    if name is None:
        assert loaded.pad_token_id is None
        with pytest.raises(ValueError, match=r"padding.pad_token: the tokenizer names no padding token; name one"):
            load_tokenizer(padded)
        with pytest.raises(ValueError, match="names no padding token, and there is no separator; name a token"):
            packing_ids(PackingConfig(length=4), loaded)
        assert packing_ids(PackingConfig(length=4, separator="</s>"), loaded)[1] == eos
    else:
        expected = tokenizer.token_to_id(name)
        assert ids(load_tokenizer(padded), pa.array(["a"]))[1:] == [expected] * 3
        assert packing_ids(PackingConfig(length=4, separator="</s>"), loaded)[1] == expected
    said = TokenizerConfig(file=path, padding=PaddingConfig(length=4, pad_token="</s>"))
    assert ids(load_tokenizer(said), pa.array(["a"]))[1:] == [eos] * 3
    assert packing_ids(PackingConfig(length=4, pad_token="</s>"), loaded)[1] == eos


def test_a_padding_token_that_is_none_says_which_key_names_it(tiny_vocab_file):
    unknown = TokenizerConfig(file=str(tiny_vocab_file), padding=PaddingConfig(length=4, pad_token="<|x|>"))
    with pytest.raises(ValueError, match=r"padding.pad_token: '<\|x\|>': the tokenizer has no such token"):
        load_tokenizer(unknown)
