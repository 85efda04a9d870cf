# SPDX-License-Identifier: Apache-2.0
"""Writes the page of all config keys: type, allowed values, default, docstring and an example of each.

Types, limits and defaults are those of the JSON Schema that `tokenmill schema` prints; the texts are the docstrings.
Examples are written here, by hand. Each is loaded as a config before the page is written, and a key without an example
is an error.
"""

import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tokenmill.pipeline.config.file import load_config
from tokenmill.pipeline.config.job import json_schema
from tokenmill.pipeline.config.tokenizer import OPTIONS

PAGE = "docs/reference/config.md"

_HEAD = """\
# Config keys

A config is a YAML file. It says what to compute:

```yaml
input:     {paths: ["build/quickstart/corpus/*.jsonl"], text_field: text}
tokenizer: {train: {model: wordpiece, vocab_size: 8000}}
output:    {path: build/first, format: parquet}
```

`tokenmill run my.yaml` runs it. `--set output.path=build/second` overrides a key for one command;
the value is read as YAML.

The rules for all keys:

- Relative paths are relative to the working directory, as on a command line, not to the folder of the config.
- In every path, also in `--set` and in arguments of commands, `~` is the home directory, and `$NAME` or `${NAME}` a
  variable of the environment; one that is not set is a mistake: `output: {path: "${SCRATCH}/out"}`. Write `$$` for a
  literal `$`.
- Types are strict: `vocab_size: "8000"` is a mistake, not a number.
- An unknown key is a mistake. The message names the nearest key. All mistakes of a config are reported at once.
- `null` means that the key is not given.

`tokenmill schema` prints the same as a JSON Schema, which editors read.

## All keys
"""

_TYPES = {
    "input.keep_fields": "list of names, or mapping of names to types",
    "input.sources": "mapping of names to sections with the keys above",
    "languages.rules": "`builtin`, or a mapping of languages, or `default`, to [steps](../explanation/text.md#steps)",
    "normalize": "list of [steps](../explanation/text.md#steps), each a name or one name with its options",
    "spans": "list of [spans](../explanation/text.md#spans), each with `token` and one of `find`, `regex`, `literal`",
}
"""Types of keys whose description from the schema would be too long."""


def _of_chat(keys: str) -> str:
    return "{input: {messages_field: messages}, chat: {template: '{{ messages[0].content }}'" + keys + "}}"


