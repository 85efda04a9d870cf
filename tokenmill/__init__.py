# SPDX-License-Identifier: Apache-2.0
"""The public API of TokenMill, under one name that no other package has.

`from tokenmill import Tokenizer` is `from tokenizer import Tokenizer`, but raises an error if `tokenizer` is not ours:
other packages have the names `tokenizer` and `pipeline` too, and pip lets one overwrite the other silently.

- Every public name of `tokenizer`, and its modules `fidelity`, `languages`, `text` and `trainers`.
- `VERSION`, `InputConfig` and `plan_splits` of `pipeline`; `compare` and `read_report`, whose results are displayed in
  notebooks. `__version__` is the same as `VERSION`.
- For Beam pipelines of your own `ReadCorpus`, `Normalize`, `IdentifyLanguage`, `Tokenize`, `Detokenize`, `CountWords`,
  `TrainVocabulary`, `VocabularyStatistics`, `WriteShards` and, for `MLTransform`, `ComputeAndApplyTokenizer`.

Everything is imported on first use.
"""

import functools
import importlib
import types
import typing
import warnings

from tokenmill import installation

if typing.TYPE_CHECKING:
    from pipeline import VERSION as VERSION
    from pipeline.comparing.comparison import compare as compare
    from pipeline.config.input import InputConfig as InputConfig
    from pipeline.input.splitting import plan_splits as plan_splits
    from pipeline.reporting.page import read_report as read_report
    from pipeline.rows.corpus import ReadCorpus as ReadCorpus
    from pipeline.rows.ml_transform import ComputeAndApplyTokenizer as ComputeAndApplyTokenizer
    from pipeline.rows.shards import WriteShards as WriteShards
    from pipeline.rows.texts import IdentifyLanguage as IdentifyLanguage
    from pipeline.rows.texts import Normalize as Normalize
    from pipeline.rows.tokenize import Detokenize as Detokenize
    from pipeline.rows.tokenize import Tokenize as Tokenize
    from pipeline.rows.vocabulary import CountWords as CountWords
    from pipeline.rows.vocabulary import TrainVocabulary as TrainVocabulary
    from pipeline.rows.vocabulary import VocabularyStatistics as VocabularyStatistics
    from tokenizer import *  # noqa: F403
    from tokenizer import fidelity as fidelity
    from tokenizer import languages as languages
    from tokenizer import text as text
    from tokenizer import trainers as trainers

_MODULES = ("fidelity", "languages", "text", "trainers")

_PIPELINE = {
    "VERSION": "pipeline",
    "InputConfig": "pipeline.config.input",
    "compare": "pipeline.comparing.comparison",
    "plan_splits": "pipeline.input.splitting",
    "read_report": "pipeline.reporting.page",
    "ComputeAndApplyTokenizer": "pipeline.rows.ml_transform",
    "CountWords": "pipeline.rows.vocabulary",
    "Detokenize": "pipeline.rows.tokenize",
    "IdentifyLanguage": "pipeline.rows.texts",
    "Normalize": "pipeline.rows.texts",
    "ReadCorpus": "pipeline.rows.corpus",
    "Tokenize": "pipeline.rows.tokenize",
    "TrainVocabulary": "pipeline.rows.vocabulary",
    "VocabularyStatistics": "pipeline.rows.vocabulary",
    "WriteShards": "pipeline.rows.shards",
}


@functools.cache
def _check() -> None:
    """Checks, before anything of ours is imported, that it is ours."""
    if faults := installation.faults():
        raise ImportError("\n".join(faults))
    for stranger in installation.strangers():
        warnings.warn(stranger, stacklevel=4)


def __getattr__(name: str) -> typing.Any:
    if name == "__all__":
        return __dir__()
    if name == "__version__":
        name = "VERSION"
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _check()
    if name in _MODULES:
        return importlib.import_module(f"tokenizer.{name}")
    if name in _PIPELINE:
        return getattr(importlib.import_module(_PIPELINE[name]), name)
    if name in _names_of_tokenizer():
        return getattr(importlib.import_module("tokenizer"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    _check()
    return sorted({*_names_of_tokenizer(), *_MODULES, *_PIPELINE})


def _names_of_tokenizer() -> list[str]:
    package = importlib.import_module("tokenizer")
    public = (name for name in dir(package) if not name.startswith("_"))
    return [name for name in public if not isinstance(getattr(package, name), types.ModuleType)]
