# SPDX-License-Identifier: Apache-2.0
"""What `save_pretrained` of transformers 5 writes for each fast tokenizer class: the same ids, and texts again.

The vocabularies are those of `families`, behind the special tokens of the class.
"""

import json
from pathlib import Path
from typing import Any

import pytest

hf = pytest.importorskip("tokenizers", reason="needs the test group: HF tokenizers")
transformers = pytest.importorskip("transformers", reason="needs transformers")

import pyarrow as pa  # noqa: E402
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES  # noqa: E402
from transformers.tokenization_utils_tokenizers import TokenizersBackend  # noqa: E402

from tests.parity import families  # noqa: E402
from tokenmill.tokenizer import Tokenizer  # noqa: E402

pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore")]

NOT_MADE = {
    "ParakeetTokenizer": "makes no tokenizer of a vocabulary",
    "RoFormerTokenizer": "needs rjieba, and its pre-tokenizer is Python code, which no file holds",
    "TokenizersBackend": "has no parts of its own",
}
OPTIONS: dict[str, dict[str, Any]] = {
    "MarkupLMTokenizer": {"tags_dict": {"a": 0}},
    "PegasusTokenizer": {"vocab": [("<pad>", 0.0), ("<unk>", 0.0)]},  # which it looks for behind the first
}
TEXTS = [
    # Parts of words that are words elsewhere, and special tokens that stand in text.
    "日本語 日 本 語 日本 हिन्दी हि न्दी 한국어 한국 어 ไทย ไ ทย token tok en 👩🏽 👩 🏽 " * 2,
    "<|startoftext|>!! <|endoftext|>? <mask> [MASK] </s> <s>", " a  b\n\n\tc ", "", "it's I'LL 1234 ²½ é e\u0301 ﬁ",
]  # fmt: skip


def _names() -> list[str]:
    """The names of all fast classes, each once; many models have one that is another by a second name."""
    kinds = {getattr(transformers, name, None) for name in TOKENIZER_MAPPING_NAMES.values() if name}
    return sorted(kind.__name__ for kind in kinds if isinstance(kind, type) and issubclass(kind, TokenizersBackend))


def _made(name: str) -> Any:
    """Makes a tokenizer of a class, with a vocabulary that suits its model."""
    kind, options = getattr(transformers, name), OPTIONS.get(name, {})
    empty = kind(**options)
    fields = json.loads(empty.backend_tokenizer.to_str())
    model, is_byte_level = fields["model"], '"ByteLevel"' in json.dumps([fields["pre_tokenizer"], fields["decoder"]])
    of_bpe = {(True, True): "clip", (True, False): "char bpe", (False, True): "gpt2", (False, False): "llama2"}
    family = {"WordPiece": "wordpiece", "Unigram": "t5", "WordLevel": "word level"}.get(model["type"])
    learnt = json.loads(families.family(family or of_bpe[bool(model["end_of_word_suffix"]), is_byte_level]))["model"]
    if model["type"] == "Unigram":
        pieces = dict(map(tuple, model["vocab"])) | dict(map(tuple, learnt["vocab"]))
        return kind(**(options | {"vocab": list(pieces.items())}))
    tokens = [*sorted(model["vocab"], key=model["vocab"].get), *empty.all_special_tokens]
    tokens += sorted(learnt["vocab"], key=learnt["vocab"].get)
    vocab = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    merges = {"merges": list(map(tuple, learnt["merges"]))} if model["type"] == "BPE" else {}
    return kind(vocab=vocab, **merges, **options)


@pytest.mark.parametrize("name", _names())
def test_a_class_of_transformers_5(name: str, tmp_path: Path) -> None:
    if name in NOT_MADE:
        pytest.skip(NOT_MADE[name])
    _made(name).save_pretrained(tmp_path)
    ours, theirs = Tokenizer.from_file(tmp_path), hf.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    theirs.encode_special_tokens = True
    texts = [*families.sample(), *TEXTS]
    expected = [encoding.ids for encoding in theirs.encode_batch(texts)]
    assert [ours.encode(text).ids for text in texts] == expected
    assert [encoding.ids for encoding in ours.encode_batch(texts)] == expected
    for _ in range(2):
        assert ours.encode_arrow(pa.array(texts), add_special_tokens=True).to_pylist() == expected
    # By a tokenizer that has met other texts before, one row at a time, the last ones first.
    for text, row in zip(reversed(texts), reversed(expected), strict=True):
        assert ours.encode_arrow(pa.array([text]), add_special_tokens=True).to_pylist() == [row]
    assert [ours.decode(row) for row in expected] == [theirs.decode(row) for row in expected]
