# SPDX-License-Identifier: Apache-2.0
"""Config files: what loads, and what every mistake is called."""

import json
import re
from pathlib import Path

import pytest

from tokenmill.pipeline import schemas
from tokenmill.pipeline.config.file import MAX_CONFIG_BYTES, load_config
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.config.sections import ConfigError
from tokenmill.pipeline.config.tokenizer import (
    TrainConfig,
    TruncationConfig,
)
from tokenmill.pipeline.output.writers import mds
from tokenmill.pipeline.output.writers.base import TokenizerInfo

MINIMAL = """
input:     {paths: ["corpus/*.jsonl"], format: auto, text_field: text, id_field: id}
tokenizer: {file: vocab.txt, lowercase: true, oov: contain}
output:    {path: out, format: parquet}
"""


@pytest.fixture
def write(tmp_path):
    def write(text: str | bytes) -> str:
        path = tmp_path / "job.yaml"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return str(path)

    return write


def problems_of(path: str, overrides=(), job=None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides, job)
    assert str(caught.value) == "\n".join(caught.value.problems)
    return caught.value.problems


CONFIGS = Path(__file__).parents[3] / "configs"
WRITTEN = [
    *((path.name, path.read_text(encoding="utf-8")) for path in sorted(CONFIGS.glob("*.yaml"))),
    ("a default of the model", "{input: {paths: [a]}, tokenizer: {train: {model: bpe, min_frequency: 2}}}"),
    ("null where the model has a default", "{input: {paths: [a]}, tokenizer: {train: {unk_token: null}}}"),
    ("every default", "{input: {paths: [a]}, tokenizer: {train: {}}, languages: {}}"),
    ("rules", "{input: {paths: [a]}, tokenizer: {train: {}}, languages: {rules: {zh: [nfkc]}, keep: [zh]}}"),
]


@pytest.mark.parametrize("text", [text for _, text in WRITTEN], ids=[name for name, _ in WRITTEN])
def test_a_config_as_given_is_the_same_config_without_defaults(write, text):
    config = load_config(write(text), ["output.path=out"])
    given = config.given()
    assert Config.model_validate(given) == config
    assert Config.model_validate(json.loads(json.dumps(given))).given() == given
    if "null" not in text:
        assert "None" not in str(given)


PATH_KEYS = ("input.paths", "tokenizer.file", "output.parts.tokenizers", "tokenizer.train.counts", "output.path")


