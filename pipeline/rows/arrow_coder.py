# SPDX-License-Identifier: Apache-2.0
"""How Arrow batches go from step to step of a user's own pipeline: each as an Arrow IPC stream.

Beam has no coder for Arrow and falls back to pickle, and a pickled slice carries the whole buffer that it was cut from:
a batch of 0.4 MB sliced from 100 MB takes 100 MB in every shuffle. Two things prevent that:

- a coder, which Beam picks for a PCollection whose type is declared (`.with_output_types(pa.RecordBatch)`, also inside
  `tuple[int, pa.RecordBatch]`);
- a `copyreg` reducer, for every place where a batch is pickled anyway: undeclared types, closures, side inputs.

Steps for batches call `register_batches` where they are added to a pipeline and where a worker sets them up. It leaves
a coder or reducer that somebody else has registered as it is; importing this module registers neither.
"""

import copyreg
from collections.abc import Callable

import pyarrow as pa
from apache_beam.coders import Coder
from apache_beam.coders.typecoders import registry


def encode_batch(batch: pa.RecordBatch) -> bytes:
    """Returns `batch` as one Arrow IPC stream, schema included; a slice costs its own rows only.

    Uncompressed: locally a codec costs more than the bytes it saves.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def decode_batch(data: bytes) -> pa.RecordBatch:
    """Returns the batch in `data`; its columns alias `data`."""
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_next_batch()


class RecordBatchCoder(Coder):
    """Beam's view of `encode_batch` and `decode_batch`.

    Not deterministic: equal batches may differ in their padding and validity buffers, so a batch cannot be a key.
    """

    def encode(self, value: pa.RecordBatch) -> bytes:
        """Returns the Arrow IPC stream of `value`."""
        return encode_batch(_checked(value))

    def decode(self, encoded: bytes) -> pa.RecordBatch:
        """Returns the batch in an Arrow IPC stream."""
        return decode_batch(encoded)

    def is_deterministic(self) -> bool:
        """Returns False: equal batches may encode differently."""
        return False

    def estimate_size(self, value: pa.RecordBatch) -> int:
        """Returns the bytes of the rows of `value`, whatever buffers it is cut from."""
        return int(_checked(value).nbytes)

    def to_type_hint(self) -> type[pa.RecordBatch]:
        """Returns the type this coder is for."""
        return pa.RecordBatch


def _checked(value: pa.RecordBatch) -> pa.RecordBatch:
    if not isinstance(value, pa.RecordBatch):
        raise TypeError(
            f"an element that is declared as pa.RecordBatch is {value!r:.80}, a {type(value).__name__}; correct "
            "with_output_types of the step that gives it"
        )
    return value


def _reduce(batch: pa.RecordBatch) -> tuple[Callable[[bytes], pa.RecordBatch], tuple[bytes]]:
    return decode_batch, (encode_batch(batch),)


def register_batches() -> None:
    """Makes Beam and pickle send batches as Arrow IPC streams, in this process, unless they have another way."""
    if pa.RecordBatch not in registry.custom_types:
        registry.register_coder(pa.RecordBatch, RecordBatchCoder)
    if pa.RecordBatch not in copyreg.dispatch_table:
        copyreg.pickle(pa.RecordBatch, _reduce)
