# SPDX-License-Identifier: Apache-2.0
"""The slow tokenizers of `transformers` that TokenMill knows, a row for each class; and the settings in their folders.

A row says how a class reads its files. A class without one is an error that names it: most classes read the same files
in their own way. Each row is compared with `transformers` in `tests/parity/test_transformers_folders.py`.

Source: transformers 4 and 5, `tokenization_*.py` of each model and `convert_slow_tokenizer.py`.
"""

import dataclasses
import re
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from tokenmill.tokenizer.added_tokens import AddedToken
from tokenmill.tokenizer.errors import TokenizerFileError
from tokenmill.tokenizer.formats import files
from tokenmill.tokenizer.formats.json_node import Node, parse

Kind = Literal["wordpiece", "bpe", "sentencepiece", "ranks", "marian"]
FILES: dict[Kind, tuple[str, ...]] = {
    "wordpiece": ("vocab.txt",),
    "bpe": ("vocab.json", "merges.txt"),
    "sentencepiece": (
        "tokenizer.model", "spiece.model", "spm.model", "sentencepiece.bpe.model", "sentencepiece.model",
    ),
    "marian": ("source.spm", "vocab.json"),
    "ranks": ("tokenizer.model", "tiktoken.model", "qwen.tiktoken"),
}  # fmt: skip
"""The files of each kind: all of them are read, or, for SentencePiece models and ranks, the first one that exists."""


NO_LAYOUT = ("A", "A B:1")


