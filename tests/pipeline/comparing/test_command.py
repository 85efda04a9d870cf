# SPDX-License-Identifier: Apache-2.0
"""`tokenmill compare` as it is typed: labels, what is read, exit codes, the page; and how small it stays."""

import json

import pytest

from tokenmill.pipeline import cli
from tokenmill.pipeline.comparing import page
from tokenmill.pipeline.comparing.comparison import compare
from tokenmill.pipeline.comparing.corpora import Corpus

EVIL = "<script>alert(1)</script>"


@pytest.fixture
def typed(tmp_path, tiny_vocab, tiny_corpus, capsys):
    """Returns a function that compares two vocabularies on a tiny corpus: exit code, stdout, stderr."""
    for name, tokens in (("old", tiny_vocab), ("new", [*tiny_vocab, "Ⰻ", "un##", "tokens"])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")

    def run(*arguments):
        files = [str(tmp_path / name / "vocab.txt") for name in ("old", "new")]
        on = [] if "--on" in arguments else ["--on", str(tiny_corpus)]
        code = cli.main(["compare", *files, *on, *arguments])
        return code, *capsys.readouterr()

    return run


def test_it_prints_tables_or_json(typed):
    code, out, _ = typed()
    assert code == 0
    for words in ("7 documents", "By source", "a.jsonl", "Vocabularies", "Words that gained"):
        assert words in out
    code, out, _ = typed("--json")
    report = json.loads(out)
    assert (code, report["format_version"]) == (0, 2)
    assert [each["label"] for each in report["tokenizers"]] == ["old/vocab.txt", "new/vocab.txt"]
    assert report["words"]["changes"]["new/vocab.txt"]["gained"][0]["word"] in ("Tokens,", "tokens!", "tokens.")
    assert out == typed("--json")[1]
    assert "speed" not in report
    timed = json.loads(typed("--json", "--speed")[1])["speed"]
    assert all(each["megabytes_per_second"] > 0 for each in timed.values())


def test_without_a_corpus_it_shows_the_code_points_whose_ids_differ(tmp_path, typed, capsys):
    """143 are punctuation in HF tokenizers 0.23 or 1.0 alone; `parity/test_unicode_versions.py` asks both."""
    bert = str(tmp_path / "old" / "vocab.txt")

    def compare_with(*arguments):
        return cli.main(["compare", bert, *arguments]), *capsys.readouterr()

    code, out, _ = compare_with(f"{bert}@1.0", "--json")
    report = json.loads(out)
    assert (code, report["code_points"], len(report["differing"])) == (0, 0x110000 - 0x800, 143)
    found = {each["code_point"]: each["texts"] for each in report["differing"]}
    assert list(found) == sorted(found, key=lambda name: int(name[2:], 16))
    assert found["U+2E52"] == {"a⹒b": {"vocab.txt": ["[UNK]"], "vocab.txt@1.0": ["a", "[UNK]", "[UNK]"]}}
    assert len(found["U+166D"]["a\u166db"]["vocab.txt"]) == 3
    lines = compare_with(f"{bert}@0.23", f"{bert}@1.0")[1].splitlines()
    assert len(lines) == 144
    assert lines[-1] == "143 of 1,112,064 code points have other ids in one of vocab.txt, vocab.txt@0.23, vocab.txt@1.0"
    assert "0 of 1,112,064 code points" in compare_with(f"{bert}@8")[1]
    for arguments, message in [
        ([f"{bert}@2.0"], "after '@' comes one of 0.23, 1.0, 8, 17, got '2.0'"),
        ([str(tmp_path / "new" / "vocab.txt")], "have different vocabularies, so their ids cannot be compared"),
        ([bert, "--speed"], "--speed: needs --on, a corpus or word counts"),
        ([], "takes two tokenizers or more, got 1"),
    ]:
        code, _, err = compare_with(*arguments)
        assert (code, message in err) == (2, True), err


def test_what_cannot_be_compared_is_a_mistake(typed, tmp_path):
    assert cli.main(["compare", "a.json", "--on", "x"]) == 2
    assert typed("--on", str(tmp_path / "none*.jsonl"))[0] == 2
    broken = tmp_path / "broken.json"
    broken.write_text("{}")
    assert cli.main(["compare", str(broken), str(broken), "--on", str(tmp_path)]) == 2


def test_no_text_becomes_a_tag(typed, tmp_path):
    (tmp_path / "evil").mkdir()
    rows = [{"id": EVIL, "text": f"tokens {EVIL} the unaffable", "lang": EVIL}, {"text": "玫瑰", "lang": "zh"}]
    (tmp_path / "evil/<b>.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    drawn_at = tmp_path / "page.html"
    code, *_ = typed("--on", str(tmp_path / "evil"), "--lang-field", "lang", "--html", str(drawn_at))
    drawn = drawn_at.read_text("utf-8")
    assert code == 0
    assert "<script" not in drawn
    assert "&lt;script&gt;" in drawn
    assert "://" not in drawn.replace("http://www.w3.org", "")


def test_a_page_says_who_makes_fewer_tokens_and_who_knows_too_little(tmp_path, tiny_vocab_file):
    (tmp_path / "text.jsonl").write_text('{"text": "mill mill the mill", "lang": "en"}\n{"text": "玫瑰", "lang": "zh"}')
    for name, words in (("letters", ["m", "##i", "##l", "t", "##h", "##e", "玫", "瑰"]), ("none", ["a"])):
        (tmp_path / f"{name}.txt").write_text("\n".join(["[UNK]", *words]), encoding="utf-8")
    paths = [str(tmp_path / f"{name}.txt") for name in ("letters", "none")]
    found = compare(paths, on=str(tmp_path / "text.jsonl"), lang_field="lang")
    tokens = [found["all"]["by"][f"{name}.txt"]["tokens"] for name in ("letters", "none")]
    assert tokens == [3 * 4 + 3 + 2, 6]
    drawn = page.page(found)
    assert "none.txt makes 65 % fewer tokens than letters.txt: from -73 % in en to +0 % in zh." in drawn
    assert "An unknown token counts as one" in drawn
    assert drawn.count('class="best"') == drawn.count('class="bad"') == 1
    assert drawn.index('class="best"') < drawn.index("<dt>letters.txt") < drawn.index('class="bad"')
    assert drawn.count('class="n bar faint"') == 4, "all cells of the one of which nothing is known, by two kinds"
    found["all"]["by"]["none.txt"]["unknown"] = 0.001
    assert "An unknown token counts as one" not in page.page(found)


def test_the_beginning_of_every_file_is_read(tmp_path):
    for name, n in (("a", 3), ("b", 400), ("c", 400)):
        (tmp_path / f"{name}.jsonl").write_text('{"text": "0123456789"}\n' * n)
    corpus = Corpus([str(tmp_path)], max_bytes=1000)
    n_documents = {}
    for read in corpus.documents():
        for name in read.groups["source"].to_pylist():
            n_documents[name] = n_documents.get(name, 0) + 1
    assert n_documents == {"a.jsonl": 3, "b.jsonl": 48, "c.jsonl": 49}
    assert not corpus.is_whole
    whole = Corpus([str(tmp_path)])
    assert sum(read.table.num_rows for read in whole.documents()) == 803
    assert whole.is_whole
