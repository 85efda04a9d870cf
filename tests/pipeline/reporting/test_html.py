# SPDX-License-Identifier: Apache-2.0
"""Pages from templates: whatever text is put in comes out as that text, and as nothing else."""

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from tokenmill.pipeline.reporting import html


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
        "<script>alert(1)</script>", "</title><img src=x onerror=alert(1)>", "&lt;", "]]>", "<!--", "' onclick='x",
        '" a="',
    ]
)  # fmt: skip


def made(source, **values):
    return html.environment().from_string(source).render(values)


TABLE = "{% from 'reporting/parts.html.jinja' import table %}{{ table(heads, rows, code=[1]) }}"


@given(PRINTABLE, PRINTABLE)
def test_text_stays_text(text, attribute):
    read = Reader(made('<p title="{{ attribute }}">{{ text }}<b>{{ text }}</b>{{ text|whole }}</p>', **locals()))
    assert read.tags == ["p", "b"]
    assert read.attributes == [("title", attribute)]
    assert "".join(read.texts) == text * 3


@given(PRINTABLE, PRINTABLE)
def test_a_table_keeps_its_shape_and_its_texts(text, head):
    read = Reader(made(TABLE, heads=(head, "b"), rows=[(text, text)]))
    assert read.tags[:4] == ["div", "table", "thead", "tr"]
    assert read.tags[6:] == ["tbody", "tr", "td", "td", "code"]
    assert "".join("".join(read.texts).split()) == "".join((head + "b" + text * 2).split())


def test_what_no_page_may_hold_is_written_as_an_escape():
    for written in (made("{{ text }}", text=HOSTILE), made("{{ text|whole }}", text=HOSTILE)):
        assert written == "a\\x00b\\u202ec\\xd800d\\xfffee\\x85"


HOSTILE = "a\x00b\u202ec\ud800d\ufffee\u0085"


def test_a_share_that_is_not_nothing_does_not_look_like_nothing_or_like_a_formula():
    assert [html.percent(share) for share in (None, 0.0, 6e-7, 0.00004594, 0.5)] == [
        "-", "0 %", "<0.001 %", "0.004594 %", "50 %",
    ]  # fmt: skip