EXAMPLES = {
    "input.paths": "input: {paths: [corpus/*.jsonl.gz, more/*.parquet]}",
    "input.exclude": "input: {paths: [corpus], exclude: [corpus/broken.parquet, '*/README.txt']}",
    "input.format": "input: {format: text}",
    "input.compression": "input: {compression: none}",
    "input.encoding": "input: {format: text, encoding: cp1252}",
    "input.delimiter": 'input: {paths: [corpus/*.csv], delimiter: ";"}',
    "input.document": "input: {format: text, document: blank_line}",
    "input.text_field": "input: {text_field: content}",
    "input.messages_field": _of_chat(""),
    "input.chat_fields": _of_chat("").replace("messages}", "messages, chat_fields: {speaker: role, said: content}}"),
    "input.chat_roles": _of_chat("").replace("messages}", "messages, chat_roles: {bot: assistant}}"),
    "input.id_field": "input: {id_field: url}",
    "input.text_fields": "input: {text_fields: [title, body]}",
    "input.join": 'input: {text_fields: [title, body], join: "\\n"}',
    "input.keep_fields": "input: {keep_fields: {url: string, meta.score: double}}",
    "input.split_bytes": "input: {split_bytes: 268435456}",
    "input.max_document_bytes": "input: {max_document_bytes: 1048576}",
    "input.max_rejected": "input: {max_rejected: 1000}",
    "input.max_rejected_fraction": "input: {max_rejected_fraction: 0.01}",
    "input.max_rejected_per_file": "input: {max_rejected_per_file: 0.2}",
    "input.on_damage": "input: {on_damage: warn}",
    "input.sample": "input: {sample: 0.1}",
    "input.sample_seed": "input: {sample: 0.1, sample_seed: 7}",
    "input.sources": (
        "input: {sources: {wiki: {paths: [wiki/*.parquet]}, news: {paths: [news/*.csv], text_field: body}}}"
    ),
    "counts.by": "counts: {by: [source]}",
    "counts.sources": 'counts: {by: [source], sources: {web: "web/*", books: "books/*"}}',
    "counts.languages": "{languages: {}, counts: {by: [lang], languages: [zh, th]}}",
    "counts.min_count": "counts: {min_count: 2}",
    "counts.max_words": "counts: {max_words: 50000000}",
    "tokenizer.file": "tokenizer: {file: vocab/tokenizer.json}",
    "tokenizer.pattern": "tokenizer: {file: ranks.tiktoken, pattern: cl100k_base}",
    "tokenizer.as_class": "tokenizer: {file: spiece.model, as_class: T5Tokenizer}",
    "tokenizer.unicode": 'tokenizer: {file: vocab.txt, unicode: "17"}',
    "tokenizer.train": "tokenizer: {train: {vocab_size: 8000}}",
    "tokenizer.train.model": "tokenizer: {train: {model: byte_level_bpe}}",
    "tokenizer.train.vocab_size": "tokenizer: {train: {vocab_size: [8000, 16000]}}",
    "tokenizer.train.counts": "tokenizer: {train: {counts: build/count}}",
    "tokenizer.train.normalizer": "tokenizer: {train: {model: bpe, normalizer: nfc}}",
    "tokenizer.train.pre_tokenizer": "tokenizer: {train: {model: byte_level_bpe, pre_tokenizer: o200k_base}}",
    "tokenizer.train.special_tokens": (
        'tokenizer: {train: {model: byte_level_bpe, special_tokens: ["<|endoftext|>", "<|pad|>"]}}'
    ),
    "tokenizer.train.unk_token": (
        'tokenizer: {train: {model: wordlevel, special_tokens: ["<pad>", "<unk>"], unk_token: "<unk>"}}'
    ),
    "tokenizer.train.rule": "tokenizer: {train: {model: wordpiece, rule: likelihood}}",
    "tokenizer.train.min_frequency": "tokenizer: {train: {min_frequency: 5}}",
    "tokenizer.train.limit_alphabet": "tokenizer: {train: {limit_alphabet: 6000}}",
    "tokenizer.train.initial_alphabet": "tokenizer: {train: {initial_alphabet: [ä, ö, ü]}}",
    "tokenizer.train.max_token_length": "tokenizer: {train: {model: byte_level_bpe, max_token_length: 16}}",
    "tokenizer.train.byte_fallback": "tokenizer: {train: {model: unigram, byte_fallback: true}}",
    "tokenizer.train.character_coverage": "tokenizer: {train: {model: unigram, character_coverage: 0.9998}}",
    "tokenizer.train.shrinking_factor": "tokenizer: {train: {model: unigram, shrinking_factor: 0.9}}",
    "tokenizer.train.num_sub_iterations": "tokenizer: {train: {model: unigram, num_sub_iterations: 3}}",
    "tokenizer.train.max_piece_length": "tokenizer: {train: {model: unigram, max_piece_length: 8}}",
    "tokenizer.train.seed_sentencepiece_size": "tokenizer: {train: {model: unigram, seed_sentencepiece_size: 500000}}",
    "tokenizer.train.hard_vocab_limit": "tokenizer: {train: {model: unigram, hard_vocab_limit: false}}",
    "tokenizer.train.user_defined_symbols": 'tokenizer: {train: {model: unigram, user_defined_symbols: ["<sep>"]}}',
    "tokenizer.lowercase": "tokenizer: {file: vocab.txt, lowercase: false}",
    "tokenizer.strip_accents": "tokenizer: {file: vocab.txt, lowercase: true, strip_accents: false}",
    "tokenizer.oov": "tokenizer: {file: vocab.txt, oov: contain}",
    "tokenizer.add_special_tokens": "tokenizer: {file: vocab.txt, add_special_tokens: true}",
    "tokenizer.max_unknown_fraction": "tokenizer: {file: vocab.txt, max_unknown_fraction: 0.01}",
    "tokenizer.truncation": "tokenizer: {truncation: {max_length: 512}}",
    "tokenizer.truncation.max_length": "tokenizer: {truncation: {max_length: 512}}",
    "tokenizer.truncation.side": "tokenizer: {truncation: {max_length: 512, side: left}}",
    "tokenizer.truncation.overflow": "tokenizer: {truncation: {max_length: 512, overflow: rows}}",
    "tokenizer.truncation.stride": "tokenizer: {truncation: {max_length: 512, overflow: rows, stride: 128}}",
    "tokenizer.truncation.warn_above": "tokenizer: {truncation: {max_length: 512, warn_above: 0.2}}",
    "tokenizer.padding": "tokenizer: {padding: {length: 512}}",
    "tokenizer.padding.length": "tokenizer: {padding: {length: 512}}",
    "tokenizer.padding.side": "tokenizer: {padding: {length: 512, side: left}}",
    "output.path": "output: {path: build/out}",
    "output.format": "output: {format: [parquet, megatron]}",
    "output.compression": "output: {format: tfrecord, compression: gzip}",
    "output.row_group_tokens": "output: {row_group_tokens: 1048576}",
    "output.prepend": 'output: {prepend: "<s>"}',
    "output.append": 'output: {append: "<|endoftext|>"}',
    "output.vocabulary": "output: {vocabulary: [vocab.txt]}",
    "output.report": "output: {report: false}",
    "output.labels": _of_chat("}, output: {labels: true"),
    "output.fim": "output: {fim: {}}",
    "output.fim.rate": "output: {fim: {rate: 0.9}}",
    "output.fim.mode": "output: {fim: {mode: psm}}",
    "output.fim.level": "output: {fim: {level: token}}",
    "output.fim.seed": "output: {fim: {seed: 7}}",
    "output.fim.prefix": 'output: {fim: {prefix: "<PRE>"}}',
    "output.fim.suffix": 'output: {fim: {suffix: "<SUF>"}}',
    "output.fim.middle": 'output: {fim: {middle: "<MID>"}}',
    "output.parts": "{languages: {keep: [en, zh]}, output: {parts: {by: lang}}}",
    "output.parts.by": "{input: {keep_fields: [site]}, output: {parts: {by: site, shares: {train: 0.9, test: 0.1}}}}",
    "output.parts.tokenizers": (
        "{languages: {}, output: {parts: {by: lang, tokenizers: {zh: vocab/zh, default: vocab/en}}}}"
    ),
    "output.parts.train": (
        "{languages: {}, counts: {by: [lang], languages: [zh]}, tokenizer: {train: {}}, "
        "output: {parts: {by: lang, train: true}}}"
    ),
    "output.parts.shares": "output: {parts: {shares: {train: 0.98, validation: 0.01, test: 0.01}}}",
    "output.parts.only": "output: {parts: {shares: {train: 0.98, validation: 0.01, test: 0.01}, only: test}}",
    "output.for": _of_chat("}, output: {for: trl"),
    "output.packing": "output: {packing: {length: 2048}}",
    "output.packing.length": "output: {packing: {length: 2048}}",
    "output.packing.strategy": "output: {packing: {length: 2048, strategy: best_fit}}",
    "output.packing.boundaries": "output: {packing: {length: 2048, boundaries: [segment_ids, positions]}}",
    "output.packing.separator": 'output: {packing: {length: 2048, separator: "<|endoftext|>"}}',
    "output.packing.incomplete": "output: {packing: {length: 2048, incomplete: short}}",
    "tokenizer.padding.pad_token": 'tokenizer: {padding: {length: 512, pad_token: "<|endoftext|>"}}',
    "output.packing.pad_token": 'output: {packing: {length: 2048, pad_token: "<|pad|>"}}',
    "output.shuffle": "output: {shuffle: {seed: 1}}",
    "output.shuffle.seed": "output: {shuffle: {seed: 1}}",
    "output.shuffle.shards": "output: {shuffle: {shards: 64}}",
    "output.shuffle.run_bytes": "output: {shuffle: {run_bytes: 268435456}}",
    "normalize": "normalize: [nfc, html_entities, {whitespace: {newlines: space}}]",
    "spans": 'spans: [{token: "[URL]", find: url, keep_source: true}]',
    "chat": _of_chat(""),
    "chat.template": _of_chat(""),
    "chat.template_name": _of_chat(", template_name: tools"),
    "chat.tool_template": _of_chat(", tool_template: '{{ tools | tojson }}{{ messages[0].content }}'"),
    "chat.special_tokens": _of_chat(", special_tokens: {bos_token: <s>}"),
    "chat.arguments": _of_chat(", arguments: {enable_thinking: false}"),
    "chat.date": _of_chat(", date: '2026-01-31'"),
    "chat.train": _of_chat(", train: last_assistant"),
    "chat.thinking": _of_chat(", thinking: false"),
    "chat.tool_calls": _of_chat(", tool_calls: false"),
    "chat.stop": _of_chat(", stop: false"),
    "chat.end_tokens": _of_chat(", end_tokens: ['<|user|>', '<|observation|>']"),
    "chat.on_bad_mask": _of_chat(", on_bad_mask: warn"),
    "chat.weights": _of_chat(", weights: true"),
    "chat.pairs": _of_chat(", pairs: true").replace("field: messages", "field: chosen"),
    "chat.parse_arguments": _of_chat(", parse_arguments: true"),
    "chat.must_show": _of_chat(", must_show: [tools, tool_calls]"),
    "languages": "languages: {}",
    "languages.threshold": "languages: {threshold: 0.8}",
    "languages.keep": "languages: {keep: [en, de, und]}",
    "languages.drop": "languages: {drop: [und]}",
    "languages.drop_mixed": "languages: {drop_mixed: true}",
    "languages.rules": "languages: {rules: {zh: [full_width, {segment: han}], default: [default]}}",
}
"""A line of YAML for every key, from the root of a config."""


