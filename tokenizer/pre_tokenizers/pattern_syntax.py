# SPDX-License-Identifier: Apache-2.0
"""Parses patterns in Oniguruma's Ruby dialect to trees, if an automaton can do what they do.

That is every pattern whose choices depend only on the characters it reads, one character before and one after. Others
(calls, references, atomic groups, lookarounds of more than one character, loops over nothing) are refused; see
`patterns` for those.
"""

import dataclasses
import functools
import re
import string

import numpy as np

from tokenmill.tokenizer.pre_tokenizers.patterns import RANGE_GOES_ON, property_ranges, read_property
from tokenmill.tokenizer.pre_tokenizers.tables import ALL, N_CODE_POINTS, NONE, CodePoints

_MAX_DEPTH, _MAX_INTERVAL = 50, 20
_ESCAPES = {"n": 0x0A, "t": 0x09, "r": 0x0D, "f": 0x0C, "v": 0x0B, "a": 0x07, "e": 0x1B}
# Compiled when the first pattern is read: most tokenizers have none.
_ESCAPED = r"\\(?:x\{([0-9a-fA-F]{1,8})\}|x([0-7][0-9a-fA-F])|u([0-9a-fA-F]{4})|([^\w]|[ntrfvae]))"
_GROUP = r"\((?:\?(?:#[^)]*\)|([im]*)(?:-([im]+))?:|(<?[=!])|<[A-Za-z_]\w*>)|(?!\?))"
_FLAGS = r"\(\?(?!\))([im]*)(?:-([im]+))?\)"
_INTERVAL = r"\{(\d*)(,?)(\d*)\}([+?]?)"
_HEXADECIMAL = CodePoints.of([(0x30, 0x39), (0x41, 0x46), (0x61, 0x66)])
_NEWLINE = CodePoints.of([(0x0A, 0x0A)])
_OF_OTHER_CASE = {"k": 0x212A, "s": 0x17F}
"""ASCII letter -> the code point that equals it, besides its other case, if case is ignored."""
_FOLDED_TOGETHER = ("ss", "ff", "fi", "fl", "st")
"""Pairs of letters that together equal one other character if case is ignored: patterns with them are refused."""


@dataclasses.dataclass(frozen=True)
class Characters:
    """One character of a set."""

    members: CodePoints
    letter: str = ""
    """The letter in lower case, if the set is an ASCII letter whose case is ignored."""


@dataclasses.dataclass(frozen=True)
class Look:
    """A lookaround: the next character, or the one before, is in a set; or there is none, if `at_edge`."""

    behind: bool
    members: CodePoints
    at_edge: bool


@dataclasses.dataclass(frozen=True)
class Sequence:
    """Patterns in sequence; an empty one matches the empty text."""

    parts: "tuple[Node, ...]"


@dataclasses.dataclass(frozen=True)
class Alternation:
    """Alternatives: the first with which the whole pattern matches."""

    branches: "tuple[Node, ...]"


@dataclasses.dataclass(frozen=True)
class Repetition:
    """A repetition, at least and at most (None: any number) so many times; greedy, or as few as possible."""

    body: "Node"
    least: int
    most: int | None
    greedy: bool


Node = Characters | Look | Sequence | Alternation | Repetition


def literal(character: str) -> Characters:
    """Returns the pattern of one character."""
    return Characters(CodePoints.of([(ord(character), ord(character))]))


class NotRegularError(ValueError):
    """A pattern is invalid, or none that an automaton can match."""


def parse(pattern: str, unicode: str = "8") -> Node:
    """Parses a pattern, with categories of characters in a version of `unicode.tables.BERT_UNICODE`.

    Raises:
      NotRegularError: if it cannot be parsed here; it may be a valid pattern all the same.
    """
    parser = _Parser(pattern, unicode)
    node = parser.alternation()
    if parser.i < len(pattern):
        raise NotRegularError(f"unmatched ')' at {parser.i}")
    return node


@functools.cache
def _property_members(name: str, in_class: bool, unicode: str) -> CodePoints:
    return CodePoints.of(property_ranges(name, in_class=in_class, unicode=unicode))


def can_be_empty(node: Node) -> bool:
    """Whether a pattern may match the empty text; lookarounds count as if they always held."""
    match node:
        case Characters():
            return False
        case Look():
            return True
        case Sequence():
            return all(map(can_be_empty, node.parts))
        case Alternation():
            return any(map(can_be_empty, node.branches))
        case Repetition():
            return node.least == 0 or can_be_empty(node.body)


