# SPDX-License-Identifier: Apache-2.0
"""`as_hf()` does what transformers does: calls with any options, on any texts, for every family of tokenizers."""

import contextlib
import copy
import functools
import importlib
import json
import random
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

hf = pytest.importorskip("tokenizers", reason="needs the test group: HF tokenizers")
transformers = pytest.importorskip("transformers", reason="needs the test group: transformers")

from tokenizers import pre_tokenizers, processors  # noqa: E402

from tests.parity.families import FAMILIES, family  # noqa: E402
from tokenmill.tokenizer import Tokenizer  # noqa: E402
from tokenmill.tokenizer.adapters.tokenizers import HFTokenizer  # noqa: E402

DIFFERENCES = {
    "components of as_hf and as_tokenizers": (
        "copies of HF's, so set what was changed; a SentencePiece model's normalizer, which HF lacks, is not shown"
    ),
    "steps of a folder as its class makes them": (
        "those of the files; as_hf(folder) warns if its class in transformers 5 gives other ids, with a text for which "
        "it does (Phi-3 as Llama, a space in front). These make steps of their own: "
        "Albert, Barthez, Bert, BigBird, Blenderbot, CLIP, Camembert, CodeGen, CodeLlama, Cohere, ConvBert, Cpm, "
        "DPRContextEncoder, DPRQuestionEncoder, DPRReader, Deberta, DebertaV2, DistilBert, Esmc, FNet, Funnel, "
        "GPT2, GPTNeoX, Gemma, Herbert, Lasr, LayoutLMv2, LayoutLMv3, LayoutXLM, Llama, Luke, MBart50, MBart, "
        "MLuke, MPNet, MarkupLM, Nllb, Nougat, OpenAIGPT, Pegasus, Qwen2, Qwen3_5, Reformer, RemBert, RoFormer, "
        "Roberta, SeamlessM4T, Siglip2, Splinter, T5, Tipsv2, Udop, VideoPrism, Whisper, XGLM, XLMRoberta, XLNet"
    ),
}
pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore")]

N_CALLS = 60
"""For each of the families."""
WORDS = [
    "the", "mill", "Grinds", "it's", "don't", "1234", "5,678.", "玫瑰", "😀", "naïve", "É", "  ", "\n", "x" * 30,
    "Straße", "<|endoftext|>", "<s>", "[CLS]", "</s>", "<pad>", "<tool_call>", "def f(x):", "🧑‍🔬", "", "über", "ab",
]  # fmt: skip


def texts_of(rng: random.Random, n: int) -> list[str]:
    return [" ".join(rng.choices(WORDS, k=rng.randrange(14))) for _ in range(n)]


def words_of(rng: random.Random, n: int) -> list[list[str]]:
    return [[w.strip() or "a" for w in rng.choices(WORDS, k=rng.randrange(1, 9))] for _ in range(n)]


