# SPDX-License-Identifier: Apache-2.0
"""Folders with a slow tokenizer's files against `transformers`: every class that is known, and those that are not.

`DIFFERENCES` is the whole list of what is meant to differ.
"""

import itertools
import json
import string
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sentencepiece", reason="needs the test group: sentencepiece")
transformers = pytest.importorskip("transformers", reason="needs transformers")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from tokenizers import normalizers  # noqa: E402

from tests import strategies  # noqa: E402
from tests.parity import families  # noqa: E402
from tests.parity.test_saving import gpt2  # noqa: E402
from tests.parity.test_sentencepiece_tokenizers import train  # noqa: E402
from tokenmill.tokenizer import Tokenizer, TokenizerFileError  # noqa: E402
from tokenmill.tokenizer.formats.transformers_classes import CLASSES  # noqa: E402

pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore")]

DIFFERENCES = {
    "SentencePiece models in a folder": (
        "sentencepiece's normalization, and what transformers 4 does; 5 has other steps for white space, also beside "
        "special tokens, and no character map for BigBird, DebertaV2 and MBart"
    ),
    "spaces around decoded text": "none before it; transformers may leave one where it left out an unknown piece",
    "add_bos_token of Llama and Gemma": "true unless a folder says otherwise, as in transformers 4; false in 5",
    "special tokens that a vocabulary lacks": (
        "refused where the layout needs them, else not there; transformers makes them up"
    ),
    "control characters around CLIP's text": (
        "kept; transformers strips what Python's `strip` takes for white space, U+001C to U+001F, which are tokens"
    ),
    "what Marian's source language lacks": (
        "the unknown token; transformers looks for it among the pieces of the target language, too; where special "
        "tokens are split, `>>fr<<` is one anywhere, and in front of a text there"
    ),
    "classes that transformers 4 and 5 differ about": (
        "refused without a tokenizer.json: Barthez, Blenderbot, FNet, RemBERT, XGLM"
    ),
}

TEXTS = [
    "The mill grinds text into tokens; it's what the miller's wheels do, don't they? 1234 and 5,678.",
    "Hello world", "def f(x): return x ** 2 # squared", "unaffable people, 'quoted'.",
]  # fmt: skip
_LLAMA = {
    "byte_fallback": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False,
    "split_digits": True,
}  # fmt: skip
_ALBERT = {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1}
_GEMMA = {"add_dummy_prefix": False, "pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3}
_T5 = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
_BIG_BIRD = {"pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3}
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "Albert": ("spiece.model", "unigram", _ALBERT | {"control_symbols": ["[CLS]", "[SEP]", "[MASK]"]}),
    "BertGeneration": ("spiece.model", "unigram", _BIG_BIRD),
    "BigBird": ("spiece.model", "unigram", _BIG_BIRD | {"control_symbols": ["[CLS]", "[SEP]", "[MASK]"]}),
    "Camembert": ("sentencepiece.bpe.model", "unigram", {}),
    "CodeLlama": ("tokenizer.model", "bpe", _LLAMA),
    "DebertaV2": (
        "spm.model", "unigram",
        _ALBERT | {"control_symbols": ["[CLS]", "[SEP]"], "pad_piece": "[PAD]", "unk_piece": "[UNK]"},
    ),
    "Gemma": ("tokenizer.model", "bpe", _LLAMA | _GEMMA | {"bos_piece": "<bos>", "eos_piece": "<eos>"}),
    "Llama": ("tokenizer.model", "bpe", _LLAMA),
    "MBart": ("sentencepiece.bpe.model", "unigram", {}),
    "MBart50": ("sentencepiece.bpe.model", "unigram", {}),
    "MT5": ("spiece.model", "unigram", _T5),
    "Nllb": ("sentencepiece.bpe.model", "bpe", {}),
    "Pegasus": ("spiece.model", "unigram", _T5),
    "Reformer": ("spiece.model", "bpe", {}),
    "T5": ("spiece.model", "unigram", _T5),
    "XLMRoberta": ("sentencepiece.bpe.model", "unigram", {}),
    "XLNet": (
        "spiece.model", "unigram", {"user_defined_symbols": ["<cls>", "<sep>", "<pad>", "<mask>", "<eod>"]},
    ),
}  # fmt: skip
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
MERGES: dict[str, list[str]] = {
    "CodeGen": [],
    "Deberta": BERT,
    "GPT2": [],
    "Qwen2": [],
    "Whisper": ["<|startoftranscript|>", "<|notimestamps|>"],
    **dict.fromkeys(("Bart", "LED", "Longformer", "Mvp", "Roberta"), ROBERTA),
}
CLIP_ENDS = ["<|startoftext|>", "<|endoftext|>"]
FAMILIES = {"CLIP": ("clip", CLIP_ENDS), "Herbert": ("char bpe", ROBERTA), "OpenAIGPT": ("char bpe", ["<unk>"])}
SPECIAL = {
    "Funnel": ["<pad>", "<unk>", "<cls>", "<sep>", "<mask>", "<s>", "</s>"],
    "Esm": ["<cls>", "<pad>", "<eos>", "<unk>", "<mask>"],
    "MPNet": ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"],
    "Splinter": [*BERT, "[QUESTION]"],
}
STARTS = {"add_bos_token": True}
NLLB: dict[str, Any] = {
    "added_tokens_decoder": {"2001": {"content": "eng_Latn", "special": True}},
    "extra_special_tokens": [],
}
CONFIGS: dict[str, dict[str, Any]] = {"Llama": STARTS, "CodeLlama": STARTS, "Gemma": STARTS, "Nllb": NLLB}
CASES: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name, family in CLASSES.items() if family.kind not in ("ranks", "marian")),
    ("Llama", {"add_eos_token": True}),
    ("Llama", {"add_bos_token": False}),
    ("GPT2", {"add_prefix_space": True, "add_bos_token": True}),
    ("Roberta", {"add_prefix_space": True}),
    ("MBart", {"src_lang": "de_DE"}),
    ("MBart50", {"src_lang": "uk_UA"}),
    ("Bert", {"do_lower_case": False}),
    ("Bert", {"strip_accents": False, "tokenize_chinese_chars": False}),
    ("Bert", {"cls_token": "[MASK]"}),
    ("T5", {"extra_ids": 7}),
    ("Albert", {"do_lower_case": False, "keep_accents": True}),
    ("XLNet", {"do_lower_case": True}),
]


