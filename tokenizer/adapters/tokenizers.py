# SPDX-License-Identifier: Apache-2.0
"""`Tokenizer.as_tokenizers()`: the interface of the `Tokenizer` of HF tokenizers, on the kernels.

Source: HF tokenizers 0.23, `bindings/python`, same names and meaning, except for what the docs list. The components
that it shows are HF's own, made when they are asked for.
"""

import dataclasses
import json
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tokenmill.tokenizer import trainers
from tokenmill.tokenizer.added_tokens import AddedToken
from tokenmill.tokenizer.models import WordLevel

_SAME = frozenset(
    "enable_truncation encode encode_batch encode_batch_fast get_vocab get_vocab_size id_to_token no_padding "
    "no_truncation num_special_tokens_to_add post_process save to_str token_to_id".split()
)
"""Methods of `Tokenizer` that are as those of HF's."""
_COMPONENTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
_TRAINERS: dict[str, tuple[str, Any]] = {
    "BPE": ("BpeTrainer", trainers.BPETrainer),
    "WordPiece": ("WordPieceTrainer", trainers.WordPieceTrainer),
    "WordLevel": ("WordLevelTrainer", trainers.WordLevelTrainer),
    "Unigram": ("UnigramTrainer", trainers.UnigramTrainer),
}
"""HF's model -> HF's trainer, and ours that does the same."""
_NO_UNK = "\0"
"""The unknown piece while Unigram is trained that has none: no other piece has this character."""
_LEARNED = ("vocab", "merges", "continuing_subword_prefix", "end_of_word_suffix")
"""What a trainer of HF sets in a model, as `tokenizer.json` calls it; other options stay."""


def _component(name: str) -> Any:
    def read(self: Any) -> Any:
        return self._read(name)

    def write(self: Any, component: Any) -> None:
        self._write(name, component)

    return property(read, write, doc=f"HF's {name}, a copy: to change it, change the copy and set that.")