class _Parser:
    """A pattern, the place up to which it has been read, and the flags that hold there."""

    def __init__(self, pattern: str, unicode: str) -> None:
        self.pattern = pattern
        self.unicode = unicode
        self.i = 0
        self.depth = 0
        self.any_case = False
        self.dot_is_all = False

    def rest_is(self, text: str) -> bool:
        return self.pattern.startswith(text, self.i)

    def skip(self, text: str) -> bool:
        if not self.rest_is(text):
            return False
        self.i += len(text)
        return True

    def refuse(self) -> NotRegularError:
        return NotRegularError(f"{self.pattern[self.i : self.i + 10]!r} at {self.i}")

    def alternation(self) -> Node:
        """Reads alternatives up to the end of the group or the pattern."""
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise self.refuse()
        self.flags()
        branches = [self.sequence()]
        while self.skip("|"):
            branches.append(self.sequence())
        self.depth -= 1
        return branches[0] if len(branches) == 1 else Alternation(tuple(branches))

    def flags(self) -> None:
        """Reads flags at the beginning of a group, which hold for the whole group; flags elsewhere are refused."""
        found = re.compile(_FLAGS).match(self.pattern, self.i)
        if found:
            self.i = found.end()
            self.set_flags(found[1], found[2] or "")

    def set_flags(self, on: str, off: str) -> None:
        self.any_case = ("i" in on or self.any_case) and "i" not in off
        self.dot_is_all = ("m" in on or self.dot_is_all) and "m" not in off

    def sequence(self) -> Node:
        parts: list[Node] = []
        while self.i < len(self.pattern) and not self.rest_is("|") and not self.rest_is(")"):
            parts.append(self.repeated())
        letters = "".join(part.letter or " " if isinstance(part, Characters) else " " for part in parts)
        if any(pair in letters for pair in _FOLDED_TOGETHER):
            raise self.refuse()
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def repeated(self) -> Node:
        """Reads an element and its repetitions; loops over the empty text are refused, as their result is not clear."""
        node = self.atom()
        while True:
            interval = re.compile(_INTERVAL).match(self.pattern, self.i)
            if interval and len(interval[0]) > _MAX_INTERVAL:
                raise self.refuse()
            if self.i < len(self.pattern) and self.pattern[self.i] in "*+?":
                least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[self.pattern[self.i]]
                self.i += 1
                mode = self.pattern[self.i] if self.rest_is("?") or self.rest_is("+") else ""
                self.i += len(mode)
                node = self.repetition(node, least, most, greedy=mode != "?", possessive=mode == "+")
            elif interval and (interval[1] or interval[3]):
                self.i = interval.end()
                least = int(interval[1] or 0)
                most = least if not interval[2] else int(interval[3]) if interval[3] else None
                if most is not None and most < least:
                    raise self.refuse()
                lazy = interval[4] == "?" and bool(interval[2])
                node = self.repetition(node, least, most, greedy=not lazy, possessive=False)
                if interval[4] and not lazy:
                    # In Oniguruma `{n,m}+` repeats the interval, and `{n}?` makes it optional.
                    most = None if interval[4] == "+" else 1
                    node = self.repetition(node, int(most is None), most, greedy=True, possessive=False)
            else:
                return node

    def repetition(self, body: Node, least: int, most: int | None, *, greedy: bool, possessive: bool) -> Node:
        if isinstance(body, Look) or can_be_empty(body) or (isinstance(body, Characters) and body.letter in ("s", "f")):
            raise self.refuse()
        node = Repetition(body, least, most, greedy)
        if not possessive:
            return node
        if not isinstance(body, Characters):
            raise self.refuse()
        # A possessive loop gives no character back: it ends only where no other member follows.
        ends = Look(False, ~body.members, at_edge=True)
        return Alternation((body, ends)) if most == 1 else Sequence((node, ends))

    def atom(self) -> Node:
        c = self.pattern[self.i]
        if c == "(":
            return self.group()
        if c == "[":
            members = self.character_class()
            if members.bounds.size == 2 and np.diff(members.bounds) == 1:
                return self.literal(int(members.bounds[0]))
            return Characters(self.of_any_case(members) if self.any_case else members)
        if c == "\\":
            return self.escape()
        if c in "*+?":
            raise self.refuse()
        self.i += 1
        match c:
            case ".":
                return Characters(ALL if self.dot_is_all else ~_NEWLINE)
            case "^":
                within = Sequence((Look(True, _NEWLINE, False), Look(False, ALL, False)))
                return Alternation((Look(True, NONE, True), within))
            case "$":
                return Look(False, _NEWLINE, True)
            case _:
                return self.literal(ord(c))

    def literal(self, code_point: int) -> Characters:
        members = CodePoints.of([(code_point, code_point)])
        if not self.any_case:
            return Characters(members)
        letter = chr(code_point).lower()
        return Characters(self.of_any_case(members), letter if letter in string.ascii_lowercase else "")

    def of_any_case(self, members: CodePoints) -> CodePoints:
        if members.bounds.max(initial=0) > 0x80:
            raise self.refuse()
        found = members
        for letter in string.ascii_lowercase:
            cases = CodePoints.of((ord(x), ord(x)) for x in (letter, letter.upper()))
            if members & cases != NONE:
                other = _OF_OTHER_CASE.get(letter)
                found |= cases if other is None else cases | CodePoints.of([(other, other)])
        return found

    def group(self) -> Node:
        found = re.compile(_GROUP).match(self.pattern, self.i)
        if found is None:
            raise self.refuse()
        self.i = found.end()
        if found[0].startswith("(?#"):
            return Sequence(())
        flags = self.any_case, self.dot_is_all
        self.set_flags(found[1] or "", found[2] or "")
        node = self.alternation()
        self.any_case, self.dot_is_all = flags
        if not self.skip(")"):
            raise self.refuse()
        if found[3] is None:
            return node
        behind = found[3].startswith("<")
        members, at_edge = self.one_character(node, behind=behind)
        negated = found[3].endswith("!")
        return Look(behind, ~members if negated else members, at_edge ^ negated)

    def one_character(self, node: Node, *, behind: bool) -> tuple[CodePoints, bool]:
        """Returns the set of characters that a lookaround allows, and whether it holds at the edge of the text."""
        match node:
            case Characters() if not node.letter:
                return node.members, False
            case Look() if node.behind == behind:
                return node.members, node.at_edge
            case Alternation():
                members, at_edge = NONE, False
                for branch in node.branches:
                    more, edge = self.one_character(branch, behind=behind)
                    members, at_edge = members | more, at_edge or edge
                return members, at_edge
            case _:
                raise self.refuse()

    def escape(self) -> Node:
        members = self.property(in_class=False)
        if members is not None:
            if self.any_case:
                raise self.refuse()
            return Characters(members)
        text = self.pattern[self.i : self.i + 2]
        if text in (r"\A", r"\z"):
            self.i += 2
            return Look(text == r"\A", NONE, True)
        if text in (r"\b", r"\B"):
            self.i += 2
            words = _property_members(r"\w", in_class=False, unicode=self.unicode)
            if words == NONE:
                raise self.refuse()
            word, other = (words, False), (~words, True)
            sides = [(word, other), (other, word)] if text == r"\b" else [(word, word), (other, other)]
            return Alternation(tuple(Sequence((Look(True, *a), Look(False, *b))) for a, b in sides))
        return self.literal(self.escaped())

    def escaped(self) -> int:
        """Reads an escape that is one character."""
        found = re.compile(_ESCAPED).match(self.pattern, self.i)
        if found is None:
            raise self.refuse()
        self.i = found.end()
        if found[4]:
            return _ESCAPES.get(found[4], ord(found[4]))
        code_point = int(found[1] or found[2] or found[3], 16)
        if code_point >= N_CODE_POINTS:
            raise self.refuse()
        return code_point

    def property(self, *, in_class: bool) -> CodePoints | None:
        found = read_property(self.pattern, self.i)
        if found is None:
            if self.skip(r"\h"):
                return _HEXADECIMAL
            return ~_HEXADECIMAL if self.skip(r"\H") else None
        name, negated, stop = found
        members = _property_members(name, in_class, self.unicode)
        if members == NONE:
            raise self.refuse()
        self.i = stop
        return ~members if negated else members

    def character_class(self) -> CodePoints:
        """Reads the class that begins here, which may contain classes and intersections."""
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise self.refuse()
        self.i += 1
        negated = self.skip("^")
        if negated and self.any_case:
            raise self.refuse()
        total, members = ALL, NONE
        ranges: list[tuple[int, int]] = []
        is_first = True
        while not self.rest_is("]") or is_first:
            is_first = False
            if self.i >= len(self.pattern) or self.rest_is("[:"):
                raise self.refuse()
            if self.rest_is("["):
                members |= self.character_class()
            elif self.skip("&&"):
                total, members, ranges = total & (members | CodePoints.of(ranges)), NONE, []
            else:
                found = self.property(in_class=True)
                if found is None:
                    ranges.append(self.class_range())
                else:
                    members |= found
        self.i += 1
        self.depth -= 1
        total &= members | CodePoints.of(ranges)
        return ~total if negated else total

    def class_range(self) -> tuple[int, int]:
        first = last = self.class_character()
        if RANGE_GOES_ON.match(self.pattern, self.i):
            self.i += 1
            last = self.class_character()
        if last < first:
            raise self.refuse()
        return first, last

    def class_character(self) -> int:
        if self.rest_is("\\"):
            return self.escaped()
        self.i += 1
        return ord(self.pattern[self.i - 1])
