# SPDX-License-Identifier: Apache-2.0
"""The report of a job: its numbers add up and are those of the files, and a document cannot get out of its text."""

import html
import json
from collections import Counter
from html.parser import HTMLParser

import pyarrow as pa
import pytest
import yaml

from tests.plain_job import PlainJob
from tokenmill.pipeline import cli, filenames
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.config.sections import EXPAND
from tokenmill.pipeline.reporting import page

EVIL = "<script>alert(1)</script> \u202e </td> the mill & the rest"
TEXTS = [EVIL, "The mill grinds text into tokens.", "", "unaffable \u2c30 \u2c30 \u4e00", *["the text mill"] * 9]

SHAPES = {
    "plain": {},
    "cut": {"tokenizer": {"truncation": {"max_length": 4}}},
    "windows": {"tokenizer": {"truncation": {"max_length": 6, "overflow": "rows", "stride": 2}}},
    "packed": {"output": {"packing": {"length": 16, "separator": "[SEP]"}}},
    "special": {"tokenizer": {"add_special_tokens": True}},
    "appended": {"output": {"append": "[SEP]"}},
    "languages": {"languages": {}},
    "steps": {"normalize": ["default"], "spans": [{"token": "into", "find": "url"}]},
}


@pytest.fixture(scope="module", params=SHAPES)
def job(request, tmp_path_factory, tiny_vocab):
    """A finished job over `TEXTS` and two records that cannot be used."""
    folder = tmp_path_factory.mktemp("job")
    vocab = folder / "vocab.txt"
    vocab.write_text("".join(f"{token}\n" for token in tiny_vocab), encoding="utf-8")
    PlainJob(folder, TEXTS, vocab, name="unused")
    first = min((folder / "corpus").glob("*.jsonl"))
    first.write_text(first.read_text(encoding="utf-8") + '\nno json <img src="x">\n{"text": null}', encoding="utf-8")
    made = PlainJob(folder, [], vocab, **json.loads(json.dumps(SHAPES[request.param]))).run()
    made.shape = request.param
    return made


def test_the_flow_adds_up_and_has_the_numbers_of_the_manifest(job):
    found = page.gather(str(job.output))
    totals = job.json("manifest.json")["totals"]
    for stage in found["flow"]:
        assert stage["total"] == sum(stage["parts"].values()), stage
    by_name = {stage["what"]: stage["total"] for stage in found["flow"]}
    assert by_name["bytes read"] == totals["n_bytes"]
    assert by_name["records read"] == totals["n_records"] == len(TEXTS) + 2
    made = totals["n_text_tokens"] + totals["n_special_tokens"] + totals["n_added_tokens"]
    assert by_name["tokens made"] == made == totals["n_tokens"] + totals["n_cut_tokens"]
    if "packing" in totals:
        assert by_name["positions in packed sequences"] == 16 * totals["packing"]["n_sequences"]
    if "windows" in totals:
        assert by_name["tokens of windows"] == totals["shard_tokens"]
        windows = job.json("stats.json")["windows"]
        n_tokens = totals["shard_tokens"] - windows["special"]
        assert windows["share_of_tokens_repeated"] == windows["repeated"] / n_tokens > 0


def test_a_report_shows_itself_in_a_notebook_in_a_frame_that_nothing_leaves(job):
    report = page.read_report(str(job.output))
    assert report["stats"] == job.json("stats.json")
    shown = report._repr_html_()
    opened = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: opened.append((tag, dict(attributes)))
    parser.feed(shown)
    ((tag, attributes),) = opened
    assert (tag, attributes["sandbox"]) == ("iframe", "")
    assert attributes["srcdoc"] == page.render(report)


