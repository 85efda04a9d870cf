# SPDX-License-Identifier: Apache-2.0
"""Traces a row of a shard, or one of its tokens, back to the documents, and to the bytes they were read from.

training step --explain_step--> row of a mixture or packing --locate--> rows of shards, and which of their tokens
row of a shard, token --trace--> documents, files, bytes
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from tokenmill.pipeline import storage
from tokenmill.pipeline.books import ledger, parts
from tokenmill.pipeline.books.manifest import read as read_manifest
from tokenmill.pipeline.books.manifest import split_ids
from tokenmill.pipeline.columns import whole
from tokenmill.pipeline.config.formats import FORMATS
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.data import index
from tokenmill.pipeline.data.dataset import Dataset
from tokenmill.pipeline.data.mixture import Mixture
from tokenmill.pipeline.data.packed import Packed
from tokenmill.pipeline.data.rows import Rows, Selection
from tokenmill.pipeline.data.samples import Samples
from tokenmill.pipeline.input import archives
from tokenmill.pipeline.input.readers import ROW_READERS, is_cut_by_bytes
from tokenmill.pipeline.input.reading import Wanted, read_split
from tokenmill.pipeline.looking import inspect, selecting
from tokenmill.pipeline.output import arranging
from tokenmill.pipeline.output.writers.base import spell_nanoseconds
from tokenmill.pipeline.proving.from_input import config_of
from tokenmill.pipeline.proving.report import VerifyReport, check_unchanged
from tokenmill.pipeline.splits import Piece, Split
from tokenmill.pipeline.tokenizing.chat import ChatTexts
from tokenmill.tokenizer import Encoding, Tokenizer

_SHOWN = 60
"""How many characters of text are shown on either side of a token; without a token, twice as many in all."""


def find_row(output: str, row: int) -> tuple[str, str, int]:
    """Returns the shard, in the first format, that has row `row` of all shards together, and the row's number in it.

    Returns:
      The folder of the shard, which is `output`, or one of the folders of an output in parts; its name; the number.

    Raises:
      ValueError: if there are fewer rows.
    """
    before = 0
    for folder in parts.folders_of(output):
        for record in read_manifest(folder)["shards"]:
            if row < before + record["rows"]:
                return folder, record["file"], row - before
            before += record["rows"]
    raise ValueError(f"there is no row {row} in {output!r}: its shards have {before} rows, counted from 0")


def trace(output: str, shard: str, row: int, token: int | None = None) -> dict[str, Any]:
    """Returns where a row, or a token of it, came from.

    The source is read again if it is still there and has not changed. A token is found in the text of its document by
    encoding the text once more.

    Args:
      output: a finished output folder.
      shard: name of a file with rows in it, of any format.
      row: the row of the shard, from 0.
      token: its position in the row as it is stored, from 0; None for all documents of the row.

    Returns:
      Plain JSON, except for values of `fields`: `shard`, `row`, `token`, `token_id`, and `documents`. With `token`
      there is one document, or none for padding and for the template's tokens around windows.

      Each document has `doc_id`; the kept `fields`; `number` in the shard; `source` (`name`, `path`, `format`,
      `offset`, `n_bytes`); `n_tokens`; `first`, its first token that is in the row; `start`, where in the row that is;
      `size`, how many of its tokens are there; and `text` or `why_no_text`.

      The document of a token also has `at`: `token`, its position in the document, None for a separator; `characters`
      and `bytes` of the text, None if no text gave the token; `source_bytes`, its place in the source, if the source
      contains the text as it is. Of a conversation, `text` is then what the chat template made of it, and `at` has
      `message` and `role` of the message that wrote the token, None for the template, and `trained`.

    Raises:
      ValueError: if the folder, the shard, the row or the token is not there.
      OSError: if a file of the output cannot be read.
    """
    manifest = read_manifest(output)
    listed = selecting.shard_of(output, shard, manifest)
    stored, table = _stored(output, manifest, listed, shard, row, token)
    config, tokenizer = config_of(output, manifest)
    documents = []
    for number, start, first, size in listed.pieces(stored):
        if token is not None and not start <= token < start + size:
            continue
        place = {"number": number, "start": start, "first": first, "size": size}
        described = _describe(output, manifest, config, table.slice(number, 1))
        documents.append({**described, **place, "fields": described["fields"] | stored.fields})
    traced: dict[str, Any] = {"shard": shard, "row": row, "token": token, "documents": documents}
    if token is None:
        return traced
    traced["token_id"] = stored.ids[token]
    traced["token_text"] = tokenizer.id_to_token(stored.ids[token])
    for document in documents:
        n_before = document["first"] + token - document["start"]
        ids = stored.ids[document["start"] : document["start"] + document["size"]]
        document["at"] = _locate(config, tokenizer, document, n_before, ids)
    return traced


def _stored(
    output: str, manifest: Mapping[str, Any], listed: selecting.Shard, shard: str, row: int, token: int | None
) -> tuple[inspect.Row, pa.Table]:
    """Returns a row as it is stored, and the table of its shard's documents; arguments and errors as of `trace`."""
    if listed.record is None:
        shards = manifest["shards"]
        known = f"; its shards are named like {shards[0]['file']!r}" if shards else "; it holds no shards"
        raise ValueError(f"the manifest lists no shard {shard!r}{known}")
    if not 0 <= row < listed.record["rows"]:
        raise ValueError(f"{shard}: there is no row {row}: it has {listed.record['rows']} rows, counted from 0")
    (stored,) = inspect.rows(storage.join(output, shard), row, 1)
    if token is not None and not 0 <= token < len(stored.ids):
        raise ValueError(f"{shard}: row {row} has no token {token}: it has {len(stored.ids)}, counted from 0")
    if listed.documents is None:
        raise ValueError(f"the manifest lists no table of documents for {shard}")
    return stored, listed.documents


