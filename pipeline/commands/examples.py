# SPDX-License-Identifier: Apache-2.0
"""An example of every command, for its `--help` and for the reference, which runs them."""

EXAMPLES = {
    "run": "tokenmill run configs/quickstart.yaml --overwrite",
    "count": "tokenmill count configs/count.yaml --overwrite",
    "train": "tokenmill train configs/train.yaml --overwrite",
    "tokenize": "tokenmill tokenize configs/tokenize.yaml --overwrite --workers 2",
    "attach": "tokenmill attach build/quickstart/out",
    "plan": "tokenmill plan configs/quickstart.yaml",
    "inspect": "tokenmill inspect build/quickstart/out --start 4 --rows 2",
    "diff": "tokenmill diff build/quickstart/out build/quickstart/out",
    "viz": "tokenmill viz 'naïve 玫瑰' --tokenizer build/quickstart/out/vocab",
    "verify": "tokenmill verify build/quickstart/out --deep --share 0.1",
    "replay": "tokenmill replay configs/quickstart.yaml",
    "report": "tokenmill report build/quickstart/out",
    "trace": "tokenmill trace build/quickstart/out 17 5",
    "counts": "tokenmill counts --help",
    "counts show": "tokenmill counts show build/quickstart/out --top 3",
    "counts merge": (
        "tokenmill counts merge a=build/quickstart/out b=build/quickstart/out --weight b=1/2 --out build/sum"
    ),
    "counts subtract": "tokenmill counts subtract build/sum a=build/quickstart/out --out build/rest",
    "chat": "tokenmill chat --help",
    "chat check": "tokenmill chat check build/quickstart/out/vocab --template configs/chat.jinja",
    "compare": "tokenmill compare build/quickstart/out/vocab build/quickstart/out/vocab --on build/quickstart/corpus",
    "convert": "tokenmill convert build/quickstart/out/vocab build/vocab.txt",
    "warm": "tokenmill warm configs/quickstart.yaml",
    "workers": "tokenmill workers --port 50000",
    "schema": "tokenmill schema",
    "completion": "tokenmill completion bash",
}
"""For every command a line that works after `./run.sh`, if they are run in this order."""
