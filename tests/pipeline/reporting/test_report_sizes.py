# SPDX-License-Identifier: Apache-2.0
"""A report is small and readable, whatever the output holds: nothing, rejects only, or very much of everything."""

import json

from tests.plain_job import PlainJob
from tokenmill.pipeline import filenames
from tokenmill.pipeline.books import manifest
from tokenmill.pipeline.reporting import page

LIMIT = 2_000_000


def rendered(output):
    """Returns the page of a folder, which is small and has no sum that is wrong."""
    found = page.gather(str(output))
    text = page.render(found)
    assert len(text.encode()) < LIMIT
    assert 'class="sum wrong"' not in text
    return text


def test_ten_thousand_languages(tmp_path, tiny_vocab_file):
    job = PlainJob(tmp_path, ["the mill", "玫瑰花"], tiny_vocab_file, languages={"rules": "builtin"}).run()
    stats = job.json(filenames.STATS)
    one = stats["languages"]["by_code"]["zh"]
    of_many = {f"l{i}": one | {"documents": i, "premium": 1 + i / 10_000} for i in range(10_000)}
    stats["languages"]["by_code"] = of_many
    step = {**stats["text"]["steps"][0], "documents_changed": 1}
    stats["text"]["steps"] = [step | {"step": f"l{i}.{'x' * 1000}"} for i in range(10_000)]
    stats["text"]["spans"] = {f"<{i}>": i for i in range(10_000)}
    (job.output / filenames.STATS).write_text(json.dumps(stats))
    text = rendered(job.output)
    assert f"{10_000 - page.TOP:,} more languages are not shown." in text
    assert "l9999" in text
    assert "l9000" not in text
    assert "9,950 more steps" in text


class Million:
    """A million files of input, each made when it is looked at."""

    def __len__(self):
        return 1_000_000

    def __iter__(self):
        for i in range(1_000_000):
            yield {
                "name": f"{i:07d}.jsonl",
                "n_bytes": i,
                "read": {"n_documents": 1, "n_text_tokens": 2, "n_tokens": 2},
            }


def test_a_million_sources_and_names_of_any_length(tmp_path, tiny_vocab_file, monkeypatch):
    job = PlainJob(tmp_path, ["the " + "y" * 3000, "the mill"], tiny_vocab_file).run()
    found = manifest.read(str(job.output))
    found["inputs"] = Million()
    found["config"]["input"]["paths"] = [f"{i:07d}.jsonl" for i in range(1_000_000)]
    found["config"]["languages"] = {"rules": {f"l{i}": ["x" * 10_000] for i in range(10_000)}}
    monkeypatch.setattr(manifest, "read", lambda _: found)
    text = rendered(job.output)
    assert "y" * 300 + "..." in text
    assert "y" * 301 not in text
    assert "1,000,000 files read" in text
    assert f"{1_000_000 - page.TOP:,} more files, smaller ones, are not shown." in text
    assert "0999999.jsonl" in text
    assert "... and 999,900 more" in text
    assert "9,900 more" in text
