# SPDX-License-Identifier: Apache-2.0
"""`Tokenizer.as_sentencepiece()`: the interface of sentencepiece's `SentencePieceProcessor`, on the kernels.

Source: sentencepiece 0.2.3, same names and meaning, except for what the docs list.
"""

import contextlib
import functools
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tokenmill.tokenizer.formats import sentencepiece
from tokenmill.tokenizer.models import Unigram
from tokenmill.tokenizer.models.unigram import SPACE, PieceType
from tokenmill.tokenizer.ragged import read_only
from tokenmill.tokenizer.sampling import Sampling

_TYPES = (int, str, bytes, "numpy")


def _special_id(name: str) -> Any:
    def special_id(self: "SentencePieceProcessor") -> int:
        """The id of a special piece, -1 if there is none."""
        found: int = getattr(self._trainer, f"{name}_id")
        return found

    return special_id


def _of_type(kind: PieceType) -> Any:
    def is_of_type(self: "SentencePieceProcessor", id: int | Sequence[int]) -> Any:
        """Whether an id, or each, is that of a piece of a type."""
        return self._of(id, lambda i: bool(self._types[i] == kind))

    return is_of_type


class SentencePieceProcessor:
    """A tokenizer as sentencepiece's: pieces by id, texts to ids or pieces, the best way, the n best, or at random."""

    def __init__(self, tokenizer: Any, *, seed: int = 0, **options: Any) -> None:
        """Takes a `Tokenizer` that `save` could write as a sentencepiece model.

        Args:
          tokenizer: the tokenizer.
          seed: of what is drawn at random; each text gets the next number.
          **options: what `encode` does unless it is told otherwise: its arguments.

        Raises:
          ValueError: if it does something that no sentencepiece model does. TypeError: for an unknown option.
        """
        unknown = options.keys() - _DEFAULTS.keys() - {"return_type"}
        if unknown:
            raise TypeError(f"unknown option {min(unknown)!r}; there are {', '.join(_DEFAULTS)}")
        model = sentencepiece.read(tokenizer.files("m.model")["m.model"], "as_sentencepiece")
        self._pieces, self._scores, self._types = model.pieces.listed, model.scores, model.types
        apart = {int(kind) for kind in (PieceType.BYTE, PieceType.UNKNOWN, PieceType.CONTROL)}
        self._kinds = [kind if kind in apart else 0 for kind in model.types.tolist()]
        self._trainer, self._normalizer = model.trainer, model.normalizer
        self._tokenizer = tokenizer.replace(special="plain", post_processor=None, truncation=None, padding=None)
        self._options, self._seed, self._n_drawn = _DEFAULTS | _renamed(options), seed, 0

    def __getattr__(self, name: str) -> Any:
        """Finds methods under their other names: `EncodeAsIds`, `PieceToId`."""
        snake = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower().replace("n_best", "nbest")
        if snake == name or snake.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self, snake)

    # Texts to ids or pieces.

    def encode(self, input: Any, **options: Any) -> Any:
        """Encodes a text, or each of a list.

        Args:
          input: str, bytes in UTF-8, or a list of those.
          **options: `out_type` (or `return_type`): int, str or bytes for pieces, or "numpy" for int32 that cannot be
            changed; `add_bos`, `add_eos`;
            `reverse`; `emit_unk_piece`, whether the unknown piece stands for what is unknown, else its text does;
            `enable_sampling` with `alpha` and `nbest_size`, Unigram only; `num_threads` has no effect.

        Raises:
          TypeError: if it is no text. ValueError: for an `out_type` that it does not have, or bos or eos if there is
          none.
        """
        texts, chosen = self._texts(input), self._chosen(options)
        sampling = None
        if chosen["enable_sampling"]:
            if not isinstance(self._tokenizer.model, Unigram):
                raise ValueError("sampling is for Unigram models: sentencepiece's dropout of merges is not here")
            if chosen["nbest_size"] in (0, 1):
                raise ValueError(f"nbest_size must be above 1, or -1 for all, to draw, got {chosen['nbest_size']!r}")
            sampling = Sampling(self._seed, chosen["alpha"], chosen["nbest_size"])
        first, self._n_drawn = self._n_drawn, self._n_drawn + len(texts)
        if sampling is None:
            rows = [each.ids for each in self._tokenizer.encode_batch(texts)]
        else:
            rows = self._tokenizer.encode_arrow(texts, sampling=sampling, first_row=first).to_pylist()
        found = [self._as_chosen(ids, text, chosen) for ids, text in zip(rows, texts, strict=True)]
        return found if isinstance(input, list) else found[0]

    def nbest_encode(self, input: Any, **options: Any) -> Any:
        """Returns the `nbest_size` best ways to encode a text, best first, or for each of a list; Unigram only.

        Raises:
          ValueError: as `encode`, or if the model is none of Unigram.
        """
        chosen = self._chosen(options)
        n = max(1, chosen["nbest_size"])
        found = [
            [self._as_chosen(ids, text, chosen) for ids in self._tokenizer.nbest_encode(text, n)]
            for text in self._texts(input)
        ]
        return found if isinstance(input, list) else found[0]

    encode_as_ids = functools.partialmethod(encode, out_type=int)
    encode_as_pieces = functools.partialmethod(encode, out_type=str)
    encode_as_numpy = functools.partialmethod(encode, out_type="numpy")

    def sample_encode_as_ids(self, input: Any, nbest_size: int = -1, alpha: float = 0.1, **options: Any) -> Any:
        """Draws a way to encode a text, as ids."""
        return self.encode_as_ids(input, nbest_size=nbest_size, alpha=alpha, enable_sampling=True, **options)

    def sample_encode_as_pieces(self, input: Any, nbest_size: int = -1, alpha: float = 0.1, **options: Any) -> Any:
        """Draws a way to encode a text, as pieces."""
        return self.encode_as_pieces(input, nbest_size=nbest_size, alpha=alpha, enable_sampling=True, **options)

    def nbest_encode_as_ids(self, input: Any, nbest_size: int = 1, **options: Any) -> Any:
        """Returns the best ways to encode a text, as ids."""
        return self.nbest_encode(input, nbest_size=nbest_size, out_type=int, **options)

    def nbest_encode_as_pieces(self, input: Any, nbest_size: int = 1, **options: Any) -> Any:
        """Returns the best ways to encode a text, as pieces."""
        return self.nbest_encode(input, nbest_size=nbest_size, out_type=str, **options)

    def parallel_encode(self, input: Any, chunk_len: int = 0, **options: Any) -> Any:
        """Does what `encode` does; `chunk_len` is taken and has no effect."""
        return self.encode(input, **options)

    tokenize = encode

    def _chosen(self, options: dict[str, Any]) -> dict[str, Any]:
        given = {name: value for name, value in _renamed(options).items() if value is not None}
        if unknown := given.keys() - _DEFAULTS.keys():
            raise TypeError(f"unknown option {min(unknown)!r}; there are {', '.join(_DEFAULTS)}")
        chosen = self._options | given
        if chosen["out_type"] not in _TYPES:
            raise ValueError(f"out_type must be int, str, bytes or 'numpy', got {chosen['out_type']!r}")
        return chosen

    def _texts(self, input: Any) -> list[str]:
        texts = input if isinstance(input, list) else [input]
        for text in texts:
            if not isinstance(text, str | bytes):
                raise TypeError(f"a text must be str or bytes, got {text!r:.80}")
        return [text if isinstance(text, str) else text.decode(errors="replace") for text in texts]

    def _as_chosen(self, ids: list[int], text: str, chosen: dict[str, Any]) -> Any:
        found: list[Any] = ids
        if chosen["out_type"] is bytes:
            return [piece.encode() for piece in self._as_chosen(ids, text, chosen | {"out_type": str})]
        if chosen["out_type"] is str:
            found = [self._pieces[i] for i in ids]
            if not chosen["emit_unk_piece"] and self.unk_id() in ids:
                found = self._with_unknown(ids, text)
        before, after = ([getattr(self, f"{end}_id")()] if chosen[f"add_{end}"] else [] for end in ("bos", "eos"))
        if -1 in before + after:
            raise ValueError(f"the model has no control piece for add_{'bos' if -1 in before else 'eos'}")
        if chosen["out_type"] is str:
            before, after = ([self._pieces[i] for i in each] for each in (before, after))
        found = [*before, *(reversed(found) if chosen["reverse"] else found), *after]
        return read_only(np.array(found, np.int32)) if chosen["out_type"] == "numpy" else found

    def _with_unknown(self, ids: list[int], text: str) -> list[str]:
        """Returns pieces, with the text of those that are unknown: what is between their neighbours."""
        normalized = self._tokenizer.normalizer.normalize_str(text)
        runs = [(is_unknown, list(run)) for is_unknown, run in itertools.groupby(ids, self.unk_id().__eq__)]
        found: list[str] = []
        at = begin = 0
        for k, (is_unknown, run) in enumerate(runs):
            if is_unknown:
                following = "".join(self._pieces[i] for i in runs[k + 1][1]) if k + 1 < len(runs) else ""
                is_last = k + 2 >= len(runs)
                begin = len(normalized) - len(following) if is_last else normalized.find(following, at + 1)
                found.append(normalized[at:begin])
            else:
                found += [self._pieces[i] for i in run]
                at = begin + len("".join(found[-len(run) :]))
        return found

    # Ids or pieces to texts.

    def decode(self, input: Any, **options: Any) -> Any:
        """Returns the text of ids, of pieces, or of lists of those.

        Raises:
          IndexError: if there is no such id. TypeError: for anything else. ValueError: for options other than
          `num_threads`, and `out_type` (or `return_type`) str or bytes.
        """
        given = _renamed(options)
        if given.keys() - {"out_type"} or {*given.values()} - {str, bytes, None}:
            raise ValueError(f"decode gives str or bytes, and has no other options, got {options!r}")
        if isinstance(input, np.ndarray) and (input.ndim > 2 or input.dtype.kind not in "iu"):
            raise TypeError(f"ids must be integers in one dimension or two, got {input.dtype} in {input.ndim}")
        found = [input] if isinstance(input, int | np.integer | str | bytes) else [] if input is None else list(input)
        types = set(map(type, found))
        if any(issubclass(each, bytes) for each in types):
            found = [each.decode() if isinstance(each, bytes) else each for each in found]
            types = set(map(type, found))
        if not all(issubclass(each, int | np.integer | str) for each in types):
            return [self.decode(each, **given) for each in found]
        if any(issubclass(each, str) for each in types):
            pairs = [(self.piece_to_id(p), p) if isinstance(p, str) else (int(p), "") for p in found]
            text = self._text([i for i, _ in pairs], [piece for _, piece in pairs])
        else:
            pieces = self.id_to_piece(found)
            text = self._text(list(map(int, found)), pieces)
        return text.encode() if given.get("out_type") is bytes else text

    decode_ids = decode_pieces = detokenize = decode

    def _text(self, ids: list[int], pieces: list[str]) -> str:
        """Joins pieces as sentencepiece does: in front, one "▁" is dropped, or all of them if it removes spaces."""
        drops = self._normalizer.add_dummy_prefix or self._normalizer.remove_extra_whitespaces
        text, is_start, stop = "", True, 0
        for kind, run in itertools.groupby(map(self._kinds.__getitem__, ids)):
            start, stop = stop, stop + len(list(run))
            plain = pieces[start:stop]
            if kind == PieceType.BYTE:
                text += _decoded(bytes(int(piece[3:5], 16) for piece in plain))
            elif kind == PieceType.UNKNOWN:
                surface = self._trainer.unk_surface
                known = map(self._pieces.__getitem__, ids[start:stop])
                text += "".join(surface if piece == unk else piece for piece, unk in zip(plain, known, strict=True))
            elif kind != PieceType.CONTROL:
                k = 0
                while is_start and not text and k < len(plain):
                    is_dropped = drops and plain[k].startswith(SPACE)
                    text += plain[k][is_dropped:].replace(SPACE, " ")
                    is_start = not is_dropped or self._normalizer.remove_extra_whitespaces
                    k += 1
                text += "".join(plain[k:]).replace(SPACE, " ")
        return text

    def normalize(self, input: Any) -> Any:
        """Returns a text as the model sees it, or each of a list."""
        found = list(map(self._tokenizer.normalizer.normalize_str, self._texts(input)))
        return found if isinstance(input, list) else found[0]

    # The vocabulary.

    def piece_to_id(self, piece: str | Sequence[str]) -> Any:
        """Returns the id of a piece, or of each; that of the unknown piece if there is none."""
        ids = self._tokenizer.token_to_id
        if isinstance(piece, str):
            found = ids(piece)
            return self.unk_id() if found is None else found
        return [self.piece_to_id(each) for each in piece]

    def id_to_piece(self, id: Any) -> Any:
        """Returns the piece of an id, or of each; IndexError if there is none, as of all that take an id."""
        return self._of(id, self._pieces.__getitem__)

    def get_score(self, id: int | Sequence[int]) -> Any:
        """Returns the score of an id, or of each."""
        return self._of(id, lambda i: float(np.float32(self._scores[i])))

    is_unknown = _of_type(PieceType.UNKNOWN)
    is_control = _of_type(PieceType.CONTROL)
    is_unused = _of_type(PieceType.UNUSED)
    is_byte = _of_type(PieceType.BYTE)

    def _of(self, id: int | Sequence[int], look: Callable[[int], Any]) -> Any:
        if isinstance(id, str | bytes):
            raise TypeError(f"an id must be an integer, got {id!r:.80}")
        if type(id) is list and set(map(type, id)) == {int} and min(id) >= 0 and max(id) < len(self._pieces):
            return list(map(look, id))
        if not isinstance(id, int | np.integer):
            return [self._of(each, look) for each in id]
        if not 0 <= id < len(self._pieces):
            raise IndexError(f"piece id {id} is out of range: there are {len(self._pieces)} pieces")
        return look(int(id))

    unk_id, bos_id, eos_id, pad_id = map(_special_id, ("unk", "bos", "eos", "pad"))

    def __len__(self) -> int:
        return len(self._pieces)

    def __getitem__(self, piece: str) -> int:
        return self.piece_to_id(piece)

    get_piece_size = piece_size = vocab_size = __len__


_DEFAULTS: dict[str, Any] = {
    "out_type": int, "add_bos": False, "add_eos": False, "reverse": False, "emit_unk_piece": False,
    "enable_sampling": False, "nbest_size": -1, "alpha": 0.1,
}  # fmt: skip


def _renamed(options: dict[str, Any]) -> dict[str, Any]:
    """Returns options under one name each, without those that have no effect."""
    options = {name: value for name, value in options.items() if name not in ("num_threads", "thread_pool")}
    given = options.pop("return_type", None)
    if given is not None and options.get("out_type") is not None:
        raise ValueError(f"out_type is the other name of return_type, got both: {options['out_type']!r}, {given!r}")
    return options if given is None else options | {"out_type": given}


def _decoded(data: bytes) -> str:
    """Decodes UTF-8; each byte that is part of no character becomes U+FFFD."""
    text = ""
    while data:
        for n in range(1, 5):
            with contextlib.suppress(UnicodeDecodeError):
                text += data[:n].decode()
                break
        else:
            text, n = text + "\ufffd", 1
        data = data[n:]
    return text
