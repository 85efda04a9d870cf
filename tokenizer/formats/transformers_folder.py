# SPDX-License-Identifier: Apache-2.0
"""A folder as `transformers` saves it: `tokenizer.json`, or a slow tokenizer's files as its class reads them."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tokenmill.tokenizer import decoders, normalizers, pre_tokenizers
from tokenmill.tokenizer.added_tokens import AddedToken
from tokenmill.tokenizer.errors import TokenizerFileError
from tokenmill.tokenizer.formats import bpe_files, files, sentencepiece, tiktoken_ranks, tokenizer_json, vocab_txt
from tokenmill.tokenizer.formats.sentencepiece import SentencePieceFile, tokenizer_parts
from tokenmill.tokenizer.formats.transformers_classes import (
    CLASSES,
    FILES,
    NO_LAYOUT,
    Family,
    Kind,
    Settings,
    family_of,
    known_classes,
    read_settings,
)
from tokenmill.tokenizer.models import WordLevel, WordPiece
from tokenmill.tokenizer.models.unigram import PieceType
from tokenmill.tokenizer.models.vocabulary import Tokens
from tokenmill.tokenizer.parts import Parts
from tokenmill.tokenizer.post_processors import RobertaProcessing, template_of

Roles = Mapping[str, AddedToken]
"""Special tokens by role."""

_MAX_EXTRA_IDS = 1 << 16
"""The most `<extra_id_0>`, ... tokens; T5 has a hundred, and no file should be able to ask for any number."""


def load_json(folder: Path) -> Parts:
    """Reads the `tokenizer.json` of a folder, and the tokens in the other JSON files there.

    Raises:
      TokenizerFileError: as `tokenizer_json.read`, or if one of the other files is broken.
    """
    settings = read_settings(folder)
    path = folder / "tokenizer.json"
    parts = _with_added(tokenizer_json.read(files.read_bytes(path), str(path)), settings, settings.roles)
    return dataclasses.replace(parts, assumptions=(*parts.assumptions, *_other_vocabulary(folder, parts)))


def _other_vocabulary(folder: Path, parts: Parts) -> Iterator[str]:
    """Yields a line that says where a vocabulary beside a `tokenizer.json` is another one; one of them may be stale."""
    own = parts.get_vocab()
    for path, read in ((folder / "vocab.txt", vocab_txt.read), (folder / "vocab.json", bpe_files.read_vocab_json)):
        if not path.is_file():
            continue
        with contextlib.suppress(ValueError):  # a file that nothing reads
            other = read(files.read_text(path), str(path))
            others = [token for token, token_id in other.items() if own.get(token) != token_id]
            n = sum(own.get(token.strip()) != other[token] for token in others)  # HF cuts white space off
            if n:
                yield (
                    f"{folder}: tokenizer.json is read, which has {len(own):,} tokens; {path.name} beside it has "
                    f"{len(other):,}, {n:,} of them not there or with another id; remove the file that is stale"
                )


def load_slow(folder: Path, as_class: str | None) -> Parts:
    """Reads a slow tokenizer's files in a folder as its class reads them; as_class: None for that which it names.

    A folder that names no class is loaded if all classes give the same ids for its files.

    Raises:
      TokenizerFileError: if the class is not known, it reads other files, or a file is broken.
    """
    settings = read_settings(folder, as_class)
    if not settings.class_name:
        return _unnamed(folder, settings)
    family = _family(folder, settings)
    names = FILES[family.kind]
    found = [folder / name for name in names if (folder / name).is_file()]
    needs_all = family.kind in ("bpe", "marian")
    if not found or (needs_all and len(found) < len(names)):
        wanted = (" and " if needs_all else " or ").join(names)
        raise TokenizerFileError(
            f"{folder}: {settings.class_name} is read from {wanted}, or a tokenizer.json; put it there"
        )
    return _load(found[0], found[-1], family, settings)


def ranks_in(folder: Path) -> Path | None:
    """Returns the file of tiktoken's ranks in a folder, as of Llama 3, Kimi, GLM, the first Qwen; None if none.

    A folder that has the files of another kind, too, is read from those.
    """
    if any((folder / name).is_file() for name in ("vocab.txt", "vocab.json")):
        return None
    for path in (*(folder / name for name in FILES["ranks"]), *sorted(folder.glob("*.tiktoken"))):
        if path.is_file() and not sentencepiece.looks_like_model(files.read_bytes(path)):
            return path
    return None


def load_ranks(folder: Path, path: Path, pattern: str | None, as_class: str | None) -> Parts:
    """Reads tiktoken's ranks in a folder, and the special tokens of its class and of its JSON files.

    pattern: as for `tiktoken_ranks.read`; None for that of the class, whose program is not run. as_class: as
    `load_slow`.

    Raises:
      TokenizerFileError: if there is no pattern and the class is not known, or a file is broken.
    """
    settings = read_settings(folder, as_class)
    family = family_of(settings.class_name)
    if family is None or family.kind != "ranks":
        if as_class is not None:
            raise TokenizerFileError(f"{path}: {as_class} does not read ranks; known are {known_classes('ranks')}")
        family = Family("ranks", {})
    parts = tiktoken_ranks.read(files.read_text(path), str(path), pattern or family.steps or None)
    if family.steps == "qwen":
        parts = dataclasses.replace(parts, normalizer=normalizers.NFC())
    n, taken = len(parts.model.vocab), {token.id for token in settings.added}
    own = [AddedToken(n + i, content.format(id=n + i)) for i, content in enumerate(family.last) if n + i not in taken]
    with files.named_in_errors(path):
        parts = _with_added(dataclasses.replace(parts, added_tokens=own), settings, settings.roles)
        return _laid_out(parts, family, settings, settings.roles, str(path))


def load_file(path: Path, as_class: str, merges: Path | None = None) -> Parts:
    """Reads a single file of a slow tokenizer, or one with its merges; otherwise like `load_slow`."""
    settings = Settings.of_class(as_class, str(path))
    family = _family(path, settings)
    kind: Kind = "bpe" if merges else "wordpiece"
    if sentencepiece.looks_like_model(files.read_bytes(path)):
        kind = "sentencepiece"
    if family.kind != kind:
        raise TokenizerFileError(
            f"{path}: {as_class} is not read from such a file, but from {' or '.join(FILES[family.kind])}; as_class= "
            f"may be one of {known_classes(kind)}"
        )
    return _load(path, merges or path, family, settings)


def _family(path: Path, settings: Settings) -> Family:
    family = family_of(settings.class_name)
    if family is None:
        kinds = [kind for kind, names in FILES.items() if any((path / name).is_file() for name in names)]
        known = ", ".join(known_classes(kind) for kind in kinds or FILES)
        raise TokenizerFileError(
            f"{path}: how the class {settings.class_name!r} makes tokens is not known here; let transformers write a "
            "tokenizer.json if it can, AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER); or, where the "
            f"class does just what one of these does, pass as_class= (tokenizer.as_class in a config): {known}"
        )
    for name, value in family.fixed.items():
        if (node := settings.config.child(name, value)).value != value:
            raise node.fail(f"only {value!r} is supported for {settings.class_name}, got {node.value!r}")
    return family


def _load(path: Path, other: Path, family: Family, settings: Settings) -> Parts:
    """Reads the first and the last file of a class; they are the same if there is only one."""
    roles = _roles(settings, family)
    with files.named_in_errors(path if other == path else f"{path} with {other.name}"):
        parts = _READERS.get(family.kind, _sentencepiece)(path, other, family, settings, roles)
        parts = _laid_out(_with_added(parts, settings, roles), family, settings, roles, str(path))
        if not family.trims_offsets:
            return parts
        # RobertaProcessing has the same layout.
        vocab = parts.get_vocab()
        sep, cls = ((token, vocab[token]) for token in (roles["sep"].content, roles["cls"].content))
        layout = RobertaProcessing(sep, cls, True, settings.flag("add_prefix_space", False))
        return dataclasses.replace(parts, post_processor=layout)


def _unnamed(folder: Path, settings: Settings) -> Parts:
    """Reads the files of a folder that names no class."""
    if (path := folder / "vocab.txt").is_file():
        bert = CLASSES["Bert"]
        if not {"[CLS]", "[SEP]"} <= vocab_txt.read(files.read_text(path), str(path)).keys():
            bert = dataclasses.replace(bert, layout=NO_LAYOUT)
        return _load(path, path, bert, settings)
    for names in (FILES["bpe"], ("encoder.json", "vocab.bpe")):
        path, merges = (folder / name for name in names)
        if not (path.is_file() and merges.is_file()):
            continue
        model = bpe_files.load_vocab_and_merges(path, merges).model  # raises an error unless it is GPT-2's or CLIP's
        return _load(path, merges, CLASSES["CLIP" if model.suffix else "GPT2"], settings)
    models = [path for name in FILES["sentencepiece"] if (path := folder / name).is_file()]
    if not models:
        found = ", ".join(sorted(path.name for path in folder.iterdir())[:9]) or "nothing"
        raise TokenizerFileError(
            f"{folder}: holds none of tokenizer.json, vocab.txt, vocab.json with merges.txt, or a sentencepiece model "
            f"({', '.join(FILES['sentencepiece'])}), but {found}; name the file, if it is called otherwise"
        )
    path = models[0]
    if path.name != "tokenizer.model":
        raise TokenizerFileError(
            f"{folder}: does not say which class reads {path.name}, and classes make different ids of it; pass "
            f"as_class= (tokenizer.as_class in a config), one of {known_classes('sentencepiece')}; or name the file "
            "itself, for the ids that sentencepiece makes"
        )
    model = sentencepiece.read(files.read_bytes(path), str(path))
    return _with_added(tokenizer_parts(model, str(path)), settings, settings.roles)


def _with_added(parts: Parts, settings: Settings, roles: Roles) -> Parts:
    """Adds the tokens of the folder's JSON files that the parts lack, and marks special ones as special."""
    found = {token.content: token for token in parts.added_tokens}
    for token in settings.added:
        found.setdefault(token.content, token)
    for token in roles.values():
        known = parts.token_to_id(token.content)
        if known is not None and token.content not in found:
            found[token.content] = dataclasses.replace(token, id=known, normalized=False)
    names = settings.special | {token.content for token in roles.values()}
    for content in names & found.keys():
        found[content] = dataclasses.replace(found[content], special=True)
    tokens = sorted(found.values(), key=lambda token: token.id)
    unchanged = tokens == sorted(parts.added_tokens, key=lambda t: t.id)
    return parts if unchanged else dataclasses.replace(parts, added_tokens=tokens)