class HFTokenizer:
    """A tokenizer as that of HF tokenizers: special tokens in a text become their ids."""

    def __init__(self, tokenizer: Any) -> None:
        """Takes a `Tokenizer`, of which it has a copy."""
        self._tokenizer = tokenizer.replace(special="split")
        self._tokenizer._names_matched = True
        self._components: dict[str, Any] = {}
        self._options: dict[str, Any] = {}  # of a model that is to be trained

    def __getattr__(self, name: str) -> Any:
        if name not in _SAME:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._tokenizer, name)

    def __deepcopy__(self, _: dict[int, Any]) -> "HFTokenizer":
        return _made_again(self._tokenizer, self._options)

    def __reduce__(self) -> tuple[Any, ...]:
        return _made_again, (self._tokenizer, self._options)

    def __repr__(self) -> str:
        return f"HFTokenizer({self._tokenizer!r})"

    # Ids to texts.

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """Decodes ids; those that belong to no token are left out, as in HF.

        Raises:
          OverflowError: for an id outside 0..2^32-1, such as the -100 of a label that counts for nothing.
        """
        ids = list(ids)
        try:
            text: str = self._tokenizer.decode(ids, skip_special_tokens)
        except ValueError:  # rare, so that others need not be looked up
            if outside := [i for i in ids if not 0 <= i < 1 << 32]:
                raise OverflowError(f"ids must be in 0..2^32-1, got {outside[0]}; leave it out first") from None
            text = self._tokenizer.decode([i for i in ids if self.id_to_token(i) is not None], skip_special_tokens)
        return text

    def decode_batch(self, sequences: Iterable[Sequence[int]], skip_special_tokens: bool = True) -> list[str]:
        """Decodes several lists of ids, each as `decode` does."""
        return [self.decode(ids, skip_special_tokens) for ids in sequences]

    # Added tokens.

    @property
    def encode_special_tokens(self) -> bool:
        """Whether special tokens in a text are text."""
        return self._tokenizer.special == "plain"

    @encode_special_tokens.setter
    def encode_special_tokens(self, value: bool) -> None:
        if value != self.encode_special_tokens:
            self._tokenizer.special = "plain" if value else "split"

    def add_tokens(self, tokens: Iterable[Any]) -> int:
        """Adds tokens, str or HF's `AddedToken`; returns how many are new or changed."""
        return self._tokenizer.add_tokens(self._with_ids(tokens, are_special=False))

    def add_special_tokens(self, tokens: Iterable[Any]) -> int:
        """Adds special tokens, or makes tokens special that are there already; otherwise as `add_tokens`."""
        return self._tokenizer.add_special_tokens(self._with_ids(tokens, are_special=True))

    def _with_ids(self, tokens: Iterable[Any], *, are_special: bool) -> list[Any]:
        found, ids = [], {}
        n = self._tokenizer.n_ids
        for token in tokens:
            content = token if isinstance(token, str) else token.content
            if not content:
                continue
            if content not in ids and (known := self.token_to_id(content)) is not None:
                ids[content] = known
            elif content not in ids:
                ids[content], n = n, n + 1
            if are_special and not isinstance(token, str):
                token.special = True  # as HF does; its `normalized`, if it was not given, depends on that
            flags = {} if isinstance(token, str) else {flag: getattr(token, flag) for flag in _FLAGS}
            found.append(AddedToken(ids[content], content, **flags) if flags else content)
        return found

    def get_added_tokens_decoder(self) -> dict[int, Any]:
        """Returns id -> HF's `AddedToken`, ordered by id."""
        import tokenizers

        added = self._tokenizer.get_added_tokens_decoder().items()
        return {i: tokenizers.AddedToken(t.content, **{flag: getattr(t, flag) for flag in _FLAGS}) for i, t in added}

    # Rows of fixed length.

    @property
    def truncation(self) -> dict[str, Any] | None:
        """What `enable_truncation` was told, None without."""
        return self._fields("truncation")

    @property
    def padding(self) -> dict[str, Any] | None:
        """What `enable_padding` was told, None without."""
        return self._fields("padding")

    def _fields(self, name: str) -> dict[str, Any] | None:
        found = getattr(self._tokenizer, name)
        return None if found is None else dict(vars(found))

    def enable_padding(self, direction: str = "right", pad_id: int = 0, **options: Any) -> None:
        """Fills rows up; as in HF, `pad_id` is not looked for."""
        self._tokenizer.enable_padding(direction, pad_id, **options)

    # Components.

    normalizer = _component("normalizer")
    pre_tokenizer = _component("pre_tokenizer")
    post_processor = _component("post_processor")
    decoder = _component("decoder")

    @property
    def model(self) -> Any:
        """The model, TokenMill's; set HF's. One without a vocabulary says how the next one that is trained works."""
        return self._tokenizer.model

    @model.setter
    def model(self, model: Any) -> None:
        fields = json.loads(model.__getstate__())
        self._options = {} if fields["vocab"] else fields
        if self._options:
            return
        blank = self._tokenizer.replace(model=WordLevel({"": 0}, ""), added_tokens=())
        self._tokenizer.model = self._made_of(blank, fields)

    def _made_of(self, tokenizer: Any, fields: dict[str, Any]) -> Any:
        """Returns the model that these fields of a `tokenizer.json` are, among the parts of a tokenizer."""
        return type(tokenizer).from_str(json.dumps(json.loads(tokenizer.to_str()) | {"model": fields})).model

    # Training.

    def train_from_iterator(self, iterator: Iterable[Any], trainer: Any = None, length: int | None = None) -> None:
        """Trains the model on texts, by TokenMill's trainers; all other parts stay.

        Args:
          iterator: texts, or lists of texts.
          trainer: one of `tokenizers.trainers`; None for the default one of the model.
          length: has no effect.

        Raises:
          ValueError: if an option of the trainer has no counterpart, it is for another model, or as our trainers.
        """
        self._train(self._tokenizer.train_from_iterator, iterator, trainer)

    def train(self, files: Sequence[str], trainer: Any = None) -> None:
        """Trains the model on the lines of text files; otherwise as `train_from_iterator`."""
        self._train(self._tokenizer.train, files, trainer)

    def _train(self, train: Callable[..., Any], texts: Any, trainer: Any) -> None:
        import tokenizers

        tokenizer = self._tokenizer
        options = self._options
        if not options and tokenizer.model is not None:
            options = json.loads(tokenizer.to_str())["model"]
        if trainer is None:
            if not options:
                raise ValueError("there is no model yet whose default trainer could be taken; give a trainer")
            trainer = getattr(tokenizers.trainers, _TRAINERS[options["type"]][0])()
        kind, ours = _trainer_like(trainer, options)
        is_empty = {name: getattr(tokenizer, name) is None for name in ("post_processor", "decoder")}
        special = trainer.special_tokens
        known = {token.content for token in (*tokenizer.added_tokens, *special)}
        train(texts, ours)
        for name, was_empty in is_empty.items():
            if was_empty:
                setattr(tokenizer, name, None)  # else there is now one that fits the model, which HF does not add
        tokenizer.added_tokens = [token for token in tokenizer.added_tokens if token.content in known]
        tokenizer._names_matched = True
        fields = json.loads(tokenizer.to_str())["model"]
        kept = {name: value for name, value in options.items() if name not in _LEARNED}
        if kind != "Unigram" and fields | kept != fields:
            tokenizer.model = self._made_of(tokenizer, fields | kept)
        elif kind == "Unigram" and fields["vocab"][fields["unk_id"]][0] == _NO_UNK:
            del fields["vocab"][fields["unk_id"]]
            tokenizer.model = self._made_of(tokenizer, fields | {"unk_id": None})
        self._options = {}
        self.add_special_tokens(special)  # which has their flags

    def _read(self, name: str) -> Any:
        """Returns HF's component like the one of that name, None if there is none."""
        import tokenizers

        if getattr(self._tokenizer, name) is None:
            return None
        if name not in self._components:
            others = dict.fromkeys({*_COMPONENTS, "truncation", "padding"} - {name})
            alone = self._tokenizer.replace(model=WordLevel({"": 0}, ""), added_tokens=(), **others)
            try:
                self._components[name] = getattr(tokenizers.Tokenizer.from_str(alone.to_str()), name)
            except Exception as error:  # HF raises nothing more special
                found = getattr(self._tokenizer, name)
                raise ValueError(f"HF tokenizers has no {name} that does what this one does: {found!r:.200}") from error
        return self._components[name]

    def _write(self, name: str, component: Any) -> None:
        model = {"type": "WordLevel", "vocab": {"": 0}, "unk_token": ""}
        state = None if component is None else json.loads(component.__getstate__())
        made = type(self._tokenizer).from_str(json.dumps({"version": "1.0", "model": model, name: state}))
        setattr(self._tokenizer, name, getattr(made, name))
        self._components.pop(name, None)


