# SPDX-License-Identifier: Apache-2.0
"""TokenMill's steps for your own pipelines. In: PCollections of rows or Arrow batches. Out: the same with more fields.

    with beam.Pipeline() as pipeline:
        texts = pipeline | beam.Create([beam.Row(id=1, text="a text"), beam.Row(id=2, text="and another")])
        tokens = texts | Tokenize("vocab")  # beam.Row(id=1, text="a text", input_ids=[...], n_tokens=2, n_oov=0)

An element is a `beam.Row`, a NamedTuple, a dataclass, a dict or a string; or a `pa.RecordBatch` of many rows, which
costs least, because no Python object is made for a document; or a `pa.Table`, of which record batches come out.

Rows are gathered into columns of about `batching.BATCH_CHARACTERS`, go through the kernels together, and come out in
their order with their own timestamps and windows.

An element that cannot be used ends the pipeline with an error that shows it, or goes to a second output:

    good, bad = texts | Tokenize("vocab").with_exception_handling()  # bad: beam.Row(element, msg, stack)

These steps do not write what the jobs write. A job's shards are the same bytes wherever it ran, which needs splits, a
ledger and a manifest; rows of a PCollection have no order that could be kept.
"""