@dataclasses.dataclass(frozen=True)
class Family:
    """What a class adds to a `vocab.txt`, a `vocab.json` with `merges.txt`, a SentencePiece model, or to ranks."""

    kind: Kind
    roles: Mapping[str, str]
    """Default special tokens by role."""
    layout: tuple[str, str] | None = NO_LAYOUT
    """Templates: roles, A and B in order, `:1` for type 1; None: what `add_bos_token` and `add_eos_token` say."""
    begins: bool = False
    """The default of `add_bos_token`."""
    steps: Literal["gpt2", "qwen2", "clip", "gpt1", "herbert", "cleaned", "esm", "kimi_k2", "llama3", "qwen", ""] = ""
    """How text becomes words, if the kind does not say; "cleaned": quotes and accents are removed, as in ALBERT. For
    ranks, the name of the pattern."""
    lowercases: bool = False
    """The default of `do_lower_case` for "cleaned" text."""
    strips_mask: bool = False
    """Whether the mask takes the white space before it."""
    trims_offsets: bool = False
    """Whether offsets exclude white space, as in RoBERTa."""
    first: tuple[str, ...] = ()
    """For fairseq's vocabularies: the pieces that replace the first `n_replaced` of the model."""
    n_replaced: int = 0
    last: tuple[str, ...] = ()
    """Pieces after those of the model; behind ranks, special tokens, with `{id}` in place of their ids."""
    has_extra_ids: bool = False
    """Whether the option `extra_ids` says how many tokens `<extra_id_0>`, `<extra_id_1>`, ... come after those."""
    language: str = ""
    """The default of `src_lang`, which the layout calls `lang`."""
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Options of the class that must have these values; for others the row is not right."""


_MBART_LANGUAGES = tuple(
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP nl_XX "
    "ro_RO ru_RU si_LK tr_TR vi_VN zh_CN".split()
)
_MBART50_LANGUAGES = _MBART_LANGUAGES + tuple(
    "af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE sw_KE ta_IN "
    "te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI".split()
)
_BERT = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
_ANGLES = {"bos": "<s>", "eos": "</s>", "unk": "<unk>", "pad": "<pad>"}
_ROBERTA = _ANGLES | {"sep": "</s>", "cls": "<s>", "mask": "<mask>"}
_ALBERT = _BERT | {"unk": "<unk>", "pad": "<pad>", "bos": "[CLS]", "eos": "[SEP]"}
_FUNNEL = _ANGLES | {"sep": "<sep>", "cls": "<cls>", "mask": "<mask>"}
_GPT2 = dict.fromkeys(("bos", "eos", "unk"), "<|endoftext|>")
_FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>")
_BERT_LAYOUT = ("cls A sep", "cls A sep B:1 sep:1")
_ROBERTA_LAYOUT = ("cls A sep", "cls A sep sep B sep")

_BERT_FAMILY = Family("wordpiece", _BERT, _BERT_LAYOUT)
_GPT2_FAMILY = Family("bpe", _GPT2, None, steps="gpt2")
_ROBERTA_FAMILY = Family("bpe", _ROBERTA, _ROBERTA_LAYOUT, steps="gpt2", trims_offsets=True)
_LLAMA_FAMILY = Family("sentencepiece", {"bos": "<s>", "eos": "</s>", "unk": "<unk>"}, None, begins=True)
_T5_FAMILY = Family("sentencepiece", _ANGLES, ("A eos", "A eos B eos"), has_extra_ids=True)

CLASSES: dict[str, Family] = {
    **dict.fromkeys(
        (
            "Bert", "ConvBert", "DistilBert", "DPRContextEncoder", "DPRQuestionEncoder", "Electra", "LayoutLM",
            "Lxmert", "MobileBert", "SqueezeBert",
        ),
        _BERT_FAMILY,
    ),
    "Esm": Family(
        "wordpiece", {"unk": "<unk>", "cls": "<cls>", "pad": "<pad>", "mask": "<mask>", "eos": "<eos>"},
        ("cls A eos", "cls A eos B:1 eos:1"), steps="esm",
    ),
    "Funnel": Family("wordpiece", _FUNNEL, ("cls:2 A sep", "cls:2 A sep B:1 sep:1")),
    "MPNet": Family("wordpiece", _ROBERTA | {"unk": "[UNK]"}, _ROBERTA_LAYOUT, strips_mask=True),
    "Splinter": Family(
        "wordpiece",
        _BERT | {"question": "[QUESTION]"},
        ("cls A sep", "cls A question . sep B:1 sep:1"),
        fixed={"padding_side": "right"},
    ),
    **dict.fromkeys(("CodeGen", "GPT2"), _GPT2_FAMILY),
    **dict.fromkeys(("Bart", "LED", "Longformer", "Mvp", "Roberta"), _ROBERTA_FAMILY),
    "CLIP": Family("bpe", _GPT2 | {"bos": "<|startoftext|>"}, ("bos A eos", "bos A eos eos B eos"), steps="clip"),
    "Deberta": Family(
        "bpe", _BERT | {"bos": "[CLS]", "eos": "[SEP]"}, ("cls A sep", "cls A sep sep B sep"), steps="gpt2",
    ),
    "Herbert": Family("bpe", _ROBERTA, _BERT_LAYOUT, steps="herbert"),
    "OpenAIGPT": Family("bpe", {"unk": "<unk>"}, steps="gpt1"),
    "Qwen2": Family("bpe", _GPT2 | {"pad": "<|endoftext|>"}, None, steps="qwen2"),
    "Whisper": Family(
        "bpe",
        _GPT2,
        (
            "<|startoftranscript|> <|notimestamps|> A <|endoftext|>",
            "<|startoftranscript|> <|notimestamps|> A B:1 <|endoftext|>:1",
        ),
        steps="gpt2",
    ),
    "Albert": Family("sentencepiece", _ALBERT, _BERT_LAYOUT, steps="cleaned", lowercases=True),
    "BertGeneration": Family("sentencepiece", _ANGLES),
    "BigBird": Family("sentencepiece", _ALBERT | {"bos": "<s>", "eos": "</s>"}, _BERT_LAYOUT),
    "Camembert": Family(
        "sentencepiece",
        _ROBERTA,
        _ROBERTA_LAYOUT,
        first=("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"),
        n_replaced=1,
        last=("<mask>",),
        strips_mask=True,
    ),
    **dict.fromkeys(("CodeLlama", "Llama"), _LLAMA_FAMILY),
    "DebertaV2": Family("sentencepiece", _BERT, _BERT_LAYOUT, last=("[MASK]",)),
    "Gemma": Family(
        "sentencepiece", {"bos": "<bos>", "eos": "<eos>", "unk": "<unk>", "pad": "<pad>"}, None, begins=True
    ),
    "Marian": Family("marian", _ANGLES, ("A eos", "A B eos")),
    "MBart": Family(
        "sentencepiece", _ROBERTA, ("A eos lang", "A B eos lang"), first=_FAIRSEQ, n_replaced=3,
        last=(*_MBART_LANGUAGES, "<mask>"), language="en_XX", strips_mask=True,
    ),
    "MBart50": Family(
        "sentencepiece", _ROBERTA, ("lang A eos", "lang A B eos"), first=_FAIRSEQ, n_replaced=3,
        last=(*_MBART50_LANGUAGES, "<mask>"), language="en_XX", strips_mask=True,
    ),
    **dict.fromkeys(("MT5", "T5"), _T5_FAMILY),
    "Nllb": Family(
        "sentencepiece", _ROBERTA, ("lang A eos", "lang A B eos"), first=_FAIRSEQ, n_replaced=3, language="eng_Latn",
        fixed={"legacy_behaviour": False},
    ),
    "Pegasus": Family(
        "sentencepiece", {"eos": "</s>", "unk": "<unk>", "pad": "<pad>", "mask": "<mask_2>"}, ("A eos", "A B eos"),
        first=("<pad>", "</s>", "<mask_1>", "<mask_2>", *(f"<unk_{i}>" for i in range(2, 103))), n_replaced=2,
        fixed={"offset": 103},
    ),
    "Reformer": Family("sentencepiece", {"eos": "</s>", "unk": "<unk>"}),
    "XLMRoberta": Family(
        "sentencepiece", _ROBERTA, _ROBERTA_LAYOUT, first=_FAIRSEQ, n_replaced=3, last=("<mask>",)
    ),
    "XLNet": Family(
        "sentencepiece", _FUNNEL, ("A sep cls:2", "A sep B:1 sep:1 cls:2"), steps="cleaned"
    ),
    "ChatGLM4": Family("ranks", {}, ("[gMASK] <sop> A", "[gMASK] <sop> A B"), steps="llama3"),
    "QWen": Family(
        "ranks", {}, steps="qwen",
        last=("<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{i}|>" for i in range(205))),
    ),
    "TikToken": Family("ranks", {}, steps="kimi_k2", last=("<|reserved_token_{id}|>",) * 256),
}  # fmt: skip
"""Name of a class, without "Tokenizer" -> its row."""

_MODEL_TYPES = {
    "gpt_neo": "GPT2", "gptj": "GPT2", "mistral": "Llama", "mixtral": "Llama",
}  # fmt: skip
"""Model types whose tokenizer's class has another name."""


