# SPDX-License-Identifier: Apache-2.0
"""HTML as a tree of elements: text goes in as it is and comes out escaped, wherever it is from."""

import re
from xml.etree.ElementTree import Element, tostring

_NOT_ALLOWED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_DIRECTIONS = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def element(tag: str, *children: Element | str, **attributes: str) -> Element:
    """Returns an element.

    Args:
      tag: its name.
      children: elements, and texts, which are escaped when the tree is written.
      attributes: by name; a `_` at the end of a name is dropped (`class_`), others become hyphens.
    """
    made = Element(tag, {name.rstrip("_").replace("_", "-"): visible(text) for name, text in attributes.items()})
    last: Element | None = None
    for child in children:
        if isinstance(child, Element):
            made.append(child)
            last = child
        elif last is None:
            made.text = (made.text or "") + visible(child)
        else:
            last.tail = (last.tail or "") + visible(child)
    return made


def page(root: Element) -> str:
    """Returns a document as HTML5: everything that was given as text is escaped."""
    return "<!DOCTYPE html>\n" + tostring(root, encoding="unicode", method="html") + "\n"


def visible(text: str) -> str:
    """Returns text with escapes for characters that HTML forbids or that would reverse the text around them."""
    text = _NOT_ALLOWED.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
    return _DIRECTIONS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
