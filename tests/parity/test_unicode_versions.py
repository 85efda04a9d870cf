# SPDX-License-Identifier: Apache-2.0
"""BERT and patterns against HF tokenizers 0.23 and 1.0: the same ids, on every code point and on marks in any order.

The two cannot be installed side by side. `TOKENMILL_TOKENIZERS_1` names a Python that has 1.0, such as that of a venv
where `pip install --pre "tokenizers>=1.0.0rc3"` has been run.
"""

import json
import os
import random
import subprocess
import unicodedata
from pathlib import Path

import pytest

hf = pytest.importorskip("tokenizers", reason="needs the test group: HF tokenizers")

import numpy as np  # noqa: E402

from tests import strategies  # noqa: E402
from tests.parity import families  # noqa: E402
from tokenmill.tokenizer import Tokenizer  # noqa: E402
from tokenmill.tokenizer.models.byte_alphabet import BYTE_ALPHABET  # noqa: E402
from tokenmill.tokenizer.unicode import data  # noqa: E402

pytestmark = pytest.mark.parity

_PROGRAM = """
import json, sys, tokenizers
tokenizer = tokenizers.Tokenizer.from_file(sys.argv[1])
texts = json.load(open(sys.argv[2], encoding="utf-8"))
parts = (tokenizer.encode_batch(texts[i : i + 5000]) for i in range(0, len(texts), 5000))
json.dump([list(encoding.ids) for part in parts for encoding in part], sys.stdout)
"""


def vocabulary(texts: list[str]) -> list[str]:
    """Every character that can be in a token of the texts, so that ids tell what became of them."""
    found = set("".join(texts))
    for form in ("NFD", "NFC"):
        found |= {x for c in list(found) for text in (c, c.lower()) for x in unicodedata.normalize(form, text)}
    found |= {x for text in data.texts("text/canonical").values() for x in text}
    return ["[UNK]", *(form for c in sorted(found - {"\0"}) for form in (c, f"##{c}"))]


def texts_of_marks(n: int) -> list[str]:
    rng = random.Random(7)
    marks = np.flatnonzero(data.numbers("text/combining_classes") | data.numbers("bert/combining_classes")).tolist()
    canonical = data.texts("text/canonical")
    kinds = [marks, list(canonical), [ord(c) for text in canonical.values() for c in text], [0x20, 0x1D165, 0x16FF0]]
    kinds += [list(data.texts("bert/decompositions")), np.flatnonzero(data.members("text/punctuation")).tolist()]
    return [
        "a" + "".join(chr(rng.choice(rng.choice(kinds))) for _ in range(rng.randrange(2, 7))) + "b" for _ in range(n)
    ]


def of_1(path: Path, texts: list[str]) -> list[list[int]]:
    """Returns the ids of a `tokenizer.json` in HF tokenizers 1.0."""
    python = os.environ.get("TOKENMILL_TOKENIZERS_1")
    if not python:
        pytest.skip("TOKENMILL_TOKENIZERS_1 names no Python with tokenizers 1.0")
    (path.parent / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
    command = [python, "-c", _PROGRAM, str(path), str(path.parent / "texts.json")]
    found: list[list[int]] = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    return found


_DEEPSEEK = (*families._DEEPSEEK[:2], families._DEEPSEEK[2].replace(r"\r\n", "\r\n"))
_PATTERNS: dict[str, tuple[str, ...]] = {
    "gpt2": (), "starcoder": (), "cl100k": (families._CL100K,), "qwen2": (families._QWEN2,),
    "o200k": (families._O200K,), "tekken": (families._TEKKEN,), "deepseek": _DEEPSEEK,
}  # fmt: skip
"""The patterns that 1.0 takes, but for Kimi's, to whose Han it counts neither radicals nor one sign."""


@pytest.mark.parametrize("name", _PATTERNS)
def test_patterns_have_the_ids_of_either(tmp_path: Path, name: str) -> None:
    letters = list(BYTE_ALPHABET)
    merges = list(dict.fromkeys(pair for x in "aAĠ1!Ċ" for b in letters for pair in ((x, b), (b, x))))
    vocab = {token: i for i, token in enumerate(dict.fromkeys([*letters, *(a + b for a, b in merges)]))}
    steps = [hf.pre_tokenizers.Split(hf.Regex(p), "isolated") for p in _PATTERNS[name]]
    steps += [hf.pre_tokenizers.Digits(True)] if name == "starcoder" else []
    theirs = hf.Tokenizer(hf.models.BPE(vocab=vocab, merges=merges))
    last = hf.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not _PATTERNS[name])
    theirs.pre_tokenizer = hf.pre_tokenizers.Sequence([*steps, last]) if steps else last
    path = tmp_path / "tokenizer.json"
    theirs.save(str(path))
    texts = [f"a{c}a!{c} {c}1\nA{c}A" for c in strategies.TRIED]
    expected = {"8": list(families.ids_of(theirs, texts)), "17": of_1(path, texts)}
    for version, ids in expected.items():
        rows = Tokenizer.from_file(path, unicode=version).encode_arrow(texts).to_pylist()
        assert [(text, a, b) for text, a, b in zip(texts, rows, ids, strict=True) if a != b] == []
    assert expected["8"] != expected["17"]


@pytest.mark.parametrize(("lowercase", "n_differing"), [(True, 164), (False, 143)])
def test_bert_has_the_ids_of_either(tmp_path: Path, lowercase: bool, n_differing: int) -> None:
    of_characters = [f"a{c}b" for c in strategies.TRIED if c != "\0"]
    texts = of_characters + texts_of_marks(20_000)
    tokenizer = Tokenizer.for_bert(vocabulary(texts), lowercase=lowercase)
    tokenizer.save(tmp_path / "bert.json")
    found = of_1(tmp_path / "bert.json", texts)
    theirs = hf.Tokenizer.from_file(str(tmp_path / "bert.json"))
    expected = {"8": [theirs.encode(text).ids for text in texts], "17": found}
    for version, ids in expected.items():
        rows = Tokenizer.from_file(tmp_path / "bert.json", unicode=version).encode_arrow(texts).to_pylist()
        assert [(text, a, b) for text, a, b in zip(texts, rows, ids, strict=True) if a != b] == []
    both = zip(of_characters, expected["8"], expected["17"], strict=False)
    assert sum(older != newer for _, older, newer in both) == n_differing