@pytest.mark.parametrize("key", PATH_KEYS)
@pytest.mark.parametrize(
    "written, expected",
    [
        ("~/x", "/users/me/x"),
        ("~", "/users/me"),
        ("~root/data", None),
        ("$DATA/*.jsonl", "/data/*.jsonl"),
        ("${DATA}/a", "/data/a"),
        ("${DATA}s/$ANSWER.txt", "/datas/42.txt"),
        ("s3://${BUCKET}/a/*.gz", "s3://mine/a/*.gz"),
        ("$$DATA", "$DATA"),
        ("a$$$ANSWER", "a$42"),
        ("a$", "a$"),
        ("a$-b/~/c~", "a$-b/~/c~"),
        ("/srv/x", "/srv/x"),
        ("../v", "../v"),
        ("$LITERAL/a", "~/$DATA/a"),  # what a variable holds is not expanded again
    ],
)
def test_every_path_is_expanded(write, monkeypatch, key, written, expected):
    for name, value in {"HOME": "/users/me", "DATA": "/data", "ANSWER": "42", "BUCKET": "mine"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LITERAL", "~/$DATA")
    expected = str(Path("~root/data").expanduser()) if expected is None else expected
    quoted = json.dumps(written)
    value = {"input.paths": f"[{quoted}]", "output.parts.tokenizers": f"{{default: {quoted}}}"}.get(key, quoted)
    settings = [f"{key}={value}"]
    if key == "output.parts.tokenizers":
        settings += ["output.parts.by=lang", "languages={}"]
    if key != "tokenizer.file":
        settings += ["tokenizer.file=null"]
    found = config = load_config(write(MINIMAL), settings)
    for name in key.split("."):
        found = getattr(found, name)
    found = found[0] if key == "input.paths" else found["default"] if key == "output.parts.tokenizers" else found
    assert found == expected
    # What a job has stored is not expanded again.
    assert Config.model_validate(config.model_dump(mode="json")) == config


def test_what_cannot_be_expanded_is_named_with_its_key(write, monkeypatch):
    monkeypatch.delenv("No_Such", raising=False)
    monkeypatch.setenv("EMPTY", "")
    settings = ["output.path=$No_Such/x", "input.paths=[a, '${No_Such}/b']", "tokenizer.file=~no-such-user/x"]
    assert problems_of(write(MINIMAL), settings) == [
        "input.paths.1: '${No_Such}/b': the environment has no variable 'No_Such'; set it, or write $$ for a literal $",
        "tokenizer.file: '~no-such-user/x': there is no home directory for '~no-such-user'; "
        "write './~no-such-user' for a file of this name",
        "output.path: '$No_Such/x': the environment has no variable 'No_Such'; set it, or write $$ for a literal $",
    ]
    assert "'${' must begin ${NAME}" in problems_of(write(MINIMAL), ["output.path='${A:-b}/x'"])[0]
    assert "nothing is left of it" in problems_of(write(MINIMAL), ["output.path=$EMPTY"])[0]


def test_overrides_are_yaml_and_the_last_wins(write):
    config = load_config(
        write(MINIMAL),
        [
            "input.split_bytes=10", "input.split_bytes=20", "input.paths=[a, 'b c']", "tokenizer.lowercase=false",
            "input.id_field=null", "tokenizer.truncation.max_length=7", "output.path=x=y",
        ],
    )  # fmt: skip
    assert (config.input.split_bytes, config.tokenizer.oov, config.output.compression) == (20, "contain", "auto")
    assert config.input.paths == ["a", "b c"]
    assert config.input.id_field is None
    assert config.tokenizer.lowercase is False
    assert config.tokenizer.truncation == TruncationConfig(max_length=7)
    assert config.output.path == "x=y"


def test_every_mistake_is_reported_at_once(write):
    """Each by itself is in `mistakes.yaml` of `commands`; here are many, and what `--set` alone can get wrong."""
    path = write("{input: {paths: a.jsonl, id_field: ''}, tokenizer: {oov: contian}, output: {path: out}, extra: 1}")
    expected = [
        "--set output.path.x=3: output.path is 'out', which has no keys",
        "--set foo: must look like key.path=value, for example tokenizer.oov=contain",
        "--set a..b=1: must look like key.path=value, for example tokenizer.oov=contain",
        "--set input.text_field=[: line 1, column 2: not YAML: expected the node content, but found "
        "'<stream end>'; quote the value if it is plain text",
        "input.paths: 'a.jsonl': must be a list; write ['a.jsonl']",
        "input.id_field: '': must not be empty",
        "tokenizer.oov: 'contian': allowed: word, contain, char, byte; did you mean 'contain'?",
        "extra: unknown key; allowed: input, counts, tokenizer, output, normalize, spans, languages, chat",
    ]
    found = problems_of(path, ["output.path.x=3", "foo", "a..b=1", "input.text_field=["], "run")
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("tokenizer.vocabsize", " here; did you mean 'tokenizer.train.vocab_size'?"),
        ("tokenizer.minfrequency", " here; did you mean 'tokenizer.train.min_frequency'?"),
        ("input.sources.a.keep_fields", " here; did you mean 'input.keep_fields'?"),
        ("input.sources.a.keepfields", " here; did you mean 'input.keep_fields'?"),
        ("input.sources.a.text_feld", "; did you mean 'text_field'?"),
        ("input.path", "; did you mean 'paths'?"),  # not output.path
        ("vocab_size", " here; did you mean 'tokenizer.train.vocab_size'?"),
        ("inptu", "; did you mean 'input'?"),
        ("output.xyzzy", "; allowed: "),
    ],
)
def test_a_misspelt_key_is_looked_for_at_every_level(written, meant):
    config = {"input": {"sources": {"a": {"paths": ["a.txt"]}}}, "tokenizer": {"file": "x"}, "output": {"path": "out"}}
    with pytest.raises(ValueError, match=re.escape(f"{written}: unknown key{meant}")):
        load_config(config, [f"{written}=[x]"], "run")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            b"",
            r"a config is a mapping with input, counts, tokenizer, output, normalize, "
            r"spans, languages, chat; found nothing",
        ),
        (
            b"- a\n",
            r"a config is a mapping with input, counts, tokenizer, output, normalize, "
            r"spans, languages, chat; found a list",
        ),
        (
            b"input: {paths: [a]}\noutput: {path: out}\ninput: {}\n",
            r"line 3: key 'input' is given twice, first in line 1",
        ),
        (b"input: {paths: [a], paths: [b]}", r"line 1: key 'paths' is given twice, first in line 1"),
        (b"input: [", r"line 1, column 9: not YAML: "),
        (b"input: \xff", r"not UTF-8 text: byte 0xff at 7"),
        (b"input: \x00", r"not YAML: "),
        (
            b"input: !!python/object/apply:os.system [ls]",
            r"line 1, column 8: not YAML: could not determine a construct",
        ),
        (b"input: 2020-13-45", r"not YAML: month must be in 1..12"),
        (b"[" * 100_000, r"nested too deeply for a config"),
        (b"#" * (MAX_CONFIG_BYTES + 1), r"too long for a config; at most 1048576 bytes are allowed"),
    ],
)
def test_files_that_are_no_config(write, content, expected):
    path = write(content)
    (problem,) = problems_of(path)
    assert re.match(re.escape(f"{path}: ") + expected, problem), problem


