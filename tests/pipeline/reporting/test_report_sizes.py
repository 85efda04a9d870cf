# SPDX-License-Identifier: Apache-2.0
"""A report is small and readable, whatever the output holds."""

import json

from tests.plain_job import PlainJob
from tokenmill.pipeline import filenames
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
