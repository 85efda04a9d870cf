# SPDX-License-Identifier: Apache-2.0
"""The interface of HF tokenizers 1.0 over `as_tokenizers`, which is that of 0.23, and the files that its tests load.

`foreign_suites` fetches its tests. Their four tokenizers are in none of its distributions: they are taken from the
folder that `TOKENMILL_TOKENIZERS_1_DATA` names. The others are made, like them in all that the tests ask of them.
"""

import dataclasses
import json
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import tokenizers as subjects
from tokenmill import Tokenizer
from tokenmill.tokenizer import AddedToken, decoders, models, normalizers, post_processors, pre_tokenizers
from tokenmill.tokenizer.formats import vocab_txt
from tokenmill.tokenizer.trainers import BPETrainer

_UNSET: Any = object()
_TEXT = "Hello there, how are you today?"


@dataclasses.dataclass
class Encoding:
    """What 1.0 knows of an encoded text."""

    ids: list[int]
    type_ids: list[int]
    attention_mask: list[int]

    def __len__(self) -> int:
        return len(self.ids)

    def __getattr__(self, name: str) -> Any:
        if not name.endswith("_array"):
            raise AttributeError(name)
        return np.array(getattr(self, name.removesuffix("_array")), np.uint32)


class Newer:
    """`as_tokenizers` as the `Tokenizer` of 1.0; `Padding` and `Truncation` are its own."""

    def __init__(self, text: str, padding: Any, truncation: Any) -> None:
        """Takes a `tokenizer.json`, and what it says of rows."""
        self._text, self.padding, self.truncation = text, padding, truncation
        self._lock = threading.Lock()
        self._of: list[Any] = []
        tok = Tokenizer.from_str(text)
        self._special = {token.id for token in tok.added_tokens if token.special}
        for is_text in (False, True):
            self._of.append(tok.as_tokenizers())
            self._of[-1].encode_special_tokens = is_text
            self._of[-1].no_padding(), self._of[-1].no_truncation()

    def __reduce__(self) -> tuple[Any, ...]:
        return Newer, (self._text, self.padding, self.truncation)

    @classmethod
    def from_file(cls, path: Any) -> "Newer":
        """Loads a `tokenizer.json`."""
        import tokenizers

        tok = Tokenizer.from_file(path)
        padding = None if tok.padding is None else tokenizers.Padding(**vars(tok.padding))
        fields = {} if tok.truncation is None else vars(tok.truncation)
        kept = {name: value for name, value in fields.items() if name != "stride"}
        return cls(tok.to_str(), padding, tokenizers.Truncation(**kept) if kept else None)

    def encode_batch(
        self, inputs: Sequence[Any], *, add_special_tokens: bool = True, encode_special_tokens: bool = False,
        padding: Any = _UNSET, truncation: Any = _UNSET,
    ) -> list[Encoding]:  # fmt: skip
        """Encodes texts and pairs."""
        padding = self.padding if padding is _UNSET else padding
        truncation = self.truncation if truncation is _UNSET else truncation
        if any(not isinstance(each, str) and len(each) != 2 for each in inputs):
            raise TypeError("a pair has two texts")
        tok = self._of[encode_special_tokens]
        with self._lock:
            for name, given in (("padding", padding), ("truncation", truncation)):
                if given is None:
                    getattr(tok, f"no_{name}")()
                else:
                    named = (n for n in dir(given) if not n.startswith("_"))
                    getattr(tok, f"enable_{name}")(**{n: getattr(given, n) for n in named})
            found = tok.encode_batch(list(inputs), add_special_tokens=add_special_tokens)
        return [Encoding(each.ids, each.type_ids, each.attention_mask) for each in found]

    def encode(self, input: Any, **options: Any) -> Encoding:
        """Encodes a text or a pair."""
        return self.encode_batch([input], **options)[0]

    def tokenize(self, input: Any, **options: Any) -> list[str]:
        """Returns the tokens of a text or a pair."""
        return self.decode_tokens(self.encode(input, **options))

    def decode(self, ids: Any, skip_special_tokens: bool = True) -> str:
        """Returns the text of ids."""
        text: str = self._of[0].decode(_listed(ids), skip_special_tokens)
        return text

    def decode_tokens(self, ids: Any, skip_special_tokens: bool = False) -> list[str]:
        """Returns the tokens of ids."""
        skipped = self._special if skip_special_tokens else ()
        return [self._of[0].id_to_token(i) for i in _listed(ids) if i not in skipped]


