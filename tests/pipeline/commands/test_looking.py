# SPDX-License-Identifier: Apache-2.0
"""`tokenmill inspect`, `viz` and `diff`: which rows they choose, in every format, and what they refuse."""

import io
import json
import random
from html.parser import HTMLParser

import numpy as np
import pytest

from tokenmill.pipeline import cli
from tokenmill.pipeline.looking import inspect
from tokenmill.tokenizer import BPE, Tokenizer, decoders
from tokenmill.tokenizer.models.bpe import BYTE_ALPHABET
from tokenmill.tokenizer.pre_tokenizers import ByteLevel

WORDS = ["the", "mill", "grinds", "text", "玫瑰花", "a", "ɸ", "tokens"]
N_DOCUMENTS = 60


@pytest.fixture
def texts():
    rng = random.Random(3)
    found = [" ".join(rng.choices(WORDS, k=rng.randrange(30))) for _ in range(N_DOCUMENTS)]
    found[17] = "the mill grinds a text into tokens , unaffable !"
    return found


@pytest.fixture
def make(tmp_path, tiny_vocab_file, texts):
    """Runs jobs over 60 documents in several splits."""

    def run(name="out", texts=texts, tokenizer=None, **output):
        folder = tmp_path / f"{name}-corpus"
        folder.mkdir()
        lines = [json.dumps({"id": f"d{i}", "text": text}) + "\n" for i, text in enumerate(texts) if text is not None]
        (folder / "a.jsonl").write_text("".join(lines), encoding="utf-8")
        config = {
            "input": {"paths": [str(folder / "*.jsonl")], "split_bytes": 1500},
            "tokenizer": {"file": str(tiny_vocab_file), **(tokenizer or {})},
            "output": {"path": str(tmp_path / name), "report": False, **output},
        }
        (tmp_path / f"{name}.yaml").write_text(json.dumps(config))
        assert cli.main(["tokenize", str(tmp_path / f"{name}.yaml"), "--workers", "1", "--mode", "inline"]) == 0
        return tmp_path / name

    return run


@pytest.fixture
def look(capsys):
    """Runs `inspect --json` and returns the rows."""

    def run(*words):
        capsys.readouterr()
        assert cli.main(["inspect", "--json", "--tokens", "1000", *map(str, words)]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


@pytest.fixture
def refused(capsys):
    """Runs a command that is refused, and returns its message."""

    def run(*words):
        capsys.readouterr()
        assert cli.main(list(map(str, words))) == 2
        out, err = capsys.readouterr()
        assert out == ""
        (line,) = (line for line in err.splitlines() if "kernels" not in line)
        return line

    return run


def all_rows(folder, suffix="parquet"):
    shards = sorted(folder.glob(f"tokens-*.{suffix}"))
    assert len(shards) > 2
    return [row for shard in shards for row in inspect.rows(str(shard), 0, 1000)]


FORMATS = ["parquet", "arrow", "mds", "tfrecord", "megatron", "memmap"]


def test_rows_are_chosen_from_all_shards_of_a_folder(make, look):
    out = make()
    rows = all_rows(out)
    lengths = sorted((row.n_tokens for row in rows), reverse=True)
    assert [row["n_tokens"] for row in look(out, "--longest", "--rows", 7)] == lengths[:7]
    unknown = sorted((row.n_oov for row in rows), reverse=True)
    assert [row["n_oov"] for row in look(out, "--most-unknown", "--rows", 9)] == unknown[:9]
    assert [row["doc_id"] for row in look(out, "--start", 30, "--rows", 20)] == [f"d{i}" for i in range(30, 50)]
    assert [row["doc_id"] for row in look(out, "--start", 58)] == ["d58", "d59"]
    assert look(out, "--start", 60) == []
    drawn = [[row["doc_id"] for row in look(out, "--random", "--seed", s, "--rows", 60)] for s in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert sorted(drawn[0]) == sorted(drawn[2]) == sorted(f"d{i}" for i in range(60))
    (row,) = look(out, "--grep", "unaff(able)?!$")
    assert row["doc_id"] == "d17"
    assert "".join(token["text"] for token in row["tokens"]).startswith("the mill grinds a text")
    (row,) = look(out, "--doc-id", "d17", "--longest")
    assert row["doc_id"] == "d17"
    assert look(out, "--doc-id", "d16", "--grep", "unaff") == []


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "tfrecord"])
@pytest.mark.parametrize("strategy", ["concatenate", "best_fit"])
def test_packed_rows_say_where_documents_begin(name, strategy, make, look, texts, tiny_vocab):
    out = make(format=[name], packing={"length": 24, "separator": "[SEP]", "strategy": strategy})
    found = look(out, "--rows", 1000)
    ids = {}
    for row in found:
        starts = [segment["first_token"] for segment in row["segments"]]
        assert starts[0] == 0
        tokens = [token["id"] for token in row["tokens"]]
        for segment, stop in zip(row["segments"], [*starts[1:], None], strict=True):
            ids.setdefault(segment["document"], []).extend(tokens[segment["first_token"] : stop])
        assert row["padding"] == "right"
    tokenizer = inspect.find_tokenizer(str(out / "x"))
    assert ids == {f"d{i}": [*tokenizer.encode(text, add_special_tokens=False).ids, 3] for i, text in enumerate(texts)}
    mine = look(out, "--doc-id", "d42")
    assert mine == [row for row in found if "d42" in [segment["document"] for segment in row["segments"]]]