def _roles(settings: Settings, family: Family) -> Roles:
    roles = {role: AddedToken(0, content) for role, content in family.roles.items()} | settings.roles
    if family.strips_mask and "mask" not in settings.roles:
        roles["mask"] = dataclasses.replace(roles["mask"], lstrip=True)
    return roles


def _laid_out(parts: Parts, family: Family, settings: Settings, roles: Roles, source: str) -> Parts:
    layout = family.layout or _ends(settings, family)
    if layout == NO_LAYOUT:
        return parts
    contents = {role: token.content for role, token in roles.items()}
    if family.language:
        language = settings.config.child("src_lang", None)
        contents["lang"] = family.language if language.value is None else language.text()

    def find(role: str) -> tuple[int, str]:
        name = contents.get(role, role)
        token_id = parts.token_to_id(name)
        if token_id is None:
            raise TokenizerFileError(f"{source}: the vocabulary has no {role} token {name!r}")
        return token_id, name

    return dataclasses.replace(parts, post_processor=template_of(layout, find))


def _ends(settings: Settings, family: Family) -> tuple[str, str]:
    """Returns the layout strings, with the first and last token that `add_bos_token` and `add_eos_token` ask for."""
    begins, ends = settings.flag("add_bos_token", family.begins), settings.flag("add_eos_token", False)
    first, last = "bos " if begins else "", " eos" if ends else ""
    return f"{first}A{last}", f"{first}A{last} {first.replace(' ', ':1 ')}B:1{last and ' eos:1'}"