def _describe(output: str, manifest: Mapping[str, Any], config: Config, table: pa.Table) -> dict[str, Any]:
    """Returns what is known about one document, from `table`, which is its row in the table of documents."""
    (batch,) = table.combine_chunks().to_batches()
    (row,) = spell_nanoseconds(batch).to_pylist()
    if not 0 <= row["input_file"] < len(manifest["inputs"]):
        raise ValueError(
            f"document {row['doc_id']!r} comes from none of the {len(manifest['inputs'])} files of the manifest"
        )
    piece = next((each for each in _pieces(output, manifest) if each.file == row["input_file"]), None)
    source = {name: manifest["inputs"][row["input_file"]][name] for name in ("name", "format")}
    source |= {"offset": row["input_offset"], "n_bytes": row["input_bytes"]}
    kept = {field.name: row[field.name] for field in table.schema if field.nullable}
    described = {"doc_id": row["doc_id"], "source": source, "n_tokens": row["n_tokens"], "fields": kept}
    if piece is None:
        return {**described, "why_no_text": "the ledger does not say where its file is"}
    source["path"] = piece.path
    try:
        text = _read_again(output, piece, config.input, row["input_offset"], row["input_bytes"], row["doc_id"])
    except (OSError, ValueError) as error:
        return {**described, "why_no_text": str(error)}
    source["text_offset"] = _text_offset(piece, row["input_offset"], row["input_bytes"], text)
    return {**described, "text": text}


def _pieces(output: str, manifest: Mapping[str, Any]) -> Iterator[Piece]:
    for split_id in split_ids(manifest):
        entry = ledger.LedgerEntry.read(output, split_id)
        if entry is not None:
            yield from entry.pieces


def _read_again(output: str, piece: Piece, config: InputConfig, offset: int, n_bytes: int, doc_id: str) -> str:
    """Returns the text of a document, read from its file.

    Raises:
      ValueError: if the file is gone or has changed, or holds another document at that place.
      OSError: if it cannot be read.
    """
    check_unchanged(piece, output)
    config = config.of(piece.source)
    if FORMATS[piece.format].has_rows:
        group = _row_group(piece, offset)
        piece = dataclasses.replace(piece, start=group, stop=group + 1)
    elif is_cut_by_bytes(piece, config.document):
        piece = dataclasses.replace(piece, start=offset, stop=offset + n_bytes)
    whole = config.model_copy(update={"sample": None})
    for batch in read_split(Split(0, "", (piece,)), whole, wanted=Wanted("trace", {0: np.array([offset])})):
        if batch.documents.num_rows:
            if batch.documents.column("doc_id")[0].as_py() != doc_id:
                break
            return str(batch.documents.column("text")[0].as_py())
    raise ValueError(f"{piece.path!r} holds another document there")


def _row_group(piece: Piece, row: int) -> int:
    with archives.open_piece(piece) as handle, whole(piece.path):
        counts = ROW_READERS[piece.format].count_rows(handle)
    for group, end in enumerate(itertools.accumulate(counts)):
        if 0 <= row < end:
            return group
    raise ValueError(f"{piece.path!r} has no row {row}")


