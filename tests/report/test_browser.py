"""A report in a real browser: nothing is fetched, nothing complains, all of it can be read."""

from __future__ import annotations

import itertools
import struct
from pathlib import Path

import pytest

from jobs.report.data import gather
from jobs.report.page import render
from jobs.storage import Storage
from jobs.store import Store
from tests.report.test_page import HOSTILE
from tests.support.chromium import Chromium
from tests.support.made_evaluations import MadeEvaluations, a_row
from tests.support.made_series import add_series, score

# What a person sees must stand out from what it stands on: WCAG 2, 4.5 to 1 for text.
CONTRAST = """
(() => {
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map(v => v / 255)
      .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const numbers = color => (color.match(/[\\d.]+/g) || []).map(Number);
  const back = element => {
    for (let e = element; e; e = e.parentElement) {
      const color = numbers(getComputedStyle(e).backgroundColor);
      if (color.length === 3 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  const bad = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some(n => n.nodeType === 3 && n.data.trim());
    if (!own || element.closest("title")) continue;
    const style = getComputedStyle(element);
    const ink = numbers(element.closest("svg") ? style.fill : style.color).slice(0, 3);
    const [a, b] = [luminance(ink), luminance(back(element).slice(0, 3))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) bad.push([element.tagName, element.textContent.slice(0, 40), ratio]);
  }
  return bad;
})()
"""
# Names of what a screen reader meets: every plot, table and scrolled part has one.
UNNAMED = """
[...document.querySelectorAll("svg[role=img], [role=region], table, section, nav")].filter(e =>
  !(e.getAttribute("aria-label") || (e.tagName === "TABLE" && e.caption.textContent) ||
    document.getElementById(e.getAttribute("aria-labelledby"))?.textContent)).length
"""
TEXT_SIZES = """
Math.min(...[...document.querySelectorAll("svg[role=img] text")].map(e =>
  parseFloat(getComputedStyle(e).fontSize) * e.getScreenCTM().a))
"""


@pytest.fixture
def page(made: MadeEvaluations, store: Store, storage: Storage, tmp_path: Path) -> Path:
    add_series(made)
    path = tmp_path / "report.html"
    path.write_text(render(gather(store, storage, None, None, 30, 50)), "utf-8")
    return path


def size(png: bytes) -> tuple[int, int]:
    width, height = struct.unpack(">II", png[16:24])
    return width, height


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [375, 1440])
def test_it_fits_is_quiet_and_can_be_read(
    browser: Chromium, page: Path, width: int, dark: bool
) -> None:
    browser.open(page, width, dark=dark)

    assert browser.complaints() == []
    assert browser.requests() == [page.as_uri()]
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    assert browser.evaluate("document.querySelector('h1').getBoundingClientRect().height") > 20
    browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    cells = "[...document.querySelectorAll('.stack td')].map(e => e.getBoundingClientRect().right)"
    assert max(browser.evaluate(cells)) <= width  # nobody has to scroll for the scores
    assert browser.evaluate(CONTRAST) == []
    assert browser.evaluate(UNNAMED) == 0
    assert browser.evaluate(TEXT_SIZES) >= 9
    ink = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ink == ("rgb(13, 17, 23)" if dark else "rgb(255, 255, 255)")
    taken = browser.screenshot()
    assert size(taken) == (width, 900)
    assert len(taken) > 20_000  # an empty page has few bytes


def test_all_of_it_works_without_scripts(browser: Chromium, page: Path) -> None:
    """Headings are in order, links lead to sections, and the keyboard opens an example."""
    browser.open(page)

    assert browser.evaluate("document.scripts.length") == 0
    levels = browser.evaluate(
        "[...document.querySelectorAll('h1,h2,h3,h4,h5')].map(h => h.tagName)"
    )
    assert levels[0] == "H1"
    assert levels.count("H1") == 1
    steps = [int(b[1]) - int(a[1]) for a, b in itertools.pairwise(levels)]
    assert max(steps) == 1
    targets = browser.evaluate(
        "[...document.querySelectorAll('a')].map(a => !!document.querySelector(a.hash))"
    )
    assert targets
    assert all(targets)
    closed = "document.querySelector('details.example:not([open]) > summary')"
    before = browser.evaluate("document.querySelectorAll('details[open]').length")
    browser.evaluate(f"{closed}.focus()")
    for kind in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key="Enter", text="\r", code="Enter")
    assert browser.evaluate("document.querySelectorAll('details[open]').length") == before + 1


def test_what_answers_hold_runs_nowhere(
    browser: Chromium, made: MadeEvaluations, store: Store, storage: Storage, tmp_path: Path
) -> None:
    texts = [text.encode("utf-8", "replace").decode() for text in HOSTILE]
    for value in (1.0, 0.0):
        rows = [
            a_row(
                i, f"{text} {value}", prompt=text, target=text, notes={"exact": text}, exact=value
            )
            for i, text in enumerate([*texts, "line\n" * 5_000])
        ]
        made.add(rows=rows, scores=[score("exact", value)])
    path = tmp_path / "hostile.html"
    path.write_text(render(gather(store, storage, None, None, 30, 50)), "utf-8")

    browser.open(path, 375)
    browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")

    assert browser.complaints() == []
    assert browser.requests() == [path.as_uri()]
    assert (
        browser.evaluate("document.querySelectorAll('script, img, iframe, [onload]').length") == 0
    )
    assert browser.evaluate("document.documentElement.scrollWidth") == 375
    assert not any(method == "Page.javascriptDialogOpening" for method, _ in browser.events)


def test_a_script_that_got_in_would_not_run(browser: Chromium, page: Path) -> None:
    """The policy holds by itself, if ever a text were not escaped; and complaints are heard."""
    text = page.read_text("utf-8")
    broken = page.with_name("broken.html")
    evil = "<script>document.title = 'owned'</script><img src=https://example.com/x.png>"
    broken.write_text(text.replace("</main>", f"{evil}</main>"), "utf-8")

    browser.open(broken)

    assert "owned" not in browser.evaluate("document.title")
    assert len(browser.complaints()) >= 2


def test_what_is_folded_is_printed(browser: Chromium, page: Path) -> None:
    seen = """[...document.querySelectorAll('details:not([open]) .sides')]
        .map(e => e.checkVisibility())"""
    browser.open(page)
    assert not any(browser.evaluate(seen))

    browser.call("Emulation.setEmulatedMedia", media="print")

    folded = browser.evaluate(seen)
    assert folded
    assert all(folded)
    assert browser.pdf().startswith(b"%PDF")
