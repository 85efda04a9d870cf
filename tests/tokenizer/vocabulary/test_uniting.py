# SPDX-License-Identifier: Apache-2.0
"""`merge`, `rename` and `balance`: by hand, on each kind of model, in HF."""

import json

import pyarrow as pa
import pytest
import tokenizers as hf

from tests import corpora
from tests.tokenizer.vocabulary.test_extend import KINDS, NEW, OLD, check_proof, counted, trained
from tokenmill.tokenizer import BPE, BPETrainer, Tokenizer
from tokenmill.tokenizer.trainers import ParityBPETrainer
from tokenmill.tokenizer.vocabulary import balance, extend, merge, rename, rename_files
from tokenmill.tokenizer.vocabulary.measuring import gini


def labelled(tokenizer: Tokenizer, texts: dict[str, list[str]]) -> list[pa.Table]:
    tables = {lang: counted(tokenizer, each) for lang, each in texts.items()}
    return [table.append_column("lang", pa.repeat(lang, table.num_rows)) for lang, table in tables.items()]


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_vocabulary_has_priority_and_gets_what_it_lacks(kind: str) -> None:
    first = trained(kind)
    second = extend(first, counted(first, NEW), 20).tokenizer
    change = merge(first, second, counted(first, OLD))
    check_proof(change, first)
    assert set(change.tokenizer.get_vocab()) == set(second.get_vocab())
    if kind != "unigram":  # scores are those of the first
        assert change.tokenizer.encode_arrow([*OLD, *NEW]).equals(second.encode_arrow([*OLD, *NEW]))
    with pytest.raises(ValueError, match="nothing is to be merged"):
        merge(second, first)
    with pytest.raises(ValueError, match="that spell text alike"):
        merge(first, trained("unigram" if kind == "byte_level" else "byte_level"))


def test_entries_that_take_more_than_one_merge_are_named() -> None:
    letters = {token: i for i, token in enumerate("abcd")}
    first = Tokenizer(model=BPE({**letters, "ab": 4}, [("a", "b")]))
    second = Tokenizer(model=BPE({**letters, "bc": 4, "abc": 5, "bcd": 6}, [("b", "c"), ("a", "bc"), ("bc", "d")]))
    change = merge(first, second)
    assert list(change.tokenizer.model.merges) == [("a", "b"), ("b", "c"), ("ab", "c"), ("bc", "d")]
    second = Tokenizer(model=BPE({**letters, "cd": 4, "bcd": 5, "abcd": 6}, [("c", "d"), ("b", "cd"), ("a", "bcd")]))
    change = merge(first, second)
    assert list(change.tokenizer.model.merges) == [("a", "b"), ("c", "d"), ("b", "cd"), ("ab", "cd")]
    others = Tokenizer(model=BPE({**letters, "cd": 4, "cda": 5, "xcda": 6, "x": 7}, [("c", "d"), ("cd", "a")]))
    assert merge(first, others).report["left out"] == [{"token": "xcda"}]


@pytest.mark.parametrize("kind", ["byte_level", "wordpiece", "bpe"])
def test_special_tokens_are_renamed_in_every_place(kind: str) -> None:
    old = trained(kind)
    name = next(token.content for token in old.added_tokens if token.content not in ("<unk>", "[UNK]"))
    other = {"wordpiece": {"[UNK]": "<unk>"}, "bpe": {"<unk>": "[UNK]"}}.get(kind, {})
    new = rename(old, {name: "<|new|>", **other})
    assert new.token_to_id("<|new|>") == old.token_to_id(name)
    assert name not in new.to_str()
    assert new.encode_arrow([*OLD, *NEW]).equals(old.encode_arrow([*OLD, *NEW]))
    if kind != "bpe":
        assert hf.Tokenizer.from_str(new.to_str()).encode("<|new|>", add_special_tokens=False).ids == [
            old.token_to_id(name)
        ]
    assert rename(new, {"<|new|>": name, **{b: a for a, b in other.items()}}).to_str() == old.to_str()
    for names, words in [
        ({"the": "x"}, "no special or added token 'the'"),
        ({name: ""}, "cannot become ''"),
        ({name: new.id_to_token(new.n_ids - 1)}, "an entry already"),
    ]:
        with pytest.raises(ValueError, match=words):
            rename(old, names)


def test_templates_and_settings_beside_a_tokenizer_are_renamed() -> None:
    settings = {"bos_token": "<s>", "chat_template": "{{ '<s>' + x + '</s>' }}", "decoder": {"1": {"content": "<s>"}}}
    files = {
        "tokenizer_config.json": json.dumps(settings),
        "added_tokens.json": json.dumps({"<s>": 1, "<sep>": 2}),
        "special_tokens_map.json": json.dumps({"bos_token": {"content": "<s>"}, "type": "<s>"}),
        "chat_template.jinja": "<s>{{ '</s>' }}",
        "vocab.txt": "<s>\n</s>\na",
        "model.safetensors": "<s>",
    }
    found = rename_files({name: text.encode() for name, text in files.items()}, {"<s>": "</s>", "</s>": "<s>"})
    expected = {"bos_token": "</s>", "chat_template": "{{ '</s>' + x + '<s>' }}", "decoder": {"1": {"content": "</s>"}}}
    assert json.loads(found["tokenizer_config.json"]) == expected
    assert json.loads(found["added_tokens.json"]) == {"</s>": 1, "<sep>": 2}
    assert json.loads(found["special_tokens_map.json"]) == {"bos_token": {"content": "</s>"}, "type": "<s>"}
    assert (found["chat_template.jinja"], found["vocab.txt"]) == (b"</s>{{ '<s>' }}", b"</s>\n<s>\na")
    assert "model.safetensors" not in found