def keys() -> list[tuple[str, dict[str, Any], bool]]:
    """Returns the full path of every key, its part of the schema, and whether it is required."""
    schema = json_schema()
    return list(_keys(schema, schema["$defs"], ""))


def _keys(
    section: Mapping[str, Any], defs: Mapping[str, Any], prefix: str
) -> Iterator[tuple[str, dict[str, Any], bool]]:
    for name, key in section["properties"].items():
        yield prefix + name, key, name in section.get("required", ())
        for branch in (key, *key.get("anyOf", ())):
            if "$ref" in branch:
                yield from _keys(defs[branch["$ref"].rpartition("/")[2]], defs, f"{prefix}{name}.")


def check_examples() -> None:
    """Loads every example as a config.

    Raises:
      ValueError: if a key has no example, or an example is for no key, is no valid config, or does not set its key.
    """
    paths = {path for path, key, _ in keys() if _is_value(path, key)}
    if odd := paths ^ EXAMPLES.keys():
        raise ValueError(f"these keys have no example, or these examples no key: {', '.join(sorted(odd))}")
    for path, example in EXAMPLES.items():
        tree = yaml.safe_load(example)
        place = tree
        for name in path.split("."):
            if name not in place:
                raise ValueError(f"the example of {path} does not set it: {example}")
            place = place[name]
        if "sources" not in tree.setdefault("input", {}):
            tree["input"].setdefault("paths", ["corpus/*.jsonl"])
        tree.setdefault("output", {}).setdefault("path", "build/out")
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "example.yaml")
            file.write_text(json.dumps(tree), encoding="utf-8")
            load_config(str(file))  # a ConfigError is a ValueError