def call_of(rng: random.Random) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments and options of a call."""
    n, is_split = rng.randrange(1, 4), rng.random() < 0.2
    make = words_of if is_split else texts_of
    arguments: list[Any] = [make(rng, n)]
    if rng.random() < 0.4:
        arguments.append(make(rng, n))
    if rng.random() < 0.4:
        arguments = [each[0] for each in arguments]
    options: dict[str, Any] = {"is_split_into_words": True} if is_split else {}
    choices: dict[str, list[Any]] = {
        "padding": [True, "longest", "max_length", "do_not_pad", False],
        "truncation": [True, "longest_first", "only_first", "only_second", False],
        "max_length": [10, 12, 16, 24, 40, None],
        "stride": [0, 0, 1, 2],
        "return_tensors": [None, None, "np"],
        "padding_side": ["left", "right"],
        "pad_to_multiple_of": [4, 8, None],
        "add_special_tokens": [True, False],
    }
    flags = [
        "overflowing_tokens", "offsets_mapping", "attention_mask", "token_type_ids", "special_tokens_mask", "length",
    ]  # fmt: skip
    choices |= {f"return_{flag}": [True, False] for flag in flags}
    options |= {name: rng.choice(values) for name, values in choices.items() if rng.random() < 0.5}
    return tuple(arguments), options


def outcome(function: Any, *arguments: Any, **options: Any) -> Any:
    """Returns all that a call gives; of an error only that it is one."""
    try:
        found = function(*arguments, **options)
    except BaseException as error:  # HF tokenizers raises bare ones, and crashes where a stride is too large
        if isinstance(error, KeyboardInterrupt):
            raise
        return "an error"
    if not isinstance(found, transformers.BatchEncoding):
        return found
    values = {name: plain(value) for name, value in found.items()}
    return values, [(e.tokens, e.word_ids, e.sequence_ids, e.offsets, e.special_tokens_mask) for e in found.encodings]


def plain(value: Any) -> Any:
    """Returns arrays as what can be compared; rows of different lengths are an array of arrays."""
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, [plain(each) for each in value]
    return value


def bert() -> str:
    """A `tokenizer.json` of BERT, small."""
    tokenizer = hf.Tokenizer.from_str(family("bert and digits"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(["[CLS]", "[SEP]", "[MASK]"])
    cls, sep = ((token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]"))
    tokenizer.post_processor = processors.BertProcessing(sep, cls)
    return tokenizer.to_str()


@functools.cache
def both(name: str) -> tuple[Any, Any]:
    text = bert() if name == "bert" else family(name)
    options: dict[str, Any] = {"pad_token": "<pad>", "model_max_length": 48}
    named = {f"{role}_token": f"[{role.upper()}]" for role in ("unk", "sep", "cls", "mask") if name == "bert"}
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=hf.Tokenizer.from_str(text), **named, **options)
    return Tokenizer.from_str(text).as_hf(**options), theirs


def assert_same_calls(ours: Any, theirs: Any, seed: str, n: int = N_CALLS) -> None:
    rng = random.Random(seed)
    has_types = 1 in theirs("a", "b", return_token_type_ids=True)["token_type_ids"]
    for _ in range(n):
        arguments, options = call_of(rng)
        if not has_types and options.get("return_overflowing_tokens"):
            options.pop("return_token_type_ids", None)  # see DIFFERENCES in test_post_processors.py
        found, expected = outcome(ours, *arguments, **options), outcome(theirs, *arguments, **options)
        assert found == expected, (arguments, options)


@pytest.mark.parametrize("name", ["bert", *FAMILIES])
def test_calls_give_the_same(name: str) -> None:
    assert_same_calls(*both(name), name)


@pytest.mark.parametrize("name", ["bert", "roberta", "llama2", "t5", "added tokens", "clip"])
def test_methods_give_the_same(name: str) -> None:
    ours, theirs = both(name)
    rng = random.Random(name)
    ids = theirs("the mill Grinds <pad> xyz")["input_ids"]
    calls: list[tuple[Any, ...]] = [("__len__",), ("get_vocab",), ("get_added_vocab",), ("__repr__",)]
    calls += [("num_special_tokens_to_add",), ("num_special_tokens_to_add", True)]
    calls += [("convert_ids_to_tokens", ids), ("convert_tokens_to_ids", ["the", "<pad>", "no such token"])]
    calls += [("convert_tokens_to_string", theirs.tokenize("the mill")), ("get_special_tokens_mask", ids, None, True)]
    for text in texts_of(rng, 20):
        ids = theirs(text)["input_ids"]
        calls += [(each, text) for each in ("encode", "tokenize")] + [("decode", ids), ("decode", ids, True)]
        calls += [("batch_decode", [ids, ids[:2], [len(theirs) + 7]])]
    for method, *arguments in calls:
        found, expected = (outcome(getattr(each, method), *arguments) for each in both(name))
        assert found == expected, (method, arguments)
    for attribute in ("vocab_size", "all_special_ids", "pad_token_id", "special_tokens_map", "max_len_single_sentence"):
        assert getattr(ours, attribute) == getattr(theirs, attribute)


@pytest.mark.parametrize("name", ["bert", "added tokens"])
def test_tokens_are_added_as_there(name: str) -> None:
    found = []
    for tokenizer in map(copy.deepcopy, both(name)):
        n = [tokenizer.add_tokens(["grinds", "<new>", hf.AddedToken("<x>", lstrip=True)])]
        n += [tokenizer.add_special_tokens({"mask_token": "<m>", "extra_special_tokens": ["<e>"]})]
        text = "the <m> grinds  <x> <e><new> a"
        ids = tokenizer(text)["input_ids"]
        found.append((n, ids, tokenizer.mask_token_id, tokenizer.tokenize(text), tokenizer.decode(ids, True)))
        found[-1] += (tokenizer(text, split_special_tokens=True)["input_ids"], repr(tokenizer))
    assert found[0] == found[1]


def test_bos_and_eos_are_put_around_texts_as_there() -> None:
    text = family("gpt2")
    options = {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True, "add_eos_token": True}
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=hf.Tokenizer.from_str(text), **options)
    ours = Tokenizer.from_str(text).as_hf(**options)
    for each in (("the mill",), ("the mill", "grinds")):
        assert outcome(ours, *each) == outcome(theirs, *each)


def test_a_tokenizer_is_like_another() -> None:
    _, theirs = both("bert")
    template = "{% for m in messages %}{{ m.content }} {% endfor %}"
    like = copy.deepcopy(theirs)
    like.add_tokens(["<new>"])
    like.chat_template = template
    ours = Tokenizer.from_str(bert()).as_hf(like)
    assert isinstance(ours.backend_tokenizer, HFTokenizer)
    assert type(ours) is type(like)
    messages = [{"role": "user", "content": "the mill"}, {"role": "user", "content": "<new>"}]
    assert dict(ours.apply_chat_template(messages)) == dict(like.apply_chat_template(messages))
    assert_same_calls(ours, like, "like", 20)
    with pytest.raises(ValueError, match=r"the vocabulary is not that of TokenizersBackend: it differs in \["):
        Tokenizer.from_str(family("gpt2")).as_hf(like)
    with pytest.raises(TypeError, match="a tokenizer has its own, got"):
        Tokenizer.from_str(bert()).as_hf(like, pad_token="x")
    with pytest.raises(TypeError, match="like must be a folder or a fast tokenizer of transformers, got 3"):
        Tokenizer.from_str(bert()).as_hf(3)


def test_without_transformers_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=r"as_hf needs transformers: .*; pip install"):
        Tokenizer.from_str(bert()).as_hf()


def test_clips_class_decodes_as_there(tmp_path: Path) -> None:
    model = json.loads(family("clip"))["model"]
    theirs = transformers.CLIPTokenizer(vocab=model["vocab"], merges=list(map(tuple, model["merges"])))
    theirs.save_pretrained(tmp_path)
    ours = Tokenizer.from_pretrained(tmp_path).as_hf(tmp_path)
    assert type(ours) is transformers.CLIPTokenizer
    for i in range(len(theirs)):
        assert ours.decode([i]) == theirs.decode([i])
    assert ours.decode(ours.encode("The  mill, a\nmill")) == theirs.decode(theirs.encode("The  mill, a\nmill"))


def test_classes_that_make_their_steps_anew_are_listed() -> None:
    """A class of transformers with a constructor of its own takes a vocabulary from the files, and not the steps."""
    base = transformers.PreTrainedTokenizerFast
    found = set()
    for path in sorted((Path(transformers.__file__).parent / "models").glob("*/tokenization_*.py")):
        with contextlib.suppress(ImportError, NameError):
            module = importlib.import_module(f"transformers.models.{path.parent.name}.{path.stem}")
            for name, kind in vars(module).items():
                if isinstance(kind, type) and issubclass(kind, base) and kind.__module__ == module.__name__:
                    own = kind.__mro__[: kind.__mro__.index(base)]
                    if any("__init__" in each.__dict__ for each in own):
                        found.add(name.removesuffix("Fast").removesuffix("Tokenizer"))
    listed = DIFFERENCES["steps of a folder as its class makes them"].partition("of their own: ")[2]
    assert found == set(listed.split(", "))


def _folder(path: Path, json_text: str, kind: str, **options: Any) -> Path:
    (path / "tokenizer.json").write_text(json_text, encoding="utf-8")
    (path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind} | options), encoding="utf-8")
    return path


def test_a_class_that_gives_other_ids_is_warned_of(tmp_path: Path) -> None:
    fields = json.loads(family("llama2"))
    folder = _folder(tmp_path, json.dumps(fields), "LlamaTokenizer", legacy=False, unk_token="<unk>", bos_token="<s>")
    with pytest.warns(UserWarning, match="LlamaTokenizer of transformers gives other ids than this tokenizer, on "):
        ours = Tokenizer.from_pretrained(folder).as_hf(folder)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    assert ours(" lead")["input_ids"] != theirs(" lead")["input_ids"]
    same = Tokenizer.from_str(theirs.backend_tokenizer.to_str())
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert same.as_hf(theirs)(" lead")["input_ids"] == theirs(" lead")["input_ids"]


def test_a_class_that_gives_the_same_ids_is_not(tmp_path: Path) -> None:
    folder = _folder(tmp_path, bert(), "PreTrainedTokenizerFast")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        Tokenizer.from_pretrained(folder).as_hf(folder)
