# SPDX-License-Identifier: Apache-2.0
"""The public API of TokenMill.

- Every public name of `tokenmill.tokenizer`, and its modules `languages`, `text`, `trainers` and `vocabulary`.
- The module `data`, which reads finished outputs for training.
- `run`, `plan` and `verify`, which are the commands of these names; `JobError` and `JobResult`.
- `VERSION`, `InputConfig` and `plan_splits` of `tokenmill.pipeline`; `compare` and `read_report`, whose results are
  displayed in notebooks. `__version__` is the same as `VERSION`.
- For Beam pipelines of your own `ReadCorpus`, `Normalize`, `IdentifyLanguage`, `RenderChat`, `Tokenize`, `Detokenize`,
  `CountWords`, `TrainVocabulary`, `VocabularyStatistics`, `WriteShards` and, for `MLTransform`,
  `ComputeAndApplyTokenizer`.

Everything is imported on first use.
"""

import importlib
import types
import typing

if typing.TYPE_CHECKING:
    from tokenmill import data as data
    from tokenmill.pipeline import VERSION as VERSION
    from tokenmill.pipeline.commands.execution import JobError as JobError
    from tokenmill.pipeline.commands.execution import JobResult as JobResult
    from tokenmill.pipeline.commands.execution import plan as plan
    from tokenmill.pipeline.commands.execution import run as run
    from tokenmill.pipeline.commands.execution import verify as verify
    from tokenmill.pipeline.comparing.comparison import compare as compare
    from tokenmill.pipeline.config.input import InputConfig as InputConfig
    from tokenmill.pipeline.input.splitting import plan_splits as plan_splits
    from tokenmill.pipeline.reporting.page import read_report as read_report
    from tokenmill.pipeline.rows.corpus import ReadCorpus as ReadCorpus
    from tokenmill.pipeline.rows.ml_transform import ComputeAndApplyTokenizer as ComputeAndApplyTokenizer
    from tokenmill.pipeline.rows.shards import WriteShards as WriteShards
    from tokenmill.pipeline.rows.texts import IdentifyLanguage as IdentifyLanguage
    from tokenmill.pipeline.rows.texts import Normalize as Normalize
    from tokenmill.pipeline.rows.texts import RenderChat as RenderChat
    from tokenmill.pipeline.rows.tokenize import Detokenize as Detokenize
    from tokenmill.pipeline.rows.tokenize import Tokenize as Tokenize
    from tokenmill.pipeline.rows.vocabulary import CountWords as CountWords
    from tokenmill.pipeline.rows.vocabulary import TrainVocabulary as TrainVocabulary
    from tokenmill.pipeline.rows.vocabulary import VocabularyStatistics as VocabularyStatistics
    from tokenmill.tokenizer import *  # noqa: F403
    from tokenmill.tokenizer import languages as languages
    from tokenmill.tokenizer import text as text
    from tokenmill.tokenizer import trainers as trainers
    from tokenmill.tokenizer import vocabulary as vocabulary

_MODULES = {
    "data": "tokenmill.data",
    **{name: f"tokenmill.tokenizer.{name}" for name in ("languages", "text", "trainers", "vocabulary")},
}

_PIPELINE = {
    "VERSION": "tokenmill.pipeline",
    "InputConfig": "tokenmill.pipeline.config.input",
    **dict.fromkeys(("JobError", "JobResult", "plan", "run", "verify"), "tokenmill.pipeline.commands.execution"),
    "compare": "tokenmill.pipeline.comparing.comparison",
    "plan_splits": "tokenmill.pipeline.input.splitting",
    "read_report": "tokenmill.pipeline.reporting.page",
    "ComputeAndApplyTokenizer": "tokenmill.pipeline.rows.ml_transform",
    "CountWords": "tokenmill.pipeline.rows.vocabulary",
    "Detokenize": "tokenmill.pipeline.rows.tokenize",
    "IdentifyLanguage": "tokenmill.pipeline.rows.texts",
    "Normalize": "tokenmill.pipeline.rows.texts",
    "ReadCorpus": "tokenmill.pipeline.rows.corpus",
    "RenderChat": "tokenmill.pipeline.rows.texts",
    "Tokenize": "tokenmill.pipeline.rows.tokenize",
    "TrainVocabulary": "tokenmill.pipeline.rows.vocabulary",
    "VocabularyStatistics": "tokenmill.pipeline.rows.vocabulary",
    "WriteShards": "tokenmill.pipeline.rows.shards",
}


def __getattr__(name: str) -> typing.Any:
    if name == "__all__":
        return __dir__()
    if name == "__version__":
        name = "VERSION"
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name in _PIPELINE:
        return getattr(importlib.import_module(_PIPELINE[name]), name)
    # Not all names at once: trainers, and pyarrow.compute with them, would take a fifth of the time to the first id.
    package = importlib.import_module("tokenmill.tokenizer")
    if name in dir(package) and not isinstance(value := getattr(package, name), types.ModuleType):
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*_names_of_tokenizer(), *_MODULES, *_PIPELINE})


def _names_of_tokenizer() -> list[str]:
    package = importlib.import_module("tokenmill.tokenizer")
    public = (name for name in dir(package) if not name.startswith("_"))
    return [name for name in public if not isinstance(getattr(package, name), types.ModuleType)]