def test_missing_file_and_folder_are_named(tmp_path):
    assert problems_of(str(tmp_path / "no.yaml")) == [
        f"{tmp_path}/no.yaml: cannot read the config: No such file or directory"
    ]
    assert problems_of(str(tmp_path)) == [f"{tmp_path}: cannot read the config: Is a directory"]


def test_hostile_values_stay_one_short_line(write):
    billion_laughs = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join([f'*{chr(97 + i)}'] * 9)}]\n" for i in range(12)
    )
    problems = problems_of(write(billion_laughs + "input: {paths: *m, text_field: *m}\noutput: &o {path: *o}\n"))
    problems += problems_of(write(f"input: {{paths: {'x' * 9999}}}\noutput: {{path: out}}\n"))
    for problem in problems:
        assert len(problem) < 400
        assert "\n" not in problem


def test_keys_that_are_not_text_are_reported(write):
    problems = problems_of(write("input: {paths: [a]}\noutput: {path: out}\n1: 2\n"))
    assert [problem.partition(": ")[0] for problem in problems] == ["1"]


def test_what_is_not_given_follows_the_model():
    assert TrainConfig().limit_alphabet == 1000
    assert TrainConfig(limit_alphabet=None).limit_alphabet is None
    unigram = TrainConfig(model="unigram")
    assert (unigram.normalizer, unigram.pre_tokenizer) == ("nmt_nfkc", "whitespace_metaspace")
    assert unigram.trainer_options["character_coverage"] == 0.9995
    assert unigram.limit_alphabet is None
    assert TrainConfig(model="byte_level_bpe").tokens == ["<|endoftext|>"]
    assert TrainConfig(vocab_size=[9000, 8000]).sizes == [9000, 8000]


def _columns_of_shards():
    """Every column that a shard or a table of documents can have, from the schemas that writers get."""
    schemas_of_rows = [
        schemas.rows(["span_sources"]),
        schemas.windowed(schemas.rows(["span_sources"])),
        schemas.packed(schemas.BOUNDARIES),
    ]
    names = {
        name for schema in schemas_of_rows for name in (*schema.names, *mds.columns_of(schema, TokenizerInfo("", 9)))
    }
    return sorted(names | {*schemas.listed_documents(has_segments=True).names})


@pytest.mark.parametrize("name", _columns_of_shards())
def test_no_field_can_have_the_name_of_a_column_of_ours(write, name):
    path = write("output: {path: out}\ntokenizer: {file: v}\ninput: {paths: [a]}\n")
    for setting in (f"input.keep_fields=[url, {name}]", f"input.keep_fields={{{name}: string}}"):
        problem = f"input.keep_fields: {name!r}: is a column of the output already"
        assert problems_of(path, [setting]) == [problem]


