# SPDX-License-Identifier: Apache-2.0
"""Tokens at the ends of documents: where they stand, that the books know them, that they are checked before work."""

import pytest

from tests.plain_job import PlainJob
from tokenmill.pipeline.proving.from_input import verify_deep
from tokenmill.pipeline.proving.verify import verify

TEXTS = ["the mill grinds text " * (i % 5) for i in range(20)]
ENDS = {"prepend": "[MASK]", "append": "[PAD]"}


@pytest.fixture
def make(tmp_path, tiny_vocab_file):
    return lambda name="out", **sections: PlainJob(tmp_path, TEXTS, tiny_vocab_file, name, **sections)


def problems(job):
    return [*verify(str(job.output)).problems, *verify_deep(str(job.output), 1).problems]


def test_verify_finds_a_document_that_does_not_end_so(make):
    job = make(output=ENDS).run()
    forged = job.output / "manifest.json"
    forged.write_text(forged.read_text().replace('"append": [\n   0\n  ]', '"append": [\n   1\n  ]'))
    assert any("of document 0 must be 1, is 0" in problem for problem in verify(str(job.output)).problems)


def test_packing_without_an_end_of_documents_warns_before_work(make):
    (warning,) = make(output={"packing": {"length": 8}}).plan.warnings
    assert "no token says where one ends" in warning
    assert make(output={"packing": {"length": 8, "separator": "[SEP]"}}).plan.warnings == ()
    assert make(output={"packing": {"length": 8}, "append": "[SEP]"}).plan.warnings == ()
    assert make(output={"packing": {"length": 8}}, tokenizer={"add_special_tokens": True}).plan.warnings == ()
    assert make().plan.warnings == ()