def _wordpiece(path: Path, _: Path, family: Family, settings: Settings, roles: Roles) -> Parts:
    vocab = vocab_txt.read(files.read_text(path), str(path))
    repeated = vocab_txt.say_repeated(vocab, str(path))
    if family.steps == "esm":
        return dataclasses.replace(_of_residues(vocab, roles), assumptions=repeated)
    is_lower, assumptions = vocab_txt.assume_case(vocab, str(path))
    if settings.config.child("do_lower_case", None).value is not None:
        is_lower, assumptions = settings.flag("do_lower_case", True), ()
    elif settings.class_name and assumptions:
        entries = assumptions[0].partition(", so ")[0]
        lowers = f"{settings.class_name} lower-cases text unless do_lower_case is false in tokenizer_config.json"
        is_lower, assumptions = True, (f"{entries}, but {lowers}",)
    strip = settings.config.child("strip_accents", None)
    return Parts(
        model=WordPiece(vocab, unk_token=roles["unk"].content),
        normalizer=normalizers.BertNormalizer(
            lowercase=is_lower,
            strip_accents=None if strip.value is None else strip.flag(),
            handle_chinese_chars=settings.flag("tokenize_chinese_chars", True),
        ),
        pre_tokenizer=pre_tokenizers.BertPreTokenizer(),
        decoder=decoders.WordPiece(),
        assumptions=(*assumptions, *repeated),
    )


def _of_residues(vocab: dict[str, int], roles: Roles) -> Parts:
    """Returns ESM's tokenizer: every token is cut out of the text, whatever is around it."""
    special = {token.content for token in roles.values()}
    return Parts(
        model=WordLevel(vocab, roles["unk"].content),
        # As Python's `str.split`, to which four more control characters are white space.
        pre_tokenizer=pre_tokenizers.Split(r"[\s\x1c-\x1f]+", "removed", is_regex=True),
        added_tokens=[AddedToken(i, t, normalized=False, special=t in special) for t, i in vocab.items() if t],
    )