def _is_value(path: str, key: Mapping[str, Any]) -> bool:
    """Whether a key takes a value; sections that are always there do not."""
    return "$ref" not in key


def page() -> str:
    """Returns the page."""
    check_examples()
    found = keys()
    lines = [_HEAD, "| key | default | |", "|---|---|---|"]
    for path, key, is_required in found:
        if _is_value(path, key):
            words = _first_sentence(_words(path, key))
            lines.append(f"| [`{path}`](#{anchor(path)}) | {_default(path, key, is_required)} | {words} |")
    section = ""
    for path, key, is_required in found:
        top = path.partition(".")[0]
        if top != section:
            section = top
            lines += ["", f"## {section}", ""]
            if not _is_value(path, key):
                lines += [_section_words(path), ""]
                continue
        elif not _is_value(path, key):
            continue
        lines += _entry(path, key, is_required) if path != section else _entry(path, key, is_required)[2:]
    lines += ["", *_options()]
    return "\n".join(lines).rstrip() + "\n"


def anchor(path: str) -> str:
    """Returns the anchor of a key's heading, as GitHub and the site make it."""
    return path.replace(".", "")


def _entry(path: str, key: Mapping[str, Any], is_required: bool) -> list[str]:
    return [
        f"### `{path}`",
        "",
        _words(path, key),
        "",
        f"- type: {_TYPES.get(path) or _type(key)}",
        f"- default: {_default(path, key, is_required)}",
        f"- example: `{EXAMPLES[path]}`",
        "",
    ]


