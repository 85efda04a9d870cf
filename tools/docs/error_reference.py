# SPDX-License-Identifier: Apache-2.0
"""Writes the page of exit codes, reasons for rejects, rules that filter, and messages.

The lists are those of the code. The advice for each is written here, and an entry without advice is an error.
"""

from collections.abc import Mapping

from tokenmill.pipeline.books import quantities
from tokenmill.pipeline.commands.reporting import DONE, FAILED, MISTAKE, STOPPED
from tokenmill.pipeline.input.rejects import REASONS

PAGE = "docs/reference/errors.md"

_HEAD = """\
# Errors

```console
$ tokenmill run my.yaml
tokenmill: tokenizer.lowercas: unknown key; did you mean 'lowercase'? allowed: file, by, files, pattern, ...
tokenmill: tokenizer.oov: 'contians': allowed: word, contain, char, byte; did you mean 'contain'?
$ echo $?
2
```

A message names the place, the value, what is allowed, and what was probably meant. All mistakes of a
config are reported at once, before any work.

## Exit codes
"""

_EXIT_CODES = {
    DONE: ("done", "Nothing."),
    FAILED: (
        "the job failed, or `verify` found something wrong; or what a command other than a job prints could not be "
        "written",
        "Read the last lines on stderr. What is committed is kept: `--resume` goes on from there. `--verbose` shows "
        "the traceback.",
    ),
    MISTAKE: (
        "a mistake in the command, the config or the input, found before any work",
        "Correct what the message names, then start again.",
    ),
    STOPPED: (
        "stopped by Ctrl-C, or by SIGTERM, which schedulers send, or by SIGHUP, which a closed terminal sends",
        "`--resume` goes on from what is committed.",
    ),
}

_ADVICE = {
    "not_json": "Look at `sample` and `detail` of the reject. Often a line is cut off, or a value spans lines, which "
    "`jq -c .` writes on one.",
    "not_object": 'Wrap the value: `{"text": ...}`.',
    "too_deep": "No remedy; such a record is hardly text.",
    "missing_field": "Set `input.text_field`, then `tokenmill replay`.",
    "null_text": "Nothing, if the record has no text.",
    "not_string": "Set `input.text_field` to a field that holds text, then `tokenmill replay`.",
    "wrong_cells": "Set `input.delimiter` if it is another one. Quote cells that hold delimiters or line ends.",
    "bad_quotes": "Write quotes in a quoted cell twice. DuckDB reads other dialects, and makes Parquet of them.",
    "not_extracted": "Nothing, if it is no page; else extract its text first, as with trafilatura.",
    "bad_field": "Declare another type in `input.keep_fields`, or none.",
    "bad_id": "Set `input.id_field`, or `null` for ids made of name and offset; then `tokenmill replay`.",
    "invalid_utf8": "Set `input.encoding` if the detail names one. Else mend the file.",
    "lone_surrogate": "Mend what writes the file: `\\ud83d` alone is half of a character.",
    "too_large": "Raise `input.max_document_bytes`, then `tokenmill replay`.",
    "not_a_conversation": "Set `input.messages_field`; `detail` says which fields the record has.",
    "unknown_role": "Rename the role; `detail` lists those that are known.",
    "empty_turn": "Leave the message out, or the conversation.",
    "two_systems": "Join them.",
    "refused_by_template": "`detail` is what the template says, for example that roles must alternate.",
    "template_limit": "Mend the template; the limits are 5 seconds of processor time, 1 GiB, 33,554,432 characters.",
    "template_failed": "`detail` is the error; often a field has another type than the template takes.",
    "special_token_in_content": "Mend the text: the tokenizer would take it for the token itself.",
    "bad_mark": "Correct the field, or say in `input.chat_fields` what it means: `null` for nothing.",
    "marked_untrained": "Nothing; it does not count as damage of its file.",
    "turn_not_shown": "Run `tokenmill chat check`; often a template shows no tool calls, or no parts.",
    "no_stop_token": "Run `tokenmill chat check`; `chat.stop: false` trains the turn without one.",
    "nothing_trained": "Set `chat.train`, or leave the conversation out.",
    "text_timeout": "Make the pattern simpler, or raise its `seconds`.",
    "tokenizer_timeout": "Nothing; the limit is 10 seconds for each started megabyte.",
    "unknown_character": "Use a model with an unknown token or `byte_fallback`.",
    "out_of_memory": "Use fewer workers, or lower `input.max_document_bytes`. A tokenizer may make 16 times as many "
    "bytes of a text, and 1,024 more; if `Tokenizer.encode` raises `TextGrowthError`, use another one.",
    "unreadable_file": "`detail` says what is wrong. Mend or rename the file, or get it again, then `--resume`; or "
    "leave it out with `input.exclude`.",
    "truncated_stream": "Download the file again, then `--resume`; or accept the loss with `input.on_damage: warn`.",
    "bomb": "Decompress the file yourself, if you trust it. The limit is 256 MiB and 1000 times its size.",
    "corrupt_stream": "Download the file again, then `--resume`; or accept the loss with `input.on_damage: warn`.",
}

