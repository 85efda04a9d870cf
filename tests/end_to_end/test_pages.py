# SPDX-License-Identifier: Apache-2.0
"""The pages in a browser: wide, narrow, dark and printed, with text in them that would rather be something else.

Nothing is said on the console, nothing asked for, nothing wider than the window. Where `TOKENMILL_AXE` names
`axe.min.js`, of the npm package axe-core, it finds nothing to say about accessibility. `TOKENMILL_PICTURES` names a
folder for pictures of all pages, to look at.
"""

import json
import os
from pathlib import Path

import pytest

from tests import browser as browsers
from tokenmill.pipeline import cli
from tokenmill.tokenizer import BPETrainer, Tokenizer

EVIL = '<script>alert(1)</script><img src="x" onerror="alert(2)"></td></table> \u202e the mill'
TEXTS = [EVIL, "the mill grinds the text into tokens", "x" * 3000, "玫瑰 café \U0001f339 Ⰻ", "", EVIL * 40]
LOOKS = {
    "wide": {"width": 1280},
    "narrow": {"width": 390},
    "dark": {"width": 1280, "dark": True},
    "dark and narrow": {"width": 390, "dark": True},
    "print": {"width": 794, "media": "print"},  # A4
}
PAGES = ("report", "comparison", "viz")

# What scrolls in a box of its own may be wider.
TOO_WIDE = """[...document.querySelectorAll("body *")].filter(each =>
    !each.parentElement.closest(".scroll, svg") && each.getBoundingClientRect().right > WIDTH + 1
).map(each => each.outerHTML.slice(0, 200))"""


def too_wide(width, media="screen", **_):
    """Returns a script for what sticks out of a window; not by `innerWidth`, which grows with it on a telephone."""
    script = TOO_WIDE.replace("WIDTH", str(width))
    return script.replace(".scroll, ", "") if media == "print" else script  # paper does not scroll


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    program = browsers.find()
    if program is None:
        pytest.skip(f"needs a Chromium: none of {', '.join(browsers.NAMES)} is on the PATH; set TOKENMILL_CHROMIUM")
    started = browsers.Browser(program, tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A report of a job, a comparison and a text in tokens, of text that is hostile."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "<i>in").mkdir()
    for language in ("en", EVIL, "zh"):
        rows = [{"id": EVIL, "text": text, "lang": language} for text in TEXTS] * 5
        lines = "".join(f"{json.dumps(row)}\n" for row in rows)
        (folder / f"<i>in/{language[:3]}&.jsonl").write_text(f"{lines}{{no json {EVIL}\n", encoding="utf-8")
    train = {"model": "wordpiece", "vocab_size": 130, "min_frequency": 1, "limit_alphabet": 40}
    config = {
        "input": {"paths": [str(folder / "<i>in/*.jsonl")], "split_bytes": 2000},
        "languages": {},
        "normalize": ["default"],
        "tokenizer": {"train": train},
        "output": {"path": str(folder / "out")},
    }
    (folder / "job.yaml").write_text(json.dumps(config), encoding="utf-8")
    vocab = str(folder / "out/vocab")
    other = folder / "bytes<b>.json"
    blank = Tokenizer.untrained("none", "gpt2", byte_level=True)
    blank.train_from_iterator(TEXTS, BPETrainer(vocab_size=300, byte_level=True)).save(other)
    (folder / "text.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    found = {
        "report": folder / "out/report.html",
        "comparison": folder / "comparison.html",
        "viz": folder / "viz.html",
    }
    compare = ["compare", vocab, str(other), "--on", str(folder / "<i>in"), "--lang-field", "lang", "--speed"]
    viz = ["viz", str(folder / "text.txt"), "--tokenizer", vocab, "--tokenizer", str(other)]
    assert cli.main(["run", str(folder / "job.yaml"), "--workers", "1", "--quiet"]) == 0
    assert cli.main([*compare, "--html", str(found["comparison"]), "--quiet"]) == 0
    assert cli.main([*viz, "--html", str(found["viz"]), "--quiet"]) == 0
    return found


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_quiet_fits_and_shows_text_as_text(browser, pages, page, look):
    browser.open(pages[page], **LOOKS[look])
    if folder := os.environ.get("TOKENMILL_PICTURES"):
        browser.picture(Path(folder) / f"{page}-{look.replace(' ', '-')}.png")
    assert browser.evaluate("document.querySelectorAll('script, img, iframe, link, object').length") == 0
    text = browser.evaluate("document.body.textContent")
    assert "<script>" in text
    assert "\u202e" not in text
    assert browser.evaluate(too_wide(**LOOKS[look])) == []
    assert browser.requests() == [pages[page].as_uri()]
    assert browser.noise() == []


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("page", PAGES)
def test_axe_finds_nothing(browser, pages, page, look):
    if (axe := os.environ.get("TOKENMILL_AXE")) is None:
        pytest.skip("needs axe-core: set TOKENMILL_AXE to axe.min.js of the npm package axe-core")
    browser.open(pages[page], **LOOKS[look])
    browser.evaluate(f"{Path(axe).read_text(encoding='utf-8')};0")
    found = browser.evaluate("axe.run().then(found => found.violations)")
    assert [(each["id"], [node["html"][:200] for node in each["nodes"]][:5]) for each in found] == []


def test_a_page_that_is_not_quiet_is_seen(browser, tmp_path):
    page = tmp_path / "loud.html"
    page.write_text('<div style="width:9000px"></div><img src="none.png"><script>console.log(1)</script>', "utf-8")
    browser.open(page, 390)
    assert browser.noise()
    assert len(browser.requests()) == 2
    assert len(browser.evaluate(too_wide(390))) == 1