def _bpe(path: Path, merges: Path, family: Family, settings: Settings, roles: Roles) -> Parts:
    found = bpe_files.read_files(path, merges)
    return bpe_files.parts_of(family.steps, *found, roles["unk"].content, settings.flag("add_prefix_space", False))


def _sentencepiece(path: Path, _: Path, family: Family, settings: Settings, roles: Roles) -> Parts:
    model = sentencepiece.read(files.read_bytes(path), str(path))
    pieces = model.pieces.numbered or set(model.pieces)
    last = family.last
    if family.has_extra_ids:
        n_extra = (node := settings.config.child("extra_ids", 100)).integer()
        if not 0 <= n_extra <= _MAX_EXTRA_IDS:
            raise node.fail(f"must be in 0..{_MAX_EXTRA_IDS}, got {n_extra!r}")
        last = tuple(f"<extra_id_{i}>" for i in reversed(range(n_extra)))
    last = tuple(piece for piece in last if piece not in pieces)
    if family.first or last:
        model = _rearranged(model, family, last)
    parts = tokenizer_parts(model, str(path))
    if family.steps == "cleaned":
        parts = dataclasses.replace(parts, normalizer=_cleaning(settings, family, parts.normalizer))
    return parts


def _marian(path: Path, vocab_path: Path, family: Family, settings: Settings, roles: Roles) -> Parts:
    """Returns the tokenizer of Marian's source language: the pieces of `source.spm` with the ids of `vocab.json`."""
    model = sentencepiece.read(files.read_bytes(path), str(path))
    vocab = bpe_files.read_vocab_json(files.read_text(vocab_path), str(vocab_path))
    tokens = sorted(vocab, key=vocab.__getitem__)
    if [vocab[token] for token in tokens] != list(range(len(tokens))):
        raise TokenizerFileError(f"{vocab_path}: ids must be 0..{len(tokens) - 1}, each of one token")
    places = {piece: i for i, piece in enumerate(model.pieces)}
    if lost := [piece for _, piece in model.of_type(PieceType.NORMAL, PieceType.USER_DEFINED) if piece not in vocab]:
        raise TokenizerFileError(
            f"{path}: {len(lost)} pieces, {lost[0]!r} for example, have no id in {vocab_path.name}, so parts of a text "
            "would be known and yet become the unknown token; this is not supported: use MarianTokenizer"
        )
    unused = int(PieceType.UNUSED)  # the pieces of the target language, which no source text becomes
    types = [int(model.types[places[token]]) if token in places else unused for token in tokens]
    scores = [float(model.scores[places[token]]) if token in places else 0.0 for token in tokens]
    if int(PieceType.UNKNOWN) not in types:
        raise TokenizerFileError(f"{vocab_path}: has no id for the unknown piece of {path.name}")
    trainer = dataclasses.replace(model.trainer, unk_id=types.index(int(PieceType.UNKNOWN)))
    ordered = SentencePieceFile.of(tokens, scores, types, trainer=trainer, normalizer=model.normalizer)
    parts = tokenizer_parts(ordered, str(path))
    codes = [AddedToken(i, token) for token, i in vocab.items() if token.startswith(">>") and token.endswith("<<")]
    return dataclasses.replace(parts, added_tokens=(*parts.added_tokens, *codes))


def _rearranged(model: SentencePieceFile, family: Family, last: tuple[str, ...]) -> SentencePieceFile:
    """Returns a model with other pieces before and after its own, as in fairseq's vocabularies."""
    rest = slice(family.n_replaced, None)
    n, m = len(family.first), len(last)
    control = int(PieceType.CONTROL)
    first_types = [int(PieceType.UNKNOWN) if piece == "<unk>" else control for piece in family.first]
    kept = model.pieces.take(np.arange(len(model.pieces))[rest])
    return dataclasses.replace(
        model,
        pieces=Tokens.joined([Tokens.of(family.first), kept, Tokens.of(last)]),
        scores=np.concatenate([np.zeros(n), model.scores[rest], np.zeros(m)]),
        types=np.concatenate([np.array(first_types, np.int64), model.types[rest], np.full(m, control)]),
    )


def _cleaning(settings: Settings, family: Family, normalizer: Any) -> Any:
    steps: list[Any] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if not settings.flag("keep_accents", False):
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if settings.flag("do_lower_case", family.lowercases):
        steps.append(normalizers.Lowercase())
    return normalizers.Sequence((*steps, normalizer))


_READERS: dict[Kind, Callable[[Path, Path, Family, Settings, Roles], Parts]] = {
    "wordpiece": _wordpiece,
    "bpe": _bpe,
    "marian": _marian,
}
"""Kind of files -> what reads them, if they are no SentencePiece model."""
