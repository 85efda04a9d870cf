# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin that puts TokenMill's adapters in the place of the classes of other libraries, for their own tests.

`TOKENMILL_FOREIGN=theirs` leaves the classes as they are, so that both runs meet the same files and the same network.
Files that the tests would fetch come from `TOKENMILL_SHARED`, where it has them.
"""

import base64
import functools
import os
from pathlib import Path
from typing import Any

from tokenmill import Tokenizer
from tokenmill.tokenizer.adapters.tokenizers import DecodeStream
from tokenmill.tokenizer.added_tokens import AddedToken
from tokenmill.tokenizer.formats import bpe_files
from tokenmill.tokenizer.models.bpe import BYTE_ALPHABET

_VOCAB = Path(os.environ.get("TOKENMILL_SHARED", "nowhere"), "data", "vocab")
_FILES = {"bert-base-uncased-vocab.txt": "bert-base-uncased.txt"}
_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
_CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|"
    r"\s*[\r\n]|\s+(?!\S)|\s"
)
_ENCODINGS = {
    **dict.fromkeys(("gpt2", "r50k_base", "p50k_base"), (_GPT2, {"<|endoftext|>": 50256})),
    "cl100k_base": (
        _CL100K,
        {
            "<|endoftext|>": 100257, "<|fim_prefix|>": 100258, "<|fim_middle|>": 100259, "<|fim_suffix|>": 100260,
            "<|endofprompt|>": 100276,
        },
    ),
}  # fmt: skip
"""What stands in for encodings that cannot be fetched: these patterns and special tokens, with GPT-2's ranks."""


def _shim_tiktoken(is_ours: bool) -> None:
    import tiktoken

    original = tiktoken.get_encoding

    @functools.cache
    def get_encoding(name: str) -> Any:
        try:
            found = original(name)
        except Exception:
            if name not in _ENCODINGS:
                raise
            pattern, special = _ENCODINGS[name]
            vocab = bpe_files.read_vocab_json((_VOCAB / "gpt2-vocab.json").read_text(encoding="utf-8"), "gpt2")
            ranks = {bytes(map(BYTE_ALPHABET.index, t)): i for t, i in vocab.items() if t != "<|endoftext|>"}
            found = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)
        return _as_tiktoken(found) if is_ours else found

    tiktoken.get_encoding = get_encoding


def _as_tiktoken(theirs: Any) -> Any:
    lines = (f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in theirs._mergeable_ranks.items())
    tokenizer = Tokenizer.from_buffer("".join(lines).encode(), pattern=theirs._pat_str)
    tokenizer.added_tokens = tuple(AddedToken(i, content) for content, i in theirs._special_tokens.items())
    ours = tokenizer.as_tiktoken(theirs.name)
    for name in ("_pat_str", "_mergeable_ranks", "_special_tokens"):  # which tests read
        setattr(ours, name, getattr(theirs, name))
    return ours


def _shim_sentencepiece() -> None:
    import sentencepiece

    Processor.__module__, Processor.__qualname__ = "sentencepiece", "SentencePieceProcessor"
    sentencepiece.SentencePieceProcessor = Processor


class Processor:
    """A processor that is empty until it is loaded."""

    def __init__(self, model_file: Any = None, model_proto: bytes | None = None, **options: Any) -> None:
        self._options = options
        if model_file is not None and model_proto is not None:
            raise ValueError("model_file and model_proto are both given")
        if model_file is not None or model_proto is not None:
            self.load(model_file, model_proto)

    def load(self, model_file: Any = None, model_proto: bytes | None = None) -> bool:
        """Loads a model."""
        data = Path(model_file).read_bytes() if model_file else model_proto
        if not isinstance(data, bytes):
            raise RuntimeError("no model")
        self._ours = Tokenizer.from_buffer(data).as_sentencepiece(**self._options)
        self._data = data
        return True

    def load_from_serialized_proto(self, data: bytes) -> bool:
        """Loads the bytes of a model."""
        return self.load(None, data)

    Load, LoadFromSerializedProto, LoadFromFile = load, load_from_serialized_proto, load

    @classmethod
    def from_file(cls, model_file: Any, **options: Any) -> "Processor":
        """Makes one of a file."""
        return cls(**({"model_file": model_file} | options))

    @classmethod
    def from_proto(cls, model_proto: bytes, **options: Any) -> "Processor":
        """Makes one of bytes."""
        return cls(**({"model_proto": model_proto} | options))

    def __getstate__(self) -> Any:
        return {name: value for name, value in self.__dict__.items() if name != "_ours"}

    def __setstate__(self, state: Any) -> None:
        state = {"_options": {}, "_data": state} if isinstance(state, bytes) else state
        self.__dict__.update(state)
        if "_data" in state:
            self.load(None, state["_data"])

    def serialized_model_proto(self) -> bytes:
        """Returns the bytes of the model."""
        return self._data

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or "_ours" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self._ours, name)

    def __len__(self) -> int:
        return len(self._ours)

    def __getitem__(self, piece: str) -> int:
        return self._ours[piece]