def family_of(name: str) -> Family | None:
    """Returns the row of a class, by its name with or without "Tokenizer" and "Fast"; None if there is none."""
    return _BY_NAME.get(re.sub(r"(tokenizer)?(fast)?$", "", name.lower()))


_BY_NAME = {name.lower(): family for name, family in CLASSES.items()}


def class_of_model(model_type: str) -> str:
    """Returns the name of the class for the `model_type` of a `config.json`; if it is unknown, the type itself."""
    name = _MODEL_TYPES.get(model_type, model_type.replace("-", "").replace("_", ""))
    return next((known for known in CLASSES if known.lower() == name.lower()), model_type)


def known_classes(kind: Kind) -> str:
    """Returns the names of the classes of a kind, for messages."""
    return ", ".join(f"{name}Tokenizer" for name, family in CLASSES.items() if family.kind == kind)


# The settings that `transformers` saves next to a vocabulary.

ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
_MOST_DIGITS = 19
"""The most digits of an id of 64 bits."""
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


@dataclasses.dataclass(frozen=True)
class Settings:
    """The JSON files of a folder as `transformers` saves it, any of which may be missing."""

    config: Node
    """`tokenizer_config.json`, an empty object if there is none."""
    class_name: str
    """The name of the tokenizer's class, or empty."""
    roles: dict[str, AddedToken]
    """Special tokens by role; their ids are not set."""
    special: frozenset[str]
    """The content of every special token."""
    added: tuple[AddedToken, ...]
    """The tokens of `added_tokens_decoder` and `added_tokens.json`, with their ids."""

    @classmethod
    def of_class(cls, name: str, source: str) -> "Settings":
        """Returns the settings for a single file that is read as a class; `source` is its name in messages."""
        return cls(Node({}, source), name, {}, frozenset(), ())

    def flag(self, name: str, default: bool) -> bool:
        """Returns an option that is true or false; null means the default."""
        node = self.config.child(name, None)
        return default if node.value is None else node.flag()


