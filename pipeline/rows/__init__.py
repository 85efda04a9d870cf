# SPDX-License-Identifier: Apache-2.0
"""TokenMill's steps in pipelines of your own. In: PCollections of rows, or of columns. Out: the same with more fields.

    with beam.Pipeline() as pipeline:
        texts = pipeline | beam.Create([beam.Row(id=1, text="a text"), beam.Row(id=2, text="and another")])
        tokens = texts | Tokenize("vocab")  # beam.Row(id=1, text="a text", input_ids=[...], n_tokens=2, n_oov=0)

An element is a `beam.Row`, a NamedTuple, a dataclass, a dict or a string; or a `pa.RecordBatch` of many, which costs
least, because nothing is made for each document. Rows are gathered into columns of at most `batching.BATCH_CHARACTERS`,
go through the kernels together, and come out in their order with their own timestamps and windows.

What cannot be used ends the pipeline with an error that shows the element, or goes to an output of its own:

    good, bad = texts | Tokenize("vocab").with_exception_handling()  # bad: beam.Row(element, msg, stack)

These steps do not write what the jobs write. A job's shards are the same bytes wherever it ran, which needs splits, a
ledger and a manifest; rows of a PCollection have no order that could be kept.
"""
