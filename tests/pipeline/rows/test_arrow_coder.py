# SPDX-License-Identifier: Apache-2.0
"""Batches cross a runner as Arrow IPC: same rows, and no more bytes than the rows have."""

import pickle
import subprocess
import sys

import cloudpickle
import pyarrow as pa
import pytest
from apache_beam import coders, typehints

from tokenmill.pipeline import schemas
from tokenmill.pipeline.rows.arrow_coder import RecordBatchCoder, decode_batch, encode_batch, register_batches


def documents(n: int, first: int = 0) -> pa.RecordBatch:
    rows = range(first, first + n)
    return pa.RecordBatch.from_pydict(
        {
            "doc_id": [f"d{i}" for i in rows],
            "text": [f"text of {i} é 字 " * 20 for i in rows],
            "piece": [0] * n,
            "offset": list(rows),
            "n_bytes": [10] * n,
        },
        schema=schemas.DOCUMENTS,
    )


register_batches()

TOKENS = pa.RecordBatch.from_pydict(
    {"doc_id": ["a", "b"], "input_ids": [[1, 2], []], "n_tokens": [2, 0], "n_oov": [0, 0]}, schema=schemas.TOKENS
)


@pytest.mark.parametrize("batch", [documents(0), documents(3), documents(9).slice(4, 2), TOKENS, TOKENS.slice(1)])
def test_round_trip(batch):
    again = decode_batch(encode_batch(batch))
    assert again.equals(batch)
    assert again.schema.equals(batch.schema)
    assert pickle.loads(pickle.dumps(batch)).equals(batch)
    assert cloudpickle.loads(cloudpickle.dumps(batch)).equals(batch)


@pytest.mark.parametrize("encode", [encode_batch, pickle.dumps, cloudpickle.dumps, coders.FastPrimitivesCoder().encode])
def test_a_slice_costs_its_own_rows(encode):
    batch = documents(20_000)
    assert batch.nbytes > 5_000_000
    part = batch.slice(10_000, 100)
    assert len(encode(part)) < 2 * part.nbytes < 100_000


def test_registered_for_declared_types():
    assert isinstance(coders.registry.get_coder(pa.RecordBatch), RecordBatchCoder)
    keyed = coders.registry.get_coder(typehints.Tuple[int, pa.RecordBatch])
    assert isinstance(keyed.coders()[1], RecordBatchCoder)
    assert not RecordBatchCoder().is_deterministic()


def test_importing_the_steps_registers_nothing(repository):
    program = """
import copyreg, pyarrow as pa, sys
from apache_beam.coders import registry
import tokenmill.pipeline.rows.yaml_transforms, tokenmill.pipeline.rows.ml_transform
from tokenmill.pipeline.rows import arrow_coder
assert pa.RecordBatch not in registry.custom_types and pa.RecordBatch not in copyreg.dispatch_table
class Own(arrow_coder.Coder): pass
registry.register_coder(pa.RecordBatch, Own)
arrow_coder.register_batches()
assert isinstance(registry.get_coder(pa.RecordBatch), Own) and pa.RecordBatch in copyreg.dispatch_table
"""
    subprocess.run([sys.executable, "-c", program], cwd=repository, check=True, timeout=120)


def test_an_element_that_is_no_batch_is_named():
    """Its step declares batches; Beam asks for the size of some elements before it sends any."""
    for work in (RecordBatchCoder().estimate_size, RecordBatchCoder().encode):
        with pytest.raises(
            TypeError, match=r"declared as pa\.RecordBatch is \{'text': 'a'\}, a dict; correct with_out"
        ):
            work({"text": "a"})
