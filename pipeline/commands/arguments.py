# SPDX-License-Identifier: Apache-2.0
"""Arguments that several commands take, and how they are read."""

import argparse


def add_set(parser: argparse.ArgumentParser) -> None:
    """Adds the option that overrides keys of the config."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="overrides",
        help="override a key of the config, as in --set tokenizer.oov=contain; may be repeated",
    )


def positive(text: str) -> int:
    """Returns a number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a number of at least 1, got {text!r}")
    return int(text)


def natural(text: str) -> int:
    """Returns a number of at least 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a number, got {text!r}")
    return int(text)


def share(text: str) -> float:
    """Returns a number from 0 to 1."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"must be a number from 0 to 1, got {text!r}")
    return number