def _section_words(path: str) -> str:
    schema = json_schema()
    name = schema["properties"][path]["$ref"].rpartition("/")[2]
    return str(schema["$defs"][name]["description"])


def _words(path: str, key: Mapping[str, Any]) -> str:
    """Returns the docstring of a key, or of its section if it is one, on one line."""
    words = key.get("description")
    if words is None:
        (ref,) = (branch["$ref"] for branch in key["anyOf"] if "$ref" in branch)
        words = json_schema()["$defs"][ref.rpartition("/")[2]]["description"]
    return " ".join(words.split())


def _first_sentence(words: str) -> str:
    return re.split(r"(?<!\.)\. (?=\S)", words, maxsplit=1)[0].rstrip(".").replace("|", "\\|")


def _default(path: str, key: Mapping[str, Any], is_required: bool) -> str:
    if is_required or path == "input.paths":
        return "none, must be given"
    if path.startswith("tokenizer.train.") and any(path.rpartition(".")[2] in options for options in OPTIONS.values()):
        return "[by model](#options-by-model)"
    default = key["default"]
    size = f" ({default >> 20} MiB)" if path.endswith("_bytes") else ""
    return f"`{json.dumps(default, ensure_ascii=False)}`{size}"


def _type(key: Mapping[str, Any]) -> str:
    """Returns the type of a key's value, in words."""
    if branches := key.get("anyOf") or key.get("oneOf"):
        return ", or ".join(_type(branch) for branch in branches)
    if "$ref" in key:
        return "section with the keys below"
    if "enum" in key:
        return "one of " + ", ".join(f"`{value}`" for value in key["enum"])
    kind = key["type"]
    if kind in ("integer", "number"):
        return ("integer" if kind == "integer" else "number") + _limits(key)
    if kind == "array":
        size = {(1, None): ", at least one", (None, 1): ", at most one"}
        return f"list, each {_type(key['items'])}{size.get((key.get('minItems'), key.get('maxItems')), '')}"
    if kind == "object":
        values = key.get("additionalProperties")
        return f"mapping of text to {_type(values)}" if isinstance(values, dict) else "mapping"
    return {"boolean": "`true` or `false`", "null": "`null`", "string": "text"}[kind]


def _limits(key: Mapping[str, Any]) -> str:
    words = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
    found = [f"{word} {key[name]:,}" for name, word in words.items() if name in key]
    return " " + " and ".join(found) if found else ""


def _options() -> list[str]:
    """Returns the table of the options that each model takes, with their defaults."""
    names = list(dict.fromkeys(name for options in OPTIONS.values() for name in options))
    lines = [
        "## Options by model",
        "",
        "Which keys of `tokenizer.train` a model has, and their defaults. Any other key is a mistake.",
        "",
        "| key | " + " | ".join(f"`{model}`" for model in OPTIONS) + " |",
        "|---" * (len(OPTIONS) + 1) + "|",
    ]
    for name in names:
        cells = [
            f"`{json.dumps(options[name], ensure_ascii=False)}`".replace("|", "\\|") if name in options else ""
            for options in OPTIONS.values()
        ]
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return lines