def _listed(ids: Any) -> list[int]:
    return [int(i) for i in (ids.ids if isinstance(ids, Encoding) else ids)]


def shim() -> None:
    """Puts `Newer` in the place of 1.0's `Tokenizer`."""
    import tokenizers

    tokenizers.Tokenizer, tokenizers.Encoding = Newer, Encoding


def write_data(folder: Path) -> bool:
    """Writes the tokenizers of 1.0's tests into a folder; returns False if one can neither be copied nor made."""
    vocab = Path(os.environ.get("TOKENMILL_SHARED", "nowhere"), "data", "vocab")
    given = Path(os.environ.get("TOKENMILL_TOKENIZERS_1_DATA", "nowhere"))
    made: dict[str, Callable[[Path], Tokenizer]] = {
        "gpt2": subjects.load_gpt2, "bert-wiki": _bert, "tokenizer-wiki": _wiki, "llama-3-tokenizer": _llama3,
    }  # fmt: skip
    if not vocab.is_dir() and not all((given / f"{name}.json").is_file() for name in made):
        return False
    folder.mkdir(exist_ok=True)
    for name, make in made.items():
        if (given / f"{name}.json").is_file():
            shutil.copy(given / f"{name}.json", folder)
        else:
            (folder / f"{name}.json").write_text(make(vocab).to_str(), encoding="utf-8")
    return True


def _bert(vocab: Path) -> Tokenizer:
    """A WordPiece with a template, in whose vocabulary the ids that the tests name are those of the same words."""
    tokens = vocab_txt.read((vocab / "bert-base-uncased.txt").read_text(encoding="utf-8"), "bert")
    order, special = list(tokens), ("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]")
    for at, token in (*enumerate(special), (27462, "hello"), (7495, "there")):
        i = order.index(token)
        order[at], order[i] = order[i], order[at]
    ids = {token: i for i, token in enumerate(order)}
    piece, token_of = post_processors.TemplatePiece, post_processors.SpecialToken
    cls, sep, a, b = piece("[CLS]", 0, False), piece("[SEP]", 0, False), piece("A", 0, True), piece("B", 1, True)
    return Tokenizer(
        model=models.WordPiece(ids),
        normalizer=normalizers.Sequence((normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents())),
        pre_tokenizer=pre_tokenizers.Whitespace(),
        post_processor=post_processors.TemplateProcessing(
            (cls, a, sep), (cls, a, sep, b, piece("[SEP]", 1, False)),
            {name: token_of((ids[name],), (name,)) for name in ("[CLS]", "[SEP]")},
        ),
        added_tokens=[AddedToken(i, token, special=True) for i, token in enumerate(special)],
    )  # fmt: skip


def _wiki(_: Path) -> Tokenizer:
    tok = Tokenizer(model=None, pre_tokenizer=pre_tokenizers.Whitespace())
    special = ["[UNK]", "[CLS]", "[SEP]", "[PAD]"]
    tok.train_from_iterator([_TEXT] * 9, BPETrainer(vocab_size=200, special_tokens=special, unk_token="[UNK]"))
    return tok.replace(post_processor=None, decoder=None)


def _llama3(vocab: Path) -> Tokenizer:
    gpt2 = subjects.load_gpt2(vocab)
    fields = json.loads(gpt2.to_str())
    fields["model"]["ignore_merges"] = True
    begin, end = ((gpt2.n_ids + i, name) for i, name in enumerate(("<|begin_of_text|>", "<|eot_id|>")))
    piece = post_processors.TemplatePiece
    around = tuple(piece(*each) for each in ((begin[1], 0, False), ("A", 0, True)))
    return Tokenizer.from_str(json.dumps(fields)).replace(
        pre_tokenizer=Tokenizer.untrained("none", "llama3", byte_level=True).pre_tokenizer,
        post_processor=post_processors.TemplateProcessing(
            around, (*around, piece("B", 1, True)), {begin[1]: post_processors.SpecialToken((begin[0],), (begin[1],))}
        ),
        decoder=decoders.ByteLevel(),
        added_tokens=[*gpt2.added_tokens, *(AddedToken(i, name, special=True) for i, name in (begin, end))],
    )