def write_folder(folder: Path, name: str, config: dict[str, Any]) -> None:
    """Writes a small vocabulary in the files of a class."""
    if name in MODELS:
        file, model_type, options = MODELS[name]
        (folder / file).write_bytes(train(model_type, options))
    elif name in FAMILIES:
        family, special = FAMILIES[name]
        model = json.loads(families.family(family))["model"]
        tokens = [*special, *(t for t, _ in sorted(model["vocab"].items(), key=lambda x: x[1]) if t not in special)]
        (folder / "vocab.json").write_text(json.dumps({t: i for i, t in enumerate(tokens)}), encoding="utf-8")
        merges = "".join(f"{a} {b}\n" for a, b in model["merges"])
        (folder / "merges.txt").write_text("#version: 0.2\n" + merges, encoding="utf-8")
    elif name in MERGES:
        gpt2().save(folder / "vocab.json")
        vocab = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
        vocab |= {token: len(vocab) + i for i, token in enumerate(MERGES[name])}
        (folder / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")
    else:
        letters = string.ascii_letters + string.digits + "éß玫"
        tokens = [*SPECIAL.get(name, BERT), "the", "mill", "##aff", ".", ",", "'", *letters]
        (folder / "vocab.txt").write_text("\n".join([*tokens, *(f"##{c}" for c in letters)]) + "\n", encoding="utf-8")
    config = {"tokenizer_class": f"{name}Tokenizer"} | CONFIGS.get(name, {}) | config
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


@pytest.fixture(autouse=True)
def _any_protobuf(monkeypatch: pytest.MonkeyPatch) -> None:
    # transformers' description of .model files may be newer than the protobuf that Beam allows; it works all the same.
    monkeypatch.setattr("google.protobuf.runtime_version.ValidateProtobufRuntimeVersion", lambda *_: None)


def theirs_of(folder: Path, name: str) -> Any:
    # There is no class of this name any more; it was the same one.
    if name == "MT5":
        return transformers.T5Tokenizer.from_pretrained(str(folder))
    return transformers.AutoTokenizer.from_pretrained(str(folder))


def cleaned(name: str, config: dict[str, Any], text: str) -> str:
    """What ALBERT and XLNet do before sentencepiece; other classes do nothing."""
    if name not in ("Albert", "XLNet"):
        return text
    text = text.replace("``", '"').replace("''", '"')
    steps: list[Any] = [] if config.get("keep_accents") else [normalizers.NFKD(), normalizers.StripAccents()]
    steps += [normalizers.Lowercase()] if config.get("do_lower_case", name == "Albert") else []
    return str(normalizers.Sequence(steps).normalize_str(text))


@pytest.mark.parametrize(("name", "config"), CASES)
def test_a_class_does_what_it_does_in_transformers(tmp_path: Path, name: str, config: dict[str, Any]) -> None:
    write_folder(tmp_path, name, config)
    theirs = theirs_of(tmp_path, name)
    ours = Tokenizer.from_file(tmp_path, special="split")
    plain = Tokenizer.from_file(tmp_path)
    model = None
    if name in MODELS:
        spm = pytest.importorskip("sentencepiece", reason="needs the test group: sentencepiece")
        model = spm.SentencePieceProcessor(model_file=str(tmp_path / MODELS[name][0]))

    def both_mean(text: str) -> bool:
        """Whether transformers does with a text as sentencepiece, whose ids are ours; where there is such a model."""
        if model is None:
            return True
        pieces = model.encode(cleaned(name, config, text), out_type=str)
        expected = [theirs.convert_tokens_to_ids(piece) for piece in pieces]
        assert plain.encode(text, add_special_tokens=False).ids == expected
        return bool(theirs(text, add_special_tokens=False)["input_ids"] == expected)

    def assert_same(first: str, second: str) -> None:
        ids = theirs(first)["input_ids"]
        assert ours.encode(first).ids == ids
        for skips in (True, False):
            decoded, expected = ours.decode(ids, skips), theirs.decode(ids, skip_special_tokens=skips)
            if name == "CLIP" and not {*"\x1c\x1d\x1e\x1f"}.isdisjoint(decoded):
                decoded = decoded.strip()
            # Where an unknown piece is left out, transformers may leave the space that was before it.
            assert decoded == expected or (model is not None and skips and decoded.strip(" ") == expected.strip(" "))
        second = second or "x"  # which transformers takes for none
        pair, both = ours.encode(first, second), theirs(first, second, return_token_type_ids=True)
        assert pair.ids == both["input_ids"]
        assert pair.type_ids == both["token_type_ids"]

    known = [text for text in [*TEXTS, *families.sample()] if both_mean(text)]
    assert len(known) > 60
    for first, second in itertools.pairwise(known):
        assert_same(first, second)
    special = [t for t in theirs.all_special_tokens if ours.token_to_id(t) is not None and model is None]

    @strategies.FEWER
    @given(*[st.lists(st.one_of(strategies.texts(20), st.sampled_from([" ", *special])), max_size=4).map("".join)] * 2)
    def check(first: str, second: str) -> None:
        if both_mean(first) and both_mean(second):
            assert_same(first, second)

    check()
    got, wanted = ours.get_vocab(), theirs.get_vocab()
    assert got.items() <= wanted.items()
    made_up = wanted.keys() - got.keys()
    assert made_up <= {"<mask>", "<sep>", "<::::>", "▁<PRE>", "▁<MID>", "▁<SUF>", "▁<EOT>", "<FILL_ME>"}, made_up
    special = {token.content for token in ours.added_tokens if token.special} | {"<eod>"}
    assert {token for token in got if token in theirs.all_special_tokens} <= special
    assert Tokenizer.from_str(ours.to_str()).encode(TEXTS[0], TEXTS[1]).ids == plain.encode(TEXTS[0], TEXTS[1]).ids


def write_marian(folder: Path) -> list[str]:
    """Writes Marian's files, with the ids of both languages mixed; returns the pieces of the source language."""
    spm = pytest.importorskip("sentencepiece", reason="needs the test group: sentencepiece")
    (folder / "source.spm").write_bytes(train("unigram", {}))
    (folder / "target.spm").write_bytes(train("bpe", {}))
    source, target = (spm.SentencePieceProcessor(model_file=str(folder / f"{x}.spm")) for x in ("source", "target"))
    sides = [[each.id_to_piece(i) for i in range(3, len(each))] for each in (source, target)]
    tokens = dict.fromkeys(["</s>", "<unk>", *reversed(sides[1]), *reversed(sides[0]), ">>fr<<", ">>de<<", "<pad>"])
    (folder / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}), encoding="utf-8")
    config = {"tokenizer_class": "MarianTokenizer", "source_lang": "en", "target_lang": "de"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return sides[0]


def test_marian(tmp_path: Path) -> None:
    known = write_marian(tmp_path)
    theirs = transformers.MarianTokenizer.from_pretrained(str(tmp_path))
    ours = Tokenizer.from_file(tmp_path, special="split")
    texts = [*TEXTS, *families.sample(), "", " ", "</s> a", *(f">>fr<< {text}" for text in TEXTS)]
    unknown = ours.token_to_id("<unk>")
    for text in texts:
        for one, other in zip(ours.encode(text).ids, theirs(text)["input_ids"], strict=True):
            assert one == other or (one == unknown and theirs.convert_ids_to_tokens(other) not in known)
    assert ours.encode(TEXTS[0], TEXTS[1]).ids == theirs(TEXTS[0], TEXTS[1])["input_ids"]
    vocab = json.loads((tmp_path / "vocab.json").read_text(encoding="utf-8"))
    renamed = {("nothing" if token == known[-1] else token): i for token, i in vocab.items()}
    (tmp_path / "vocab.json").write_text(json.dumps(renamed), encoding="utf-8")
    with pytest.raises(TokenizerFileError, match=r"source\.spm: 1 pieces, .* have no id in vocab\.json"):
        Tokenizer.from_file(tmp_path)
    (tmp_path / "source.spm").unlink()
    with pytest.raises(TokenizerFileError, match=r"MarianTokenizer is read from source\.spm and vocab\.json"):
        Tokenizer.from_file(tmp_path)


def test_tokens_added_beside_a_tokenizer_json(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(families.family("gpt2"), encoding="utf-8")
    decoder = {"700": {"content": "<|tool|>", "special": True}, "701": {"content": "<think>", "lstrip": True}}
    config = {"added_tokens_decoder": decoder, "pad_token": {"content": "<|endoftext|>"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    ours = Tokenizer.from_file(tmp_path, special="split")
    assert ours.encode("a <think><|tool|>").ids[1:] == [701, 700]
    assert [t.special for t in ours.added_tokens if t.id >= 700] == [True, False]


def test_tokens_added_by_an_older_version(tmp_path: Path) -> None:
    write_folder(tmp_path, "GPT2", {})
    n = gpt2().n_ids
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<a>": n, "<b>": n + 1}), encoding="utf-8")
    (tmp_path / "special_tokens_map.json").write_text(
        json.dumps({"additional_special_tokens": ["<b>"]}), encoding="utf-8"
    )
    ours = Tokenizer.from_file(tmp_path)
    assert [(t.content, t.special) for t in ours.added_tokens if t.id >= n] == [("<a>", False), ("<b>", True)]
    assert n in ours.encode("x<a>y<b>").ids
    assert n + 1 not in ours.encode("x<a>y<b>").ids


UNKNOWN = (
    "BertJapanese RoFormer CpmAnt Tapas LayoutLMv2 PreTrained PreTrainedFast My "
    "Luke MarkupLM Blenderbot GPTNeoX CTRL FSMT XLM Flaubert BioGpt "
    "FNet RemBert XGLM M2M100 PLBart SeamlessM4T Speech2Text Siglip Barthez Cpm"
).split()


@pytest.mark.parametrize(("name", "files"), [*zip(UNKNOWN, ["Bert", "GPT2", "Herbert", "T5"] * 9, strict=False)])
def test_an_unknown_class_is_refused_by_name(tmp_path: Path, name: str, files: str) -> None:
    write_folder(tmp_path, files, {"tokenizer_class": f"{name}Tokenizer"})
    with pytest.raises(TokenizerFileError, match=f"the class '{name}Tokenizer' .*as_class= .*{files}Tokenizer"):
        Tokenizer.from_file(tmp_path)
    named = Tokenizer.from_file(tmp_path, as_class=f"{files}TokenizerFast")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": files}))
    assert named.to_str() == Tokenizer.from_file(tmp_path).to_str()


@pytest.mark.parametrize(
    ("config", "model", "name"),
    [
        ({}, {"tokenizer_class": "BertJapaneseTokenizer", "model_type": "bert"}, "BertJapaneseTokenizer"),
        ({}, {"model_type": "layoutlmv2"}, "layoutlmv2"),
        ({"tokenizer_class": "BertTokenizer", "auto_map": {"AutoTokenizer": ["code.Own", None]}}, {}, "Own"),
        ({"auto_map": ["code.Own", None], "tokenizer_class": "BertTokenizer"}, {}, "Own"),
        ({}, {"auto_map": {"AutoTokenizer": "code.Own"}, "model_type": "bert"}, "Own"),
    ],
)
def test_a_class_may_be_named_elsewhere(
    tmp_path: Path, config: dict[str, Any], model: dict[str, Any], name: str
) -> None:
    write_folder(tmp_path, "Bert", {})
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "config.json").write_text(json.dumps(model))
    with pytest.raises(TokenizerFileError, match=f"the class '{name}' "):
        Tokenizer.from_file(tmp_path)


@pytest.mark.parametrize("model_type", ["xlm-roberta", "mbart", "openai-gpt", "deberta-v2", "bert"])
def test_the_class_of_a_type_of_model(tmp_path: Path, model_type: str) -> None:
    name = {"openai-gpt": "OpenAIGPT", "deberta-v2": "DebertaV2", "xlm-roberta": "XLMRoberta", "mbart": "MBart"}
    write_folder(tmp_path, name.get(model_type, "Bert"), {})
    expected = Tokenizer.from_file(tmp_path).to_str()
    (tmp_path / "tokenizer_config.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    assert Tokenizer.from_file(tmp_path).to_str() == expected


@pytest.mark.parametrize("name", ["T5", "XLMRoberta", "Pegasus", "DebertaV2"])
def test_a_model_of_no_class_is_read_as_one_that_is_given(tmp_path: Path, name: str) -> None:
    write_folder(tmp_path, name, {})
    expected = Tokenizer.from_file(tmp_path).to_str()
    (tmp_path / "tokenizer_config.json").unlink()
    with pytest.raises(TokenizerFileError, match=r"does not say which class reads .*as_class="):
        Tokenizer.from_file(tmp_path)
    assert Tokenizer.from_file(tmp_path, as_class=f"{name}Tokenizer").to_str() == expected
    assert Tokenizer.from_file(tmp_path / MODELS[name][0], as_class=name).to_str() == expected


@pytest.mark.parametrize("name", ["OpenAIGPT", "Herbert", "CLIP", "GPT2", "Deberta"])
def test_two_files_of_no_class(tmp_path: Path, name: str) -> None:
    write_folder(tmp_path, name, {})
    expected = Tokenizer.from_file(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    paths = [tmp_path, tmp_path / "vocab.json", tmp_path / "merges.txt"]
    for path in paths:
        assert Tokenizer.from_file(path, as_class=f"{name}Tokenizer").to_str() == expected.to_str()
        if name in ("OpenAIGPT", "Herbert"):
            with pytest.raises(TokenizerFileError, match=r"its 256 bytes and .*OpenAIGPTTokenizer or HerbertTokenizer"):
                Tokenizer.from_file(path)
            continue
        ours = Tokenizer.from_file(path)
        for text in TEXTS:
            assert (
                ours.encode(text, add_special_tokens=False).ids == expected.encode(text, add_special_tokens=False).ids
            )
    if name == "CLIP":
        assert ours.encode(*TEXTS[:2]).ids == expected.encode(*TEXTS[:2]).ids


def test_merges_that_gpt2_cannot_have_made(tmp_path: Path) -> None:
    for pairs, found in ([(".", "g"), (".g", "e")], "'.g'"), ([("▁", "g")], "'▁'"), ([("(", "n")], "'\\(n'"):
        tokens = dict.fromkeys([*(c for pair in pairs for c in pair), *(a + b for a, b in pairs), "e", "g"])
        (tmp_path / "vocab.json").write_text(json.dumps({t: i for i, t in enumerate(tokens)}), encoding="utf-8")
        (tmp_path / "merges.txt").write_text("".join(f"{a} {b}\n" for a, b in pairs), encoding="utf-8")
        with pytest.raises(TokenizerFileError, match=rf"vocab\.json with merges\.txt: .*{found}.*as_class="):
            Tokenizer.from_file(tmp_path / "vocab.json")


def test_a_class_must_have_an_effect(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(families.family("gpt2"), encoding="utf-8")
    for path in (tmp_path, tmp_path / "tokenizer.json"):
        with pytest.raises(TokenizerFileError, match="as_class='T5Tokenizer' has no effect"):
            Tokenizer.from_file(path, as_class="T5Tokenizer")
        with pytest.raises(TokenizerFileError, match="pattern='llama3' has no effect"):
            Tokenizer.from_file(path, pattern="llama3")
    folder = tmp_path / "other"
    folder.mkdir()
    write_folder(folder, "Bert", {})
    with pytest.raises(TokenizerFileError, match=r"T5Tokenizer is read from tokenizer\.model or spiece\.model"):
        Tokenizer.from_file(folder, as_class="T5Tokenizer")
    with pytest.raises(TokenizerFileError, match=r"T5Tokenizer is not read from such a file"):
        Tokenizer.from_file(folder / "vocab.txt", as_class="T5Tokenizer")
