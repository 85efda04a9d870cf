# SPDX-License-Identifier: Apache-2.0
"""`vocab.txt`, BERT's format: one token per line, whose id is the number of the line."""

from collections.abc import Mapping

from tokenizer.errors import TokenizerFileError


def read(text: str, source: str) -> dict[str, int]:
    r"""Returns token -> id from the text of a `vocab.txt`.

    Only line ends (`\n`, `\r\n`) are cut off. HF's reader also cuts other white space off the end of a line. Words of
    BERT's pre-tokenizer contain none, so ids are the same, but here such tokens keep their text.

    Raises:
      TokenizerFileError: if a token is on two lines, of which readers choose different ones, or all lines are empty.
    """
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    vocab: dict[str, int] = {}
    for number, line in enumerate(lines):
        token = line.removesuffix("\r")
        if token in vocab:
            raise TokenizerFileError(
                f"{source}, line {number + 1}: token {token!r} stands already on line {vocab[token] + 1}; "
                "every token has one id"
            )
        vocab[token] = number
    if not any(vocab):
        raise TokenizerFileError(f"{source}: no tokens; expected one per line")
    return vocab


def write(vocab: Mapping[str, int], source: str) -> str:
    """Returns the text of a `vocab.txt`.

    Raises:
      ValueError: if ids have gaps or a token contains a line end, which the format cannot represent.
    """
    by_id = sorted(vocab.items(), key=lambda item: item[1])
    for position, (token, token_id) in enumerate(by_id):
        if token_id != position:
            raise ValueError(
                f"{source}: vocab.txt cannot hold a gap in the ids, but no token has id {position}; "
                "save as tokenizer.json"
            )
        if "\n" in token or token.endswith("\r"):
            raise ValueError(f"{source}: vocab.txt cannot hold token {token!r} with a line end; save as tokenizer.json")
    return "".join(f"{token}\n" for token, _ in by_id)