def _shim_tokenizers() -> None:
    import tokenizers
    from tokenizers.implementations import base_tokenizer

    original = tokenizers.Tokenizer
    makers = ("from_str", "from_file", "from_buffer", "from_pretrained")

    class Shim:
        """HF's tokenizer to be made and given a model; ours for everything else. JSON goes between them."""

        def __init__(self, model: Any) -> None:
            self.__dict__.update(_theirs=original(model), _ours=None)

        @classmethod
        def _of(cls, theirs: Any) -> "Shim":
            made = cls.__new__(cls)
            made.__dict__.update(_theirs=theirs, _ours=None)
            return made

        def _our(self) -> Any:
            if self._ours is None and not self._theirs.get_vocab_size(with_added_tokens=False):
                return self._theirs  # which is not trained yet
            if self._ours is None:
                self.__dict__["_ours"] = Tokenizer.from_str(self._theirs.to_str()).as_tokenizers()
            return self._ours

        def _trained(self, name: str, texts: Any, trainer: Any = None, **options: Any) -> None:
            theirs, ours = self._their(), Tokenizer(model=None).as_tokenizers()
            for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
                setattr(ours, part, getattr(theirs, part))
            ours.add_tokens(theirs.get_added_tokens_decoder().values())
            ours.model = theirs.model
            getattr(ours, name)(texts, trainer, **options)
            self.__dict__["_ours"] = ours

        def _their(self) -> Any:
            if self._ours is not None:
                self.__dict__.update(_theirs=original.from_str(self._ours.to_str()), _ours=None)
            return self._theirs

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            if name in ("train", "train_from_iterator"):
                return functools.partial(self._trained, name)
            is_theirs = name == "model" or name.startswith("async_")
            owner = self._their() if is_theirs else self._our()
            tokenizers.Tokenizer = original  # of which components are read
            try:
                return getattr(owner, name)
            finally:
                tokenizers.Tokenizer = Shim

        def __setattr__(self, name: str, value: Any) -> None:
            setattr(self._their() if name == "model" or self._ours is None else self._our(), name, value)

        def __getstate__(self) -> bytes:
            return self._our().to_str().encode()

        def __setstate__(self, state: bytes) -> None:
            self.__dict__.update(_theirs=original.from_str(state.decode()), _ours=None)

    class Stream(DecodeStream):
        """Ours, for the tokenizer in a `Shim`."""

        def step(self, tokenizer: Any, id: Any) -> str | None:
            return super().step(tokenizer._our(), id)

    tokenizers.decoders.DecodeStream = Stream
    for name in makers:
        make = getattr(original, name)
        setattr(Shim, name, classmethod(lambda cls, *args, make=make, **options: cls._of(make(*args, **options))))
    Shim.__name__, Shim.__qualname__, Shim.__module__ = "Tokenizer", "Tokenizer", "tokenizers"
    tokenizers.Tokenizer = base_tokenizer.Tokenizer = Shim
    for implementation in vars(tokenizers.implementations).values():
        if hasattr(implementation, "Tokenizer"):
            implementation.Tokenizer = Shim


CLASSES = tuple(f"{name}Tokenizer" for name in "Albert Bert CLIP GPT2 Llama Nllb Qwen2 Roberta T5 XLMRoberta".split())


def classes_of_transformers(mixin: type) -> dict[str, type]:
    """Returns transformers' common tests for `CLASSES`, whose folders `foreign_suites` writes, by name."""
    import unittest

    import transformers

    def test_case(name: str) -> type:
        kind = getattr(transformers, name)

        def get_tokenizer(cls: Any, pretrained_name: str | None = None, **options: Any) -> Any:
            found = kind.from_pretrained(pretrained_name or cls.tmpdirname, **options)
            return Tokenizer.from_str(found.backend_tokenizer.to_str()).as_hf(found) if _who == "ours" else found

        fields = {
            "tokenizer_class": kind, "from_pretrained_id": os.path.abspath(f"classes/{name}"),
            "test_tokenizer_from_extractor": False, "get_tokenizer": classmethod(get_tokenizer),
            "get_rust_tokenizer": classmethod(get_tokenizer),
        }  # fmt: skip
        return type(f"Test{name}", (mixin, unittest.TestCase), fields)

    return {f"Test{name}": test_case(name) for name in CLASSES}


def _shim_downloads() -> None:
    import huggingface_hub

    original = huggingface_hub.hf_hub_download

    def download(*args: Any, **options: Any) -> str:
        path = _VOCAB / _FILES.get(options.get("filename", ""), "")
        return str(path) if path.is_file() else original(*args, **options)

    huggingface_hub.hf_hub_download = download


_library, _who = os.environ.get("TOKENMILL_FOREIGN", "none theirs").split()
if _library == "tiktoken":
    _shim_tiktoken(_who == "ours")
elif _library == "tokenizers":
    _shim_downloads()
    if _who == "ours":
        _shim_tokenizers()
elif _library == "sentencepiece" and _who == "ours":
    _shim_sentencepiece()