_SETTINGS = {
    quantities.SAMPLE: "`input.sample`",
    quantities.OTHER_LANGUAGE: "`languages.keep`, `languages.drop`",
    quantities.MIXED_LANGUAGES: "`languages.drop_mixed`",
    quantities.OTHER_PART: "`output.parts`",
    quantities.TOO_LONG: "`tokenizer.truncation`, `output.packing`",
    quantities.STEP: "[a step of yours](../explanation/tour.md#add-a-step-between-normalizing-and-encoding)",
    quantities.COMMITTED: "`tokenmill replay`",
}
"""What turns a rule on."""

_MESSAGES = """\
## Messages

| a message that ends or begins like this | means |
|---|---|
| `key.path: value: must be ...` | A key of the config has a value that is not allowed. |
| `key.path: unknown key; did you mean ...?` | A key is misspelt, or stands in the wrong section. |
| `--set ...: must look like key.path=value` | An override is no assignment. Quote it in the shell. |
| `... matches no file` | A pattern of `input.paths` finds no file. Paths are relative to the working directory. |
| `... cannot be listed: ...` | This user may not list a folder below a pattern. Leave it out of `input.paths`. |
| `... the environment has no variable ...` | A path has `$NAME`. Set the variable, or write `$$` for a literal `$`. |
| `... looks like utf-16-le, but ...` | A file is in another encoding than `input.encoding` says. |
| `... is in use: ...` | Another command owns the output folder. It says which, where, since when. |
| `... != ...` | A bug: two counts that must be equal are not. [Which?](../explanation/tour.md#which-equation-failed) |
| `failed: ...` | The job had begun. The line says why it ended. |
| `warning: ...` | The job goes on, or is done. The line names what you may not have wanted. |

What to do about each common one is in [troubleshooting](../troubleshooting.md).

In Python errors are `ValueError`, `TypeError`, `OSError` and their subclasses:
[`TokenizerFileError`](python.md#tokenizertokenizerfileerror) for a file that cannot be used,
[`UnknownCharacterError`](python.md#tokenizerunknowncharactererror) for a text that a model
without an unknown token cannot encode.
"""


def page() -> str:
    """Returns the page."""
    _check(REASONS, _ADVICE)
    lines = [_HEAD, "| code | | what to do |", "|---|---|---|"]
    lines += [f"| {code} | {words} | {advice} |" for code, (words, advice) in sorted(_EXIT_CODES.items())]
    lines += [
        "",
        "## Reject reasons",
        "",
        "A record that cannot be used never stops a job. It goes to [`rejected/`](formats.md#rejects) with one of",
        "these reasons. The list is closed.",
        "",
        "| reason | what is wrong | what to do |",
        "|---|---|---|",
    ]
    lines += [f"| `{reason}` | {words} | {_ADVICE[reason]} |" for reason, words in REASONS.items()]
    lines += [
        "",
        "## Filter rules",
        "",
        "A document that a rule leaves out is not rejected. It is counted under the name of the rule, in",
        "`totals.filtered` of the manifest and in the ledger.",
        "",
        "| rule | set by | the document is left out because |",
        "|---|---|---|",
    ]
    _check(quantities.RULES, _SETTINGS)
    lines += [f"| `{rule}` | {_SETTINGS[rule]} | {words} |" for rule, words in quantities.RULES.items()]
    return "\n".join([*lines, "", _MESSAGES])


def _check(listed: Mapping[str, str], advised: Mapping[str, str]) -> None:
    if odd := listed.keys() ^ advised.keys():
        raise ValueError(f"these reasons have no advice, or there is advice for no reason: {', '.join(sorted(odd))}")