def test_files_have_the_tokens_of_their_documents(job):
    expected = Counter()
    for path in sorted((job.output.parent / "corpus").glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if "no json" not in line and (text := json.loads(line)["text"]) is not None:
                expected[path.name] += len(encoded(job, text))
    read = {each["name"]: each["read"] for each in job.json("manifest.json")["inputs"]}
    assert {name: counts.get("n_text_tokens", 0) for name, counts in read.items()} == expected
    found = page.gather(str(job.output))
    assert sum(row["tokens"] for row in found["sources"]["rows"]) == job.json("stats.json")["tokens"]
    drawn = page.render({**found, "languages": None})
    assert "Cost by file" in drawn
    assert "a file whose band widens" in drawn
    many = page.render({**found, "languages": None, "sources": {**found["sources"], "n_all": 30_000}})
    assert " more files." in many
    assert "whose band widens" not in many
    assert "source" not in many.partition("</style>")[2].partition("Where everything went")[0]


def encoded(job, text):
    """Returns the tokens of a document's text, whatever truncation keeps of them."""
    if not job.config.text:
        return job.tokenizer.encode_bare([text])[0].as_py()
    wrapped = job.config.text.wrap(job.tokenizer)
    return wrapped.encode_prepared(wrapped.prepare(pa.array([text])))[0].as_py()


def test_a_page_asks_for_nothing_runs_nothing_and_is_the_same_again(job):
    found = page.gather(str(job.output))
    text = page.render(found)
    assert text == page.render(page.gather(str(job.output)))
    tags, attributes = set(), []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: (tags.add(tag), attributes.extend(attrs))
    parser.feed(text)
    assert tags.isdisjoint({"script", "img", "link", "iframe", "object", "embed", "base", "form", "use", "image"})
    assert all(value.startswith("#") for name, value in attributes if name in ("href", "src", "xlink:href"))
    assert not [name for name, _ in attributes if name.startswith("on")]
    assert "url(" not in text
    assert "@import" not in text
    assert "\u202e" not in text
    assert len(text) < 2_000_000
    assert 'class="sum wrong"' not in text


def shown_config(text):
    return yaml.safe_load(html.unescape(text.partition("<pre>")[2].partition("</pre>")[0]))


def test_the_config_of_a_page_runs(job):
    """It is what someone would write: without defaults, with the paths, which `clock.json` has."""
    run = {**CLOCK, "config": job.config.given()}
    text = page.render(page.gather(str(job.output)) | {"clock": run})
    shown = shown_config(text)
    assert Config.model_validate(shown, context=EXPAND) == job.config
    assert {*shown} <= {"input", "tokenizer", "output", *SHAPES[job.shape]}
    assert f"<h1>{job.output.name}</h1>" in text
    assert f"input {job.config.input.paths[0]}; tokenizer {job.config.tokenizer.file}, digest" in text


CLOCK = {
    "started": "2026-01-01T00:00:00+00:00", "seconds": 5.0, "stages": [], "hosts": 0, "workers": 0,
    "splits": {"planned": 1, "timed": 0, "earlier": 0}, "cpu_seconds": 0.0, "seconds_of_splits": {}, "throughput": [],
    "slowest": [],
}  # fmt: skip


@pytest.mark.parametrize("asked", [True, False])
def test_a_job_draws_its_report_unless_told_not_to(asked, tmp_path, tiny_corpus, tiny_vocab_file, capsys):
    for name in ("one", "other"):
        config = tmp_path / f"{name}.yaml"
        config.write_text(
            f"input: {{paths: [{tiny_corpus}/*.jsonl], on_damage: warn}}\ntokenizer: {{file: {tiny_vocab_file}}}\n"
            f"output: {{path: {tmp_path / name}, report: {str(asked).lower()}}}\n",
            encoding="utf-8",
        )
        assert cli.main(["tokenize", str(config), "--workers", "1"]) == 0
        assert (tmp_path / name / filenames.REPORT).exists() == asked
        assert json.loads((tmp_path / name / filenames.CLOCK).read_text())["splits"]["timed"] == 1
        assert filenames.CLOCK not in (tmp_path / name / "manifest.json").read_text()
    if asked:
        header = f"; tokenizer {tiny_vocab_file}, digest "
        assert header in (tmp_path / "one" / filenames.REPORT).read_text(encoding="utf-8")
        ours, theirs = (page.gather(str(tmp_path / name)) for name in ("one", "other"))
        assert "Time" in page.render(ours)
        assert page.render(ours | {"clock": None}) == page.render(theirs | {"clock": None})
        assert cli.main(["count", str(config), "--workers", "1", "--overwrite"]) == 0
        assert not (tmp_path / "other/report.html").exists(), "a new job removes the page of the one before"
    capsys.readouterr()


def test_what_cannot_be_reported_is_one_message(tmp_path, tiny_vocab_file, capsys):
    assert cli.main(["report", str(tmp_path)]) == 2
    assert "holds no manifest.json" in capsys.readouterr().err
    output = PlainJob(tmp_path, TEXTS, tiny_vocab_file).run().output
    (output / filenames.STATS).write_text('{"documents": 1}', encoding="utf-8")
    assert cli.main(["report", str(output)]) == 2
    assert "stats.json" in capsys.readouterr().err
