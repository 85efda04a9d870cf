# SPDX-License-Identifier: Apache-2.0
"""What reads each format of `config.formats`: a stream of bytes, or a file of rows; and what writes a small file."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tokenmill.pipeline.config.formats import FORMATS
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.input.columnar import RowReader
from tokenmill.pipeline.input.cutting import StreamReader
from tokenmill.pipeline.input.delimited import Delimited, TabDelimited
from tokenmill.pipeline.input.jsonl import JsonArray, JsonLines
from tokenmill.pipeline.input.row_files import ArrowReader, ParquetReader
from tokenmill.pipeline.input.text import TextReader
from tokenmill.pipeline.input.wet import WetReader
from tokenmill.pipeline.splits import Piece

STREAM_READERS: Mapping[str, type[StreamReader]] = {
    "jsonl": JsonLines, "json": JsonArray, "csv": Delimited, "tsv": TabDelimited, "text": TextReader, "wet": WetReader,
}  # fmt: skip
ROW_READERS: Mapping[str, type[RowReader]] = {"parquet": ParquetReader, "arrow": ArrowReader}


def is_cut_by_bytes(piece: Piece, document: str) -> bool:
    """Returns whether records can be read by their byte ranges, without what comes before them in the file.

    Args:
      piece: the file.
      document: `input.document`.
    """
    return piece.is_read_as_stored and FORMATS[piece.format].separator(document) is not None


def write(name: str, records: Sequence[Mapping[str, Any]], config: InputConfig) -> bytes:
    """Returns a file of records in a format of `FORMATS`."""
    texts = [record[config.text_field] for record in records]
    out = io.BytesIO()
    if name == "json":
        return json.dumps(list(records), indent=1).encode()
    if name == "text":
        return "\n".join(texts).encode()
    if name == "parquet":
        pq.write_table(pa.table({config.text_field: texts}), out)
    elif name == "arrow":
        table = pa.table({config.text_field: texts})
        with pa.ipc.new_file(out, table.schema) as writer:
            writer.write_table(table)
    elif name in ("csv", "tsv"):
        lines = io.StringIO(newline="")
        delimiter = config.delimiter or {"csv": ",", "tsv": "\t"}[name]
        rows = csv.DictWriter(lines, list(records[0]), delimiter=delimiter, lineterminator="\n")
        rows.writeheader()
        rows.writerows(records)
        return lines.getvalue().encode()
    elif name == "wet":
        for record in records:
            block = str(record["text"]).encode()
            headers = {"WARC-Type": "conversion", **record, "Content-Length": len(block)}
            lines_of = "".join(f"{key}: {value}\r\n" for key, value in headers.items() if key != "text")
            out.write(f"WARC/1.0\r\n{lines_of}\r\n".encode() + block + b"\r\n\r\n")
    else:
        assert name == "jsonl", name
        return "".join(json.dumps(record) + "\n" for record in records).encode()
    return out.getvalue()
