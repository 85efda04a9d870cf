# SPDX-License-Identifier: Apache-2.0
"""The section `languages` of a config."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from pipeline.config.sections import NonEmpty, Section, did_you_mean, mistake
from pipeline.config.text import LanguageOptions, Steps


class LanguagesConfig(Section):
    """Identifies the language of every document; `{}` is enough, and applies the built-in rules."""

    threshold: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Documents whose language is identified with less confidence are `und`."""
    keep: list[NonEmpty] = []
    """Languages to keep, `und` among them if wanted; documents in others are filtered. Empty keeps all."""
    drop: list[NonEmpty] = []
    """Languages to leave out."""
    drop_mixed: bool = False
    """Whether documents in several languages are left out."""
    rules: dict[NonEmpty, Steps] = {}
    """Steps by language, after those of `normalize`, instead of the built-in rules; `default` is for all others."""

    @model_validator(mode="after")
    def _check_codes(self) -> Self:
        from tokenizer.languages import DEFAULT, language_codes

        for name in ("keep", "drop", "rules"):
            for code in getattr(self, name):
                if code not in language_codes() and (name, code) != ("rules", DEFAULT):
                    near = did_you_mean(code, language_codes())
                    raise mistake(name, code, f"is not a supported language{near}; see docs/explanation/languages.md")
        if both := [code for code in self.keep if code in self.drop]:
            raise mistake("drop", both[0], "is in keep, too")
        return self

    @property
    def options(self) -> LanguageOptions:
        """This section as the steps of a job take it."""
        rules = {code: tuple(steps) for code, steps in sorted(self.rules.items())}
        return LanguageOptions(self.threshold, tuple(self.keep), tuple(self.drop), self.drop_mixed, rules)