@pytest.mark.parametrize("kind", ["byte_level", "bpe", "bpe_with_bytes"])
def test_balance_makes_languages_cost_more_alike_at_the_same_size(kind: str, tmp_path) -> None:
    old = trained(kind)
    counts = labelled(old, {"en": OLD, "de": NEW})
    change = balance(old, counts)
    new, rows = change.tokenizer, {(row["name"], row["kind"]): row for row in change.report["measures"]}
    assert new.n_ids == old.n_ids
    if kind == "byte_level":
        assert rows["after", "all"]["gini"]["lang"] < rows["before", "all"]["gini"]["lang"]
        assert [new.token_to_id(t.content) for t in new.added_tokens] == [t.id for t in new.added_tokens]
    assert "after" in repr(change)
    new.save(tmp_path / "tokenizer.json")
    assert Tokenizer.from_file(tmp_path / "tokenizer.json").encode_arrow(OLD).equals(new.encode_arrow(OLD))
    with pytest.raises(ValueError, match="no column 'lang'"):
        balance(old, counted(old, OLD))
    with pytest.raises(ValueError, match="dev and ratio must be of the languages de, en"):
        balance(old, counts, ratio={"fr": 2.0})


@pytest.mark.parity
@pytest.mark.parametrize("how", ["totals", "ratio", "window", "dev", "global"])
def test_parity_aware_merges_are_those_of_hf(how: str, shared_data) -> None:
    texts = {name: corpora.documents(shared_data, name, 100_000) for name in ("en", "zh", "multi", "code")}
    start = Tokenizer.untrained("none", "gpt2", byte_level=True)
    counts = {name: counted(start, each) for name, each in texts.items()}
    options = {"window": {"window": 10, "alpha": 1.5}, "global": {"global_merges": 200}}.get(how, {})
    ratio = dict(zip(texts, [1.0, 2.5, 1.5, 0.8], strict=True)) if how in ("ratio", "window") else None
    dev = {name: each[:3] for name, each in texts.items()} if how in ("dev", "global") else None
    trainer = ParityBPETrainer(vocab_size=1256, byte_level=True, **options)
    held = None if dev is None else {name: counted(start, each) for name, each in dev.items()}
    model = trainer.train_languages(counts, dev=held, ratio=ratio)
    theirs = hf.Tokenizer(hf.models.BPE())
    theirs.pre_tokenizer = hf.pre_tokenizers.ByteLevel(add_prefix_space=False)
    more = {"window": {"variant": "window", "window_size": 10, "alpha": 1.5}}.get(how, options)
    alphabet = hf.pre_tokenizers.ByteLevel.alphabet()
    peer = hf.trainers.ParityBpeTrainer(num_merges=1000, initial_alphabet=alphabet, show_progress=False, **more)
    balanced = {"ratio": [*ratio.values()]} if ratio else {"dev_iterators": [*dev.values()]} if dev else {}
    peer.train_from_iterator(theirs, train_iterators=[*texts.values()], **balanced)
    expected = json.loads(theirs.to_str())["model"]
    assert [list(pair) for pair in model.merges] == [list(pair) for pair in expected["merges"]]
    assert dict(model.vocab) == expected["vocab"]


@pytest.mark.parity
def test_parity_lowers_the_gini_coefficient_over_declarations_of_equal_size(declarations) -> None:
    names = [
        name for name in ("eng", "cmn_hans", "hin", "yor", "deu_1996", "arb", "rus", "swh") if name in declarations
    ]
    assert len(names) > 4
    start = Tokenizer.untrained("none", "o200k_base", byte_level=True)
    texts = {name: declarations[name].splitlines() for name in names}
    texts["eng"] *= 8  # more of one language, as corpora have
    counts = labelled(start, texts)
    plain = start.with_model(BPETrainer(vocab_size=3000, byte_level=True).train(pa.concat_tables(counts).drop("lang")))
    dev = labelled(start, {name: declarations[name].splitlines() for name in names})  # the same text in each language
    change = balance(plain, counts, dev=dev)
    before, after = (row for row in change.report["measures"] if row["kind"] == "all")
    cost = [
        [sum(map(len, each.encode_arrow(declarations[name].splitlines()).to_pylist())) for name in names]
        for each in (plain, change.tokenizer)
    ]
    print(change, [(gini(row), sum(row)) for row in cost])
    assert before["ids"] == after["ids"] == 3000
    ginis = before["gini"]["lang"], after["gini"]["lang"]
    assert ginis == pytest.approx((gini(cost[0]), gini(cost[1])))
    assert gini(cost[1]) < 0.1 * gini(cost[0])
    assert sum(cost[1]) < sum(cost[0])