def _text_offset(piece: Piece, offset: int, n_bytes: int, text: str) -> int | None:
    """Returns where a text begins in its file; None if that has it in another form, as escaped or compressed."""
    if FORMATS[piece.format].has_fields or not piece.is_read_as_stored:
        return None
    with archives.open_piece(piece) as handle:
        handle.seek(offset)
        at = handle.read(n_bytes).find(text.encode())
    return offset + at if at >= 0 else None


def _locate(
    config: Config, tokenizer: Tokenizer, document: dict[str, Any], number: int, ids: list[int]
) -> dict[str, Any]:
    """Returns the place of a token in its document's text; `ids` are the ids of the document in the row."""
    if number >= document["n_tokens"]:
        return {"token": None, "why_no_place": "it is the separator behind the document"}
    at: dict[str, Any] = {"token": number, "characters": None, "bytes": None}
    if "text" not in document:
        return {**at, "why_no_place": "the text cannot be read again"}
    if config.output.fim is not None:
        return {**at, "why_no_place": "output.fim made another text of this one"}
    chat, layout = None, arranging.lay_out(config, tokenizer).document
    if config.input.is_chat:
        texts = ChatTexts.of(config, tokenizer)
        try:
            chat = texts.mark(document["text"])
        except ValueError as error:
            return {**at, "why_no_place": f"the conversation is not trained on now: {error}"}
        document["text"], tokenizer = chat[1].text, texts.tokenizer
    text = document["text"]
    encoding = _encode_bare(config, tokenizer, text)
    n_text = len(encoding.ids)
    n_kept = int(layout.kept(np.array([n_text]))[0])
    n_cut = n_text - n_kept if layout.truncation is not None and layout.truncation.direction == "left" else 0
    offsets = [(0, 0)] * layout.before.size + encoding.offsets[n_cut : n_cut + n_kept] + [(0, 0)] * layout.after.size
    expected = [*layout.before.tolist(), *encoding.ids[n_cut : n_cut + n_kept], *layout.after.tolist()]
    first_of_row, n = document["first"], min(len(ids), document["n_tokens"] - document["first"])
    if len(expected) != document["n_tokens"] or expected[first_of_row : first_of_row + n] != ids[:n]:
        return {**at, "why_no_place": "the text gives other tokens now"}
    start, stop = offsets[number]
    if start == stop:
        return {**at, "why_no_place": "no character of the text gave it"}
    in_bytes = [len(text[:start].encode()), len(text[:stop].encode())]
    at |= {"characters": [start, stop], "bytes": in_bytes}
    if chat is not None:
        conversation, marked = chat
        message = next((i for first, last, i in marked.messages if first < stop and start < last), None)
        role = conversation.messages[message]["role"] if message is not None else None
        is_trained = number not in (0, first_of_row) and any(
            first < stop and start < last for first, last in marked.spans
        )
        return {**at, "message": message, "role": role, "trained": is_trained}
    text_offset = document["source"]["text_offset"]
    if text_offset is not None:
        at["source_bytes"] = [text_offset + each for each in in_bytes]
    return at


def _encode_bare(config: Config, tokenizer: Tokenizer, text: str) -> Encoding:
    """Encodes a text without the tokens that its row has around it, and without cutting it."""
    tokenizer = tokenizer.replace(truncation=None, padding=None)
    if config.text:
        return config.text.wrap(tokenizer).encode(text, add_special_tokens=False)
    return tokenizer.encode(text, add_special_tokens=False)


def excerpt(document: Mapping[str, Any]) -> tuple[str, str, str]:
    """Returns the text of a document in three parts: before the token, the token, after it; "" where not known."""
    text, at = document.get("text", ""), document.get("at") or {}
    if at.get("characters") is None:
        return text[: 2 * _SHOWN], "", ""
    start, stop = at["characters"]
    return text[max(0, start - _SHOWN) : start], text[start:stop], text[stop : stop + _SHOWN]


