# SPDX-License-Identifier: Apache-2.0
"""HTML of a report: whatever text is put in comes out as that text, and as nothing else."""

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from pipeline.reporting.elements import element, page


class Reader(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.attributes = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.texts.append(data)


PRINTABLE = st.text(st.characters(exclude_categories=["Cc", "Cs", "Cf", "Cn"])) | st.sampled_from(
    [
        "<script>alert(1)</script>",
        "</title><img src=x onerror=alert(1)>",
        "&lt;",
        "]]>",
        "<!--",
        "' onclick='x",
        '" a="',
    ]
)


@given(PRINTABLE, PRINTABLE)
def test_text_stays_text(text, attribute):
    written = page(element("html", element("p", text, element("b", text), text, title=attribute)))
    read = Reader(written)
    assert read.tags == ["html", "p", "b"]
    assert read.attributes == [("title", attribute)]
    assert "".join(read.texts).strip() == (text * 3).strip()


def test_what_no_page_may_hold_is_written_as_an_escape():
    written = page(element("p", "a\x00b\u202ec\ud800d\ufffee\u0085"))
    assert "a\\x00b\\u202ec\\xd800d\\xfffee\\x85" in written
    written.encode("utf-8")


def test_texts_around_elements_keep_their_order():
    assert page(element("p", "1", element("b", "2"), "3", "4", element("i"), "5")).splitlines()[1] == (
        "<p>1<b>2</b>34<i></i>5</p>"
    )
