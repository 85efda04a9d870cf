# SPDX-License-Identifier: Apache-2.0
"""Writes `tokenizer/unicode_category_data.py` and `unicode_pattern_scripts.py` by asking HF tokenizers.

It is asked about every code point.

Run by hand (`python tests/parity/make_category_data.py`) when the pinned version of HF tokenizers changes; the diff is
reviewed. `test_pre_tokenizers.py` proves the committed file right on every run, against HF and against tiktoken.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

import regex
import tokenizers as hf
from tokenizers import pre_tokenizers

TARGET = Path(__file__).parents[2] / "tokenizer" / "unicode_category_data.py"
SCRIPTS_TARGET = TARGET.with_name("unicode_pattern_scripts.py")
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
EVERYTHING = "".join(map(chr, CODE_POINTS))
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()


def ranges(code_points: Iterable[int]) -> str:
    runs: list[list[int]] = []
    for c in sorted(code_points):
        if runs and runs[-1][1] == c - 1:
            runs[-1][1] = c
        else:
            runs.append([c, c])
    return " ".join(f"{a:x}" if a == b else f"{a:x}-{b:x}" for a, b in runs)


def matched(pattern: str) -> list[int]:
    """Returns the code points that one character of a pattern matches, as Oniguruma in HF sees it."""
    splitter = pre_tokenizers.Split(hf.Regex(pattern), "removed", invert=True)
    return [ord(x) for x, _ in splitter.pre_tokenize_str(EVERYTHING)]


def scripts() -> list[list[int]]:
    """Finds which code points `UnicodeScripts` takes for the same script, without those that it splits from nothing."""
    splitter = pre_tokenizers.UnicodeScripts()

    def is_one(text: str) -> bool:
        return len(splitter.pre_tokenize_str(text)) == 1

    groups: list[list[int]] = []
    last: list[int] = []
    for c in CODE_POINTS:
        x = chr(c)
        if is_one(f"A{x}A") and is_one(f"α{x}α"):
            continue
        if not (last and is_one(chr(last[0]) + x)):
            last = next((group for group in groups if is_one(chr(group[0]) + x)), [])
            if not last:
                groups.append(last)
        last.append(c)
    return groups


def wrapped(text: str, indent: str = "    ") -> str:
    lines, line = [], ""
    for word in text.split(" "):
        if len(line) + len(word) + 1 > 118 - len(indent) - 3:
            lines.append(line + " ")
            line = word
        else:
            line = f"{line} {word}".strip()
    return "\n".join(f'{indent}"{x}"' for x in [*lines, line])


def literal(name: str, text: str, doc: str) -> str:
    return f'{name} = (\n{wrapped(text)}\n)\n"""{doc}"""\n'


def pattern_scripts() -> None:
    """Writes the scripts that patterns know, under every name that `regex` and HF both take for one."""
    by_members: dict[str, list[str]] = {}
    for name in regex._regex_core.PROPERTIES["SCRIPT"][1]:
        try:
            members = ranges(matched(rf"\p{{{name}}}"))
        except Exception:  # HF raises nothing more particular
            continue
        by_members.setdefault(members, []).append(name.capitalize())
    first = {names[0]: (names, members) for members, names in by_members.items()}
    texts = "".join(f'    "{name}": (\n{wrapped(first[name][1], " " * 8)}\n    ),\n' for name in sorted(first))
    others = "".join(
        f'    "{other}": "{name}",\n' for name in sorted(first) for other in sorted(first[name][0]) if other != name
    )
    SCRIPTS_TARGET.write_text(
        "# SPDX-License-Identifier: Apache-2.0\n"
        'r"""Scripts in patterns (`\\p{Han}`) as HF tokenizers knows them; generated, do not edit.\n\n'
        f"Made by tests/parity/make_category_data.py from tokenizers {hf.__version__}. All numbers are hexadecimal.\n"
        '"""\n\n'
        f"SCRIPTS = {{\n{texts}}}\n"
        f"OTHER_NAMES = {{\n{others}}}\n",
        encoding="utf-8",
    )


def main() -> None:
    pattern_scripts()
    whitespace = pre_tokenizers.Whitespace()
    digits = pre_tokenizers.Digits()
    words = [c for c in CODE_POINTS if whitespace.pre_tokenize_str(f"a{chr(c)}a") == [(f"a{chr(c)}a", (0, 3))]]
    numeric = [c for c in CODE_POINTS if len(digits.pre_tokenize_str(f"a{chr(c)}")) == 2]
    alone, in_classes = matched(r"\w"), matched(r"[\w]")
    members = {name: wrapped(ranges(matched(rf"\p{{{name}}}")), " " * 8) for name in CATEGORIES}
    categories = "".join(f'    "{name}": (\n{text}\n    ),\n' for name, text in members.items())
    groups = "".join(f"    (\n{text}\n    ),\n" for text in (wrapped(ranges(group), " " * 8) for group in scripts()))
    parts = [
        "# SPDX-License-Identifier: Apache-2.0\n"
        '"""Character properties as the pre-tokenizers of HF tokenizers know them; generated, do not edit.\n\n'
        f"Made by tests/parity/make_category_data.py from tokenizers {hf.__version__}, by asking it about every code\n"
        "point. "
        "Several Unicode versions, because it has several sources of such data. All numbers are hexadecimal.\n"
        '"""\n',
        'UNICODE_VERSIONS = {"patterns": "16.0.0", "numeric": "17.0.0", "words": "16.0.0", "scripts": "9.0.0"}\n'
        '"""Part of every result, and so of every manifest."""\n',
        f'CATEGORIES = {{\n{categories}}}\n'
        '"""General categories in patterns (`\\\\p{L}`); what is in none is unassigned. tiktoken agrees."""\n',
        literal("PATTERN_WORDS", ranges(in_classes), r"What `[\\w]` matches in a pattern of `Split`."),
        literal("PATTERN_WORDS_ALONE", ranges({*alone} - {*in_classes}), r"What `\\w` adds to that."),
        literal("WORDS", ranges(words), r"What `\\w` matches in `Whitespace`, of another library."),
        literal("NUMERIC", ranges(numeric), "What `Digits` takes for a digit."),
        f'SCRIPTS = (\n{groups})\n'
        '"""Characters of one script each to `UnicodeScripts`; what is in none is of any."""\n',
    ]  # fmt: skip
    TARGET.write_text("\n".join(parts), encoding="utf-8")
    print(f"{TARGET}: {TARGET.stat().st_size} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
