# SPDX-License-Identifier: Apache-2.0
"""The section `languages` of a config."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from tokenmill.pipeline.config.sections import NonEmpty, Section, did_you_mean, mistake
from tokenmill.pipeline.config.text import Steps

DEFAULT = "default"
"""The key for all languages that are not named; equal to that of `tokenizer/languages`, which is slow to import."""

UNKNOWN = "und"
"""The language of documents whose language cannot be told, as in `tokenmill.tokenizer.languages`."""


BUILTIN = "builtin"
"""The value of `rules` for the rules that come with `tokenmill.tokenizer.languages`."""


def check_codes(path: str, codes: Iterable[str], *, or_default: bool = False) -> None:
    """Raises a mistake at `path` if one of `codes` is not a supported language, nor `default` where that is allowed."""
    from tokenmill.tokenizer.languages import language_codes

    for code in codes:
        if code not in language_codes() and not (or_default and code == DEFAULT):
            near = did_you_mean(code, language_codes())
            raise mistake(path, code, f"is not a supported language{near}; see docs/explanation/languages.md")


def _spell_out(rules: Any) -> Any:
    """Returns the built-in rules for `builtin`, so that the digest and the record of a job have their steps."""
    if isinstance(rules, dict):
        return rules
    if rules != BUILTIN:
        raise mistake("", rules, f"must be {BUILTIN}, or a mapping of languages to lists of steps")
    from tokenmill.tokenizer.languages import RULES

    return {code: list(steps) for code, steps in RULES.items()}


class LanguagesConfig(Section):
    """Identifies the language of every document; `{}` is enough. Only `rules` changes text."""

    threshold: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Documents whose language is identified with less confidence become `und`, undetermined."""
    keep: list[NonEmpty] = []
    """Languages to keep; documents in others, `und` included unless it is listed, are left out. Empty keeps all."""
    drop: list[NonEmpty] = []
    """Languages to leave out."""
    drop_mixed: bool = False
    """Leave out documents in several languages."""
    rules: Annotated[
        dict[NonEmpty, Steps],
        BeforeValidator(_spell_out, json_schema_input_type=dict[NonEmpty, Steps] | Literal["builtin"]),
    ] = {}
    """Steps by language, applied after `normalize`; `default` is for all others, which otherwise stay as they are.
    `builtin`: the rules in docs/explanation/languages.md."""

    @model_validator(mode="after")
    def _check_codes(self) -> Self:
        for name in ("keep", "drop", "rules"):
            check_codes(name, getattr(self, name), or_default=name == "rules")
        if both := [code for code in self.keep if code in self.drop]:
            raise mistake("drop", both[0], "is in keep, too")
        return self