def test_what_cannot_be_looked_at_is_one_message(make, refused, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "holds no manifest.json" in refused("inspect", tmp_path / "empty")
    assert "'(' is not a regular expression of RE2" in refused("inspect", tmp_path / "empty", "--grep", "(")
    out = make(format=["parquet", "arrow", "mds", "tfrecord", "megatron", "memmap"])
    rng = np.random.default_rng(0)
    for suffix in ("parquet", "arrow", "mds", "tfrecord", "bin", "ids.bin"):
        shard = sorted(out.glob(f"tokens-*1-*.{suffix}"))[0]
        data = shard.read_bytes()
        for damaged in (data[: len(data) // 2], b"", rng.bytes(300)):
            shard.write_bytes(damaged)
            assert shard.name in refused("inspect", shard, "--longest")
            if suffix == "parquet":
                assert shard.name in refused("inspect", out, "--longest")
        shard.write_bytes(data)
    manifest = json.loads((out / "manifest.json").read_text())
    (out / "manifest.json").write_text(json.dumps(manifest | {"format_version": 99}))
    assert "has format 99, but this TokenMill reads" in refused("inspect", out)
    (out / "manifest.json").write_text("{")
    assert "is not a manifest" in refused("inspect", out)


@pytest.fixture
def byte_level_file(tmp_path):
    """A byte-level tokenizer that knows every byte and nothing else."""
    vocabulary = {character: i for i, character in enumerate(BYTE_ALPHABET)}
    parts = {"pre_tokenizer": ByteLevel(add_prefix_space=False), "decoder": decoders.ByteLevel()}
    path = tmp_path / "bytes.json"
    Tokenizer(model=BPE(vocabulary, ()), **parts).save(path)
    return path


def test_viz_shows_a_text_as_several_tokenizers_cut_it(capsys, tiny_vocab_file, byte_level_file, tmp_path):
    assert (
        cli.main(["viz", "unaffable 玫\nɸ", "--tokenizer", str(tiny_vocab_file), "--tokenizer", str(byte_level_file)])
        == 0
    )
    assert capsys.readouterr().out.splitlines() == [
        f"{tiny_vocab_file}  7 tokens, 2.286 bytes per token, 1 unknown",
        "[CLS]┊ un┊aff┊able┊ 玫┊ [UNK]┊ [SEP]",
        f"{byte_level_file}  16 tokens, 1.0 bytes per token",
        "u┊n┊a┊f┊f┊a┊b┊l┊e┊ ┊‹e7›┊‹8e›┊‹ab›=玫┊\\n",
        "‹c9›┊‹b8›=ɸ",
    ]  # fmt: skip
    assert cli.main(["viz", "a mill", "--tokenizer", str(tiny_vocab_file), "--ids"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "[CLS]:2┊ a:6┊ mill:7┊ [SEP]:3"


def test_viz_reads_files_and_stdin_and_says_what_it_left_out(capsys, byte_level_file, tmp_path, monkeypatch):
    path = tmp_path / "text.txt"
    path.write_text("玫" * 400_000, encoding="utf-8")
    assert cli.main(["viz", str(path), "--tokenizer", str(byte_level_file), "--json"]) == 0
    out, err = capsys.readouterr()
    (view,) = json.loads(out)
    assert (view["tokens"], len(view["shown"]), view["tokens_left_out"]) == (1_048_575, 20_000, 1_028_575)
    assert err == f"tokenmill: {path}: only its first 1,048,576 bytes are looked at\n"
    monkeypatch.setattr(inspect, "MOST_BYTES", 2)
    for data, warning in ((b"ab", ""), (b"abc", "tokenmill: -: only its first 2 bytes are looked at\n")):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
        assert cli.main(["viz", "-", "--tokenizer", str(byte_level_file)]) == 0
        out, err = capsys.readouterr()
        assert (out.splitlines()[1], err) == ("a┊b", warning)


def test_a_page_of_viz_holds_text_as_text(capsys, tiny_vocab_file, byte_level_file, tmp_path):
    page = tmp_path / "v.html"
    text = "<script>alert(1)</script>\u202e\x1b &amp; 玫"
    words = ["viz", text, "--tokenizer", str(byte_level_file), "--tokenizer", str(tiny_vocab_file)]
    assert cli.main([*words, "--html", str(page)]) == 0
    assert capsys.readouterr().out == f"{page}\n"
    read = Reader(page.read_text(encoding="utf-8"))
    assert "script" not in read.tags
    spans = [dict(attributes) for tag, attributes in read.found if tag == "span"]
    assert cli.main([*words, "--json"]) == 0
    views = json.loads(capsys.readouterr().out)
    assert views[0]["tokens"] == len(text.encode())
    assert len(spans) == sum(view["tokens"] for view in views)
    assert spans[0]["title"] == "token 0: id 60, ordinary, bytes 3c, characters 0 to 1, word 0"
    assert {span["class"] for span in spans} == {f"token {k}" for k in ("ordinary", "partial", "special", "unknown")}
    shown = "".join(read.texts)
    assert "\u202e" not in shown
    assert "\x1b" not in shown
    assert r"\x1b" in shown


class Reader(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found, self.texts = [], []
        self.feed(text)
        self.close()
        self.tags = {tag for tag, _ in self.found}

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, attrs))

    def handle_data(self, data):
        self.texts.append(data)