class DecodeStream:
    """Decodes ids as they come, as HF's `tokenizers.decoders.DecodeStream`: a text is given once no id can change it.

    Source: HF tokenizers 0.23, `step_decode_stream` in `tokenizer/mod.rs`.

    Args:
      ids: what was there before, a prompt for example, which is not given again.
      skip_special_tokens: whether special tokens are left out.
    """

    def __init__(self, ids: Iterable[int] | None = None, skip_special_tokens: bool | None = False) -> None:
        """Begins a stream."""
        self._ids = list(ids or ())
        self._skip = bool(skip_special_tokens)
        self._said, self._n_said = "", 0
        # The text that the first `_n_said` ids gave stays, so that what follows is decoded as it is behind them.

    def step(self, tokenizer: Any, id: Any) -> str | None:
        """Adds an id, or several, and returns the text that is new, None if there is none that is whole.

        Raises:
          TypeError: if `id` is neither an integer nor a list of integers.
          ValueError: if the ids together are another text than those before them were.
        """
        if self._ids and not self._said and not (text := tokenizer.decode(self._ids, self._skip)).endswith("\ufffd"):
            self._said, self._n_said = text, len(self._ids)
        try:
            added = [operator.index(id)]
        except TypeError:
            added = list(map(operator.index, id))
        self._ids = [*self._ids, *added]  # a new list: a copy of this stream goes its own way
        text = tokenizer.decode(self._ids, self._skip)
        if len(text.encode()) <= len(self._said.encode()) or text.endswith("\ufffd"):
            return None
        if not text.startswith(self._said):
            raise ValueError(f"with id {self._ids[-1]} the text {self._said!r} becomes {text!r}: no text can be added")
        found: str = text[len(self._said) :]
        n_said = len(self._ids) - self._n_said
        self._ids = self._ids[self._n_said :]
        self._said, self._n_said = tokenizer.decode(self._ids, self._skip), n_said
        return found


