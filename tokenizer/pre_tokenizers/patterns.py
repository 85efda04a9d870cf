# SPDX-License-Identifier: Apache-2.0
r"""Runs any pattern that neither a scanner nor an automaton covers, with the `regex` package, to the same result as HF.

HF reads patterns with Oniguruma in its Ruby dialect. They are translated for `regex`: different spellings are
rewritten, and categories, scripts, `\s`, `\d` and `\w` become the sets of characters that they are in Oniguruma, so
that the Unicode versions of `regex` and of Python do not matter. A pattern that cannot be translated is an error. Other
properties are those of `regex`; letters in the wider sense, capitals and small ones only of characters that Oniguruma
knows.
"""

import functools
import re
import string
import time
from typing import TYPE_CHECKING

from tokenmill.tokenizer.pre_tokenizers.tables import CodePoints, category_runs, script_runs
from tokenmill.tokenizer.unicode import data as unicode_data

if TYPE_CHECKING:
    import regex

MATCH_SECONDS = 10.0
"""How long one pattern may work on one text before a TimeoutError: a pattern is data, and some never end.

In seconds of processor time for each started megabyte of the text.
"""

_MAX_PATTERN, _MAX_TRANSLATED = 10_000, 1_000_000
"""The most characters of a pattern, and of its translation; real ones have hundreds, long ones compile for minutes."""

_MAJOR = {
    "L": "Lu Ll Lt Lm Lo",
    "M": "Mn Mc Me",
    "N": "Nd Nl No",
    "P": "Pc Pd Ps Pe Pi Pf Po",
    "S": "Sm Sc Sk So",
    "Z": "Zs Zl Zp",
}
_ASSIGNED = " ".join([*_MAJOR.values(), "Cc Cf Co"])
_SETS = {
    "Assigned": _ASSIGNED,
    "Graph": _ASSIGNED.replace(" Cc", "").replace(" Zs Zl Zp", ""),
    "Print": _ASSIGNED.replace(" Cc", "").replace(" Zl Zp", ""),
    "[:punct:]": f"{_MAJOR['P']} {_MAJOR['S']}",
    **_MAJOR,
}
"""Names of sets that are unions of categories."""
_LONG_NAMES = {
    "letter": "L", "mark": "M", "number": "N", "punctuation": "P", "symbol": "S", "separator": "Z",
    "uppercaseletter": "Lu", "lowercaseletter": "Ll", "titlecaseletter": "Lt", "modifierletter": "Lm",
    "otherletter": "Lo", "decimalnumber": "Nd", "digit": "Nd", "cntrl": "Cc", "punct": "P", "space": r"\s",
    "whitespace": r"\s", "word": r"\w",
}  # fmt: skip
_REFUSED = {
    r"\g": "a call of a group",
    r"\K": "a kept match",
    r"\G": "the start of the search",
    r"\y": "a text segment boundary",
    r"\Y": "a text segment boundary",
    r"\O": "any character",
    r"\N": "no newline",
    r"\X": "a text segment",
}
_KNOWN_ONLY = {"Alpha", "Alphabetic", "Alnum", "Upper", "Uppercase", "Lower", "Lowercase"}
"""Properties of `regex` to which its newer Unicode adds thousands of characters, which Oniguruma does not know."""

_POSIX = re.compile(r"\[:(\^?)(alnum|alpha|ascii|blank|cntrl|digit|graph|lower|print|punct|space|upper|word|xdigit):\]")
_PROPERTY = r"\\[pP]\{(\^?)([^}]*)\}|\\[sSdDwW]"
RANGE_GOES_ON = re.compile(r"-(?!\\[pPsSdDwWhH])[^\]\[]")
"""Matches what follows the first character of a range in a class."""


def property_ranges(name: str, *, in_class: bool, unicode: str = "8") -> list[tuple[int, int]]:
    r"""Returns the ranges of a general category, a script, `\s`, `\d` or `\w` in Oniguruma; [] for other names.

    Both ends are included.

    in_class: whether it is between brackets, on which `\w` depends.
    unicode: see `unicode.tables.BERT_UNICODE`; `\w` and scripts are those of "8", [] in others.
    """
    if name == r"\s":
        return unicode_data.runs("bert/spaces")
    if name == r"\w" and unicode == "8":
        # An inconsistency of Oniguruma.
        alone = [] if in_class else unicode_data.runs("patterns/words_alone")
        return unicode_data.runs("patterns/words") + alone
    if name == "Xdigit":
        return [(ord(first), ord(last)) for first, last in ("09", "AF", "af")]
    if name == "Blank":
        return [(9, 9), *category_runs("Zs", unicode)]
    name = "Nd" if name == r"\d" else name
    found = [run for each in _SETS.get(name, name).split() for run in category_runs(each, unicode)]
    return found or (script_runs(name) if unicode == "8" else [])


