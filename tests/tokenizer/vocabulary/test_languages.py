# SPDX-License-Identifier: Apache-2.0
"""Chinese, Hindi and Yoruba for tokenizers of five families: old ids and words stay, others load the result."""

import io

import pytest
import sentencepiece
import tokenizers as hf

from tests import corpora
from tests.tokenizer.vocabulary.test_extend import check_proof, counted
from tokenmill.tokenizer import BPETrainer, Tokenizer
from tokenmill.tokenizer.vocabulary import extend

pytestmark = pytest.mark.parity

FAMILIES = ("gpt2", "llama", "bert", "t5", "sentencepiece_bpe")


def made(family: str, shared_data, texts: list[str], folder) -> Tokenizer:
    """A tokenizer of a family: a published one where there is one at hand, else trained on English."""
    if family in ("gpt2", "bert"):
        name = {"gpt2": "gpt2-vocab.json", "bert": "bert-base-uncased.txt"}[family]
        return Tokenizer.from_file(shared_data / "vocab" / name)
    if family == "llama":  # 3: byte-level, its pattern, words in the vocabulary are cut at once
        start = Tokenizer.untrained("none", "llama3", byte_level=True)
        trainer = BPETrainer(vocab_size=6000, byte_level=True, special_tokens=("<|begin_of_text|>", "<|eot_id|>"))
        return start.train_from_iterator(texts, trainer)
    model, kind = io.BytesIO(), {"t5": "unigram", "sentencepiece_bpe": "bpe"}[family]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line for text in texts for line in text.splitlines()), model_writer=model,
        model_type=kind, vocab_size=3000, byte_fallback=family != "t5", minloglevel=2, num_threads=1,
        pad_id=0 if family == "t5" else -1, eos_id=1, unk_id=2, bos_id=-1 if family == "t5" else 3,
    )  # fmt: skip
    (folder / "old.model").write_bytes(model.getvalue())
    return Tokenizer.from_file(folder / "old.model")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_language_is_added_and_old_words_stay(family: str, shared_data, declarations, tmp_path) -> None:
    english = corpora.documents(shared_data, "en", 200_000)
    old = made(family, shared_data, english, tmp_path)
    lines = {name: declarations[name].splitlines() for name in ("cmn_hans", "hin", "yor")}
    learned = [line for each in lines.values() for i, line in enumerate(each) if i % 4]
    held_out = {name: each[::4] for name, each in lines.items()}
    change = extend(old, counted(old, learned), 400, keep=counted(old, english))
    check_proof(change, old)
    new = change.tokenizer
    assert [new.id_to_token(i) for i in range(old.n_ids)] == [old.id_to_token(i) for i in range(old.n_ids)]
    assert new.encode_arrow(english).equals(old.encode_arrow(english))
    texts = [*english[:20], *(line for each in held_out.values() for line in each)]
    ids = new.encode_arrow(texts).to_pylist()
    sizes = {
        name: [sum(map(len, each.encode_arrow(texts).to_pylist())) for each in (old, new)]
        for name, texts in held_out.items()
    }
    print(family, sizes)
    if family != "bert" and family != "t5":  # for these unknown words and characters become several tokens
        assert all(after < before for before, after in sizes.values())
    new.save(tmp_path / "tokenizer.json")
    if family in ("t5", "sentencepiece_bpe"):
        new.save(tmp_path / "new.model")
        assert sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "new.model")).encode(texts) == ids
    theirs = hf.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert [each.ids for each in theirs.encode_batch(texts, add_special_tokens=False)] == ids
    transformers = pytest.importorskip("transformers")
    fast = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    assert fast(texts, add_special_tokens=False)["input_ids"] == ids