@pytest.mark.parametrize("name", schemas.LANGUAGES.names)
def test_columns_of_languages_are_refused_where_they_are_written(write, name):
    path = write("output: {path: out}\ntokenizer: {file: v}\ninput: {paths: [a]}\n")
    (problem,) = problems_of(path, [f"input.keep_fields=[{name}]", "languages={}"])
    by = "which the section `languages` writes; leave out one of them"
    assert problem == f"input.keep_fields: {name!r}: is a column of the output already, {by}"
    assert load_config(path, [f"input.keep_fields=[{name}]"]).input.keep_fields == [name]


def _aliases(first: str, line: str) -> str:
    lines = (line.replace("@", f"*a{i - 1}").replace("KEY", f"a{i}") for i in range(1, 40))
    return f"a0: &a0 {first}\n" + "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (_aliases("{k: 1}", "KEY: &KEY {<<: [@, @, @]}"), "with its aliases, more than 200,000 keys and values"),
        (_aliases("[k]", "KEY: &KEY [@, @, @]"), "with its aliases, more than 200,000 keys and values"),
        (_aliases("{k: string}", "KEY: &KEY {x: @, y: @}"), "with its aliases, more than 200,000 keys and values"),
        ("a: &a {<<: *a}", "with its aliases, more than 200,000 keys and values"),
        ("a: &a [*a]", "with its aliases, more than 200,000 keys and values"),
        ("counts: {min_count: " + ":".join(["1"] * 400_000) + "}", "would be a number in base 60"),
        ("languages: {threshold: " + ":".join(["1"] * 400_000) + ".5}", "would be a number in base 60"),
        ("counts: {min_count: 1:30}", "'1:30' would be a number in base 60"),
        ("counts: {min_count: " + "9" * 1_000_000 + "}", "or of too many digits"),
        ("counts: {min_count: 0x" + "f" * 1_000_000 + "}", "or of too many digits"),
        ("a: !!timestamp x", "a value does not fit its tag"),
        ("a: !!int ''", "a value does not fit its tag"),
        ("a: !!bool x", "a value does not fit its tag"),
        ("a: !!int x", "not YAML: invalid literal"),
    ],
)
def test_a_few_lines_cannot_mean_more_than_memory_holds(write, text, problem):
    (found,) = problems_of(write(text))
    assert problem in found
    assert len(found) < 300
    if len(text) < 100_000:  # as an argument, too
        (found,) = problems_of(write(MINIMAL), [f"a={text[3:]}"]) if text.startswith("a: ") else (problem,)
        assert problem in found


def test_aliases_and_merges_of_a_config_are_read(write):
    text = "output: &o {path: out, format: mds}\ninput: {paths: [a, b]}\ncounts: {<<: {by: [source]}, min_count: 3}"
    config = load_config(write(text))
    assert (config.counts.by, config.counts.min_count, config.output.format) == (["source"], 3, "mds")


@pytest.mark.parametrize(
    "name, hint",
    [
        *((name, "") for name in ("rot13", "rot_13", "hex", "zip_codec", "zlib", "base64", "uu_codec", "bz2")),
        *((name, "") for name in ("idna", "punycode", "undefined", "unicode_escape", "raw_unicode_escape")),
        *((name, "") for name in ("\0", "é", "", "aliases", "a.b", "x" * 5000)),
        *(("utf-9", "utf-8"), ("latin-one", "latin"), ("shift-jsi", "shift-jis"), ("cp1252x", "cp1252")),
    ],
)
def test_what_is_no_encoding_of_text_is_refused(write, name, hint):
    (problem,) = problems_of(write(MINIMAL), [f"input.encoding={json.dumps(name)}"])
    assert problem.startswith("input.encoding: ")
    assert ": must be auto, or one of Python's encodings of text, such as utf-8, utf-16, cp1252 or gb18030" in problem
    if hint:
        assert f"; did you mean '{hint}" in problem