def read_property(pattern: str, i: int) -> tuple[str, bool, int] | None:
    r"""Reads `\p{...}`, `\s`, `\d`, `\w` or the opposite of one; None if there is none at `i`.

    Returns:
      A name for `property_ranges`, whether it is the opposite, and where it ends.
    """
    found = re.compile(_PROPERTY).match(pattern, i)
    if found is None:
        return None
    negated = found[0][1].isupper()
    if found[2] is None:
        return "\\" + found[0][1].lower(), negated, found.end()
    name = found[2].replace("_", "").replace(" ", "").replace("-", "")
    return _LONG_NAMES.get(name.lower(), name.capitalize()), negated ^ bool(found[1]), found.end()


@functools.cache
def _characters(name: str, *, in_class: bool) -> str:
    """Returns the inside of a character class, or "" if the name is neither a category nor a script."""
    runs = CodePoints.of(property_ranges(name, in_class=in_class)).runs
    return "".join(rf"\U{a:08x}" if a == b else rf"\U{a:08x}-\U{b:08x}" for a, b in runs)


class _Translation:
    """The state of a translation: `out` has the parts so far, `atom` the place of the last element to repeat."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.out: list[str] = []
        self.atom = 0
        self.groups: list[int] = []
        self.i = 0

    def refuse(self, what: str) -> ValueError:
        return ValueError(
            f"pattern {self.pattern!r} has {what} at position {self.i}, which has no equivalent here; "
            "rewrite the pattern without it"
        )

    def property(self, *, in_class: bool) -> str:
        r"""Translates the escape at `i`: `\p{...}`, `\s`, `\d`, `\w` and their opposites, else itself."""
        found = read_property(self.pattern, self.i)
        if found is None:
            return ""
        text = self.pattern[self.i : found[2]]
        name, negated, self.i = found
        return self.members(name, negated, text[2:].replace("^", ""), in_class=in_class)

    def members(self, name: str, negated: bool, spelling: str, *, in_class: bool) -> str:
        """Translates a set of characters, or its opposite; `regex` knows it by `spelling`, in braces."""
        inside = _characters(name, in_class=in_class)
        if not inside and name in _KNOWN_ONLY:
            return rf"[{'^' if negated else ''}[\p{spelling}&&[{_characters('Assigned', in_class=True)}]]]"
        if not inside:
            return rf"\{'P' if negated else 'p'}{spelling}"
        if in_class and not negated:
            return inside
        return f"[{'^' if negated else ''}{inside}]"

    def character_class(self) -> str:
        """Translates the class that begins at `i`, which may contain classes and intersections."""
        out = [self.pattern[self.i]]
        self.i += 1
        if self.pattern.startswith("^", self.i):
            out.append("^")
            self.i += 1
        is_first = True
        while self.i < len(self.pattern):
            c = self.pattern[self.i]
            if c == "]" and not is_first:
                self.i += 1
                return "".join([*out, "]"])
            is_first = False
            posix = _POSIX.match(self.pattern, self.i)
            if posix:
                self.i = posix.end()
                name = _LONG_NAMES.get(posix[2], posix[2].capitalize())
                name = "[:punct:]" if posix[2] == "punct" else name  # Oniguruma's has symbols, too, unlike \p{Punct}
                out.append(self.members(name, bool(posix[1]), f"{{{posix[2]}}}", in_class=True))
            elif self.pattern.startswith("[:", self.i):
                raise self.refuse("a POSIX bracket of an unknown kind")
            elif c == "[":
                out.append(self.character_class())
            elif self.pattern.startswith("&&", self.i):
                out.append("&&")
                self.i += 2
            else:
                out.append(self.property(in_class=True) or self.class_range())
        raise ValueError(f"pattern {self.pattern!r} has a character class that does not end")

    def class_range(self) -> str:
        """Translates the character or the range of characters at `i`, in a class."""
        first = self.class_character()
        if not RANGE_GOES_ON.match(self.pattern, self.i):
            return first
        self.i += 1
        return f"{first}-{self.class_character()}"

    def class_character(self) -> str:
        c = self.pattern[self.i]
        if c == "\\":
            return self.escape(in_class=True)
        self.i += 1
        # In `regex`, but not in Oniguruma, some of these are operators between classes.
        return "\\" + c if c in string.punctuation else c

    def escape(self, *, in_class: bool) -> str:
        """Translates any other escape at `i`."""
        text = self.pattern[self.i : self.i + 2]
        if len(text) < 2:
            raise ValueError(f"pattern {self.pattern!r} ends in a backslash")
        if text in _REFUSED:
            raise self.refuse(f"{text} ({_REFUSED[text]})")
        hexadecimal = re.compile(r"\\x\{([0-9a-fA-F]{1,8})\}").match(self.pattern, self.i)
        if hexadecimal:
            self.i = hexadecimal.end()
            return rf"\U{int(hexadecimal[1], 16):08x}"
        self.i += 2
        if text in (r"\b", r"\B") and not in_class:
            word = f"[{_characters(chr(92) + 'w', in_class=False)}]"
            same, other = ("!", "=") if text == r"\b" else ("=", "!")
            return f"(?:(?<={word})(?{same}{word})|(?<!{word})(?{other}{word}))"
        if text == r"\h":
            return "0-9a-fA-F" if in_class else "[0-9a-fA-F]"
        if text == r"\H":
            return "[^0-9a-fA-F]"
        if text == r"\e":
            return r"\x1b"
        if not in_class and text in (r"\Z", r"\z"):
            return r"(?=\n?\Z)" if text == r"\Z" else r"\Z"
        return text

    def append(self, text: str) -> None:
        self.atom = len(self.out)
        self.out.append(text)

    def quantifier(self) -> bool:
        """Translates an interval at `i`; in Oniguruma `{n,m}+` repeats it, and `{n}?` makes it optional."""
        found = re.compile(r"\{(\d*)(,?)(\d*)\}([+?]?)").match(self.pattern, self.i)
        if found is None or not (found[1] or found[3]):
            return False
        self.i = found.end()
        interval = found[0].removesuffix(found[4]) if found[4] else found[0]
        if found[4] == "+" or (found[4] == "?" and not found[2]):
            self.out[self.atom :] = [f"(?:{''.join(self.out[self.atom :])}{interval}){found[4]}"]
        else:
            self.out.append(found[0])
        return True

    def group(self) -> None:
        """Copies the opening of a group at `i`."""
        flags = re.compile(r"\(\?([imx]*)(-[imx]+)?([:)])").match(self.pattern, self.i)
        if flags:
            if "x" in flags[0]:
                raise self.refuse("extended syntax")
            text = flags[0].replace("m", "s")
        else:
            other = re.compile(r"\((\?(=|!|>|<=|<!|<[A-Za-z_]\w*>|#[^)]*\)))?").match(self.pattern, self.i)
            if other is None or (self.pattern.startswith("(?", self.i) and other[0] == "("):
                raise self.refuse("a group of an unknown kind")
            text = other[0]
        self.i += len(text)
        if text.endswith(")"):
            # Flags that hold up to the end of the enclosing group, or a comment.
            if flags:
                self.append(text)
            return
        self.groups.append(len(self.out))
        self.out.append(text)

    def run(self) -> str:
        while self.i < len(self.pattern):
            c = self.pattern[self.i]
            if c == "\\":
                self.append(self.property(in_class=False) or self.escape(in_class=False))
            elif c == "[":
                self.append(self.character_class())
            elif c == "(":
                self.group()
            elif c == ")":
                if not self.groups:
                    raise ValueError(f"pattern {self.pattern!r} has an unmatched ')' at position {self.i}")
                self.atom = self.groups.pop()
                self.out.append(c)
                self.i += 1
            elif c == "{" and self.quantifier():
                continue
            elif c in "*+?":
                self.out.append(c)
                self.i += 1
            else:
                self.append({"^": r"(?:\A|(?<=\n)(?!\Z))", "$": r"(?=\n|\Z)", "{": r"\{", "}": r"\}"}.get(c, c))
                self.i += 1
        return "".join(self.out)


def translate(pattern: str) -> str:
    """Rewrites a pattern of Oniguruma's Ruby dialect for `regex`, version 1.

    Raises:
      ValueError: if it cannot be translated, or is far too long.
    """
    if len(pattern) > _MAX_PATTERN:
        raise ValueError(f"pattern {pattern[:80]!r}... has {len(pattern)} characters, allowed are {_MAX_PATTERN}")
    translated = _Translation(pattern).run()
    if len(translated) > _MAX_TRANSLATED:
        raise ValueError(f"pattern {pattern[:80]!r}... names too many characters to be compiled")
    return translated


@functools.lru_cache(maxsize=64)
def compiled(pattern: str) -> "regex.Pattern[str]":
    """Translates and compiles a pattern.

    Raises:
      ValueError: if it is no valid pattern, or cannot be translated.
    """
    import regex  # most tokenizers have scanners, which do not need it

    try:
        return regex.compile(translate(pattern), regex.V1 | regex.UNICODE)
    except regex.error as error:
        raise ValueError(f"pattern {pattern!r} is no regular expression: {error}") from None
    except RecursionError:
        raise ValueError(f"pattern {pattern[:80]!r}... nests too deeply") from None


def find_segments(pattern: str, text: str) -> list[tuple[int, int, bool]]:
    """Divides a text into matches and the stretches between them, as `(start, stop, is_match)` in characters.

    An empty match counts, except right after another match, as in Oniguruma, but not in Python.

    Raises:
      TimeoutError: after `MATCH_SECONDS` for each started megabyte.
    """
    search = compiled(pattern).search
    seconds = MATCH_SECONDS * (1 + len(text) // 1_000_000)
    deadline = time.process_time() + seconds
    found: list[tuple[int, int, bool]] = []
    between, position, last_match = 0, 0, -1
    while position <= len(text):
        try:
            match = search(text, position, concurrent=True, timeout=max(deadline - time.process_time(), 0.001))
        except TimeoutError:
            raise TimeoutError(
                f"pattern {pattern!r} did not finish on a text of {len(text)} characters within {seconds:g} seconds; "
                "it backtracks too much"
            ) from None
        if match is None:
            break
        start, stop = match.span()
        if start == stop == last_match:
            position += 1
            continue
        if between != start:
            found.append((between, start, False))
        found.append((start, stop, True))
        between = position = last_match = stop
    if between != len(text):
        found.append((between, len(text), False))
    return found