def _trainer_like(theirs: Any, options: Mapping[str, Any]) -> tuple[str, Any]:
    """Returns the kind of model that a trainer of HF is for, and our trainer that does the same.

    options: of the model, of which HF's trainers keep the unknown token; empty for those of HF's default.
    """
    name = type(theirs).__name__
    kinds = {trainer: (kind, ours) for kind, (trainer, ours) in _TRAINERS.items()}
    if name not in kinds:
        raise TypeError(f"trainer must be one of {', '.join(kinds)} of HF tokenizers, got {theirs!r:.200}")
    kind, ours = kinds[name]
    if options and options["type"] != kind:
        raise ValueError(f"{name} can only train a {kind}, and the model is a {options['type']}")
    fields = json.loads(theirs.__getstate__())[name]
    fields = fields.get("bpe_trainer", fields)
    special = list(dict.fromkeys(token["content"] for token in fields.pop("special_tokens")))
    for without_effect in ("words", "show_progress", "progress_format"):
        fields.pop(without_effect, None)
    if kind == "Unigram":
        unk = fields.pop("unk_token")
        fields |= {
            "vocab_size": fields["vocab_size"] + (unk is None),
            "required_chars": "".join(sorted(fields.pop("initial_alphabet"))),
            "num_sub_iterations": fields.pop("n_sub_iterations"), "seed_sentencepiece_size": fields.pop("seed_size"),
            "unk_piece": _NO_UNK if unk is None else unk, "bos_id": -1, "eos_id": -1,
            "unk_id": special.index(unk) if unk in special else 0 if unk else len(special),
            "control_symbols": [token for token in special if token != unk], "hard_vocab_limit": False,
            "character_coverage": 1.0, "split_by_unicode_script": False, "split_by_number": False,
            "split_by_whitespace": False, "allow_whitespace_only_pieces": True,
        }  # fmt: skip
    else:
        fields["special_tokens"] = special
        if options:
            fields["unk_token"] = options["unk_token"]
    known = {field.name for field in dataclasses.fields(ours)}
    if refused := sorted(key for key, value in fields.items() if key not in known and value is not None):
        raise ValueError(
            f"{name} has {refused[0]}={fields[refused[0]]!r}, which {ours.__name__} cannot do: leave it out"
        )
    return kind, ours(**{key: value for key, value in fields.items() if key in known})


def with_added_tokens(tokenizer: Any, added: Mapping[int, Any]) -> Any:
    """Returns a `Tokenizer` with other added tokens, id -> HF's `AddedToken`.

    Raises:
      ValueError: if one has another id in the vocabulary, or the id of another token.
    """
    tokens = [AddedToken(i, t.content, **{flag: getattr(t, flag) for flag in _FLAGS}) for i, t in added.items()]
    return tokenizer.replace(added_tokens=tokens)


def _made_again(tokenizer: Any, options: dict[str, Any]) -> HFTokenizer:
    found = HFTokenizer(tokenizer)
    found._options = options
    found.encode_special_tokens = tokenizer.special == "plain"
    return found
