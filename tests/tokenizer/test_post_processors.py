# SPDX-License-Identifier: Apache-2.0
"""Post-processors: layouts as templates, trimmed offsets, the parts that truncation makes."""

from collections.abc import Callable

import pytest

from tokenmill.tokenizer.post_processors import (
    BertProcessing,
    ByteLevel,
    RobertaProcessing,
    Sequence,
    SpecialToken,
    TemplatePiece,
    TemplateProcessing,
    Truncation,
)

CLS, SEP = ("<s>", 0), ("</s>", 2)
BERT, ROBERTA = BertProcessing(SEP, CLS), RobertaProcessing(SEP, CLS)
TURNED = TemplateProcessing(
    single=(TemplatePiece("A", 3, True), TemplatePiece("<s>", 0, False)),
    pair=(TemplatePiece("B", 1, True), TemplatePiece("<s>", 0, False), TemplatePiece("A", 4, True)),
    special_tokens={"<s>": SpecialToken((0,), ("<s>",))},
)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Sequence((ByteLevel(), BERT, TURNED)), "one layout, got BertProcessing and TemplateProcessing"),
        (lambda: Sequence((Sequence((ROBERTA,)), ROBERTA)), "one layout, got RobertaProcessing and RobertaProcessing"),
        (lambda: Sequence((BERT, ByteLevel())), "ByteLevel with trim_offsets follows BertProcessing"),
        (lambda: Truncation(5, stride=5), "stride must be in 0..max_length - 1, with max_length 5, got 5"),
        (lambda: Truncation(5, stride=-1), "stride must be in 0..max_length - 1, with max_length 5, got -1"),
        (
            lambda: Truncation(5, stride=3).parts(9, 3),
            "stride 3 must be less than the 3 tokens that max_length 5 leaves",
        ),
    ],
)
def test_what_has_no_meaning_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