def read_settings(folder: Path, as_class: str | None = None) -> Settings:
    """Reads the settings of a folder; as_class: the name of the class, which overrides what the folder says.

    Raises:
      TokenizerFileError: if a file is not as `transformers` writes it; the message says which and where.
    """
    config = _read(folder / "tokenizer_config.json")
    tokens_map = _read(folder / "special_tokens_map.json")
    roles: dict[str, AddedToken] = {}
    for role in ROLES:
        # Older versions wrote the map; the config overrides it.
        for node in (tokens_map, config):
            found = node.child(f"{role}_token", None)
            if found.value is not None:
                roles[role] = _token(found, 0, special=True)
    special = {token.content for token in roles.values()}
    for node in (tokens_map, config):
        for name in ("additional_special_tokens", "extra_special_tokens"):
            extra = node.child(name, None)
            if isinstance(extra.value, list):
                special |= {_token(item, 0, special=True).content for item in extra.items()}
    added: dict[str, AddedToken] = {}
    plain = _read(folder / "added_tokens.json")
    for content in plain.object():
        token_id = plain.child(content).integer()
        added[content] = _token(Node(content, f"{plain.path}.{content}"), token_id, special=content in special)
    decoder = config.child("added_tokens_decoder", {})
    for number in decoder.object():
        if not (number.isascii() and number.isdecimal() and len(number) <= _MOST_DIGITS):
            raise decoder.fail(f"expected ids as keys, got {reprlib.repr(number)}")
        token = _token(decoder.child(number), int(number), special=False)
        added[token.content] = token
    special |= {t.content for t in added.values() if t.special}
    added = {c: dataclasses.replace(t, special=True) if c in special else t for c, t in added.items()}
    by_id = sorted(added.values(), key=lambda token: token.id)
    name = as_class or _class_name(folder, config)
    return Settings(config, name, roles, frozenset(special), tuple(by_id))


def _class_name(folder: Path, config: Node) -> str:
    """Returns the name of the class, from the first file that says, in the order of `transformers`."""
    model = _read(folder / "config.json")
    for file in (config, model):
        # The folder has its own code, which may do anything to a text, whatever class it names besides.
        code = file.child("auto_map", None)
        if isinstance(code.value, dict) and "AutoTokenizer" in code.value:
            code = code.child("AutoTokenizer")
        elif file is model:
            continue
        names = code.value if isinstance(code.value, list) else [code.value]
        if own := next((name for name in names if isinstance(name, str)), None):
            return own.rpartition(".")[2]
    for file in (config, model):
        name = file.child("tokenizer_class", None)
        if name.value is not None:
            return name.text()
    model_type = model.child("model_type", None)
    return "" if model_type.value is None else class_of_model(model_type.text())


def _read(path: Path) -> Node:
    node = parse(files.read_text(path), str(path)) if path.is_file() else Node({}, str(path))
    node.object()
    return node


def _token(node: Node, token_id: int, *, special: bool) -> AddedToken:
    """Reads a token: a string with its content, or an object with content and flags."""
    try:
        if isinstance(node.value, str):
            return AddedToken(token_id, node.value, normalized=not special, special=special)
        flags = {name: node.child(name, None) for name in _FLAGS}
        values: dict[str, Any] = {name: child.flag() for name, child in flags.items() if child.value is not None}
        values.setdefault("special", special)
        return AddedToken(token_id, node.child("content").text(), **values)
    except TokenizerFileError:
        raise
    except ValueError as error:
        raise node.fail(str(error)) from error