def locate(rows: Rows, row: int) -> Iterator[dict[str, Any]]:
    """Yields the rows of shards that a row is made of, from left to right.

    Yields:
      `output`, `shard` and `row` in it; `start`, where in the row that was asked for its tokens are, `first`, which of
      them is there, and `size`, how many are, separator not included; and `through`, from the outside in, `index`,
      `source` and `row` of that for every mixture and packing in between.

    Raises:
      IndexError: if there is no such row.
      TypeError: if rows are none of TokenMill's.
    """
    if isinstance(rows, Dataset):
        (row,) = rows.checked([row]).tolist()
        shard = int(rows.starts.searchsorted(row, "right")) - 1
        size = int(rows.with_columns(["n_tokens"])[row]["n_tokens"])
        name = rows.files["file"][shard].as_py()
        found = {"output": rows.name, "shard": name, "row": row - int(rows.starts[shard])}
        yield {**found, "start": 0, "first": 0, "size": size, "through": []}
    elif isinstance(rows, Selection):
        yield from locate(rows.rows, int(rows.numbers[row]))
    elif isinstance(rows, Mixture):
        (source,), (number,) = (each.tolist() for each in rows.places([row]))
        name = list(rows.sources)[source]
        step = {"index": rows.name, "source": name, "row": number}
        yield from ({**each, "through": [step, *each["through"]]} for each in locate(rows.sources[name], number))
    elif isinstance(rows, Packed):
        start, (name, source) = 0, next(iter(rows.sources.items()))
        for document, first, size in rows.pieces(row).tolist():
            step = {"index": rows.name, "source": name, "row": document}
            for each in locate(source, document):
                n = min(size, each["size"] - first)
                yield {**each, "start": start, "first": first, "size": n, "through": [step, *each["through"]]}
            start += size
    else:
        raise TypeError(f"{rows.name} is no output, mixture or packing: nothing leads on from its rows")


def explain(rows: Rows, row: int, token: int | None = None) -> list[dict[str, Any]]:
    """Returns where a row, or a token of it, came from: for each part what `locate` and `trace` say of it.

    Args:
      rows: the rows.
      row: the number of one.
      token: its position in the row, from 0; None for the whole row. There is no part for a separator or padding that
        a packing puts there.

    Raises:
      IndexError, TypeError: see `locate`.
      ValueError, OSError: see `trace`.
    """
    parts = []
    for part in locate(rows, row):
        within = None
        if token is not None:
            if not part["start"] <= token < part["start"] + part["size"]:
                continue
            within = token - part["start"] + part["first"]
        parts.append({**part, **trace(part["output"], part["shard"], part["row"], within)})
    return parts


def is_index(path: str) -> bool:
    """Returns whether a folder is a mixture or a packing."""
    return index.kind_of(path) is not None


def verify_index(path: str) -> VerifyReport:
    """Proves a mixture or a packing: its files, those of all its sources, and that its numbers are those of their rows.

    Raises:
      OSError: if it cannot be read at all.
    """
    report = VerifyReport()
    try:
        rows = index.open_rows(path, check="contents")
        assert isinstance(rows, index.Indexed)
        report.problems += rows.problems()
        files = [*rows.record["files"].values()]
        files += [each for source in index.origins(rows) for each in source.files.to_pylist()]
        report.n_files, report.n_bytes = len(files), sum(each["n_bytes"] for each in files)
        report.n_rows, report.n_tokens = len(rows), rows.n_tokens
    except (ValueError, FileNotFoundError) as error:  # a lost file is found wrong, as a changed one is
        report.problems.append(str(error))
    return report


def explain_row(path: str, row: int, token: int | None) -> list[dict[str, Any]]:
    """Returns where a row of an index came from; see `explain`.

    Raises:
      ValueError: if there is no such row, or the index, or what it is made over, is not as it says.
      OSError: if it cannot be read.
    """
    try:
        return explain(index.open_rows(path), row, token)
    except IndexError as error:
        raise ValueError(str(error)) from error


def explain_step(samples: Samples, step: int, row: int, token: int | None = None) -> dict[str, Any]:
    """Returns where row `row` of the batch of a rank at a step, or a token of it, came from.

    Args:
      samples: the batches of the rank, in as large batches and on as many ranks as then.
      step: 0 for the next one of `samples`, which is that behind a state that was loaded, or the first of all.
      row: of the batch, from 0.
      token: see `explain`.

    Returns:
      The `epoch`, the number of the `row` among all rows, and `parts`, see `explain`.

    Raises:
      IndexError: if the batch has no such row.
      TypeError, ValueError, OSError: see `explain`.
    """
    place = samples.place(step, row)
    (number,) = samples.rows_at(np.array([place])).tolist()
    assert isinstance(samples.rows, Rows)
    return {"epoch": place // len(samples.rows), "row": number, "parts": explain(samples.rows, number, token)}
