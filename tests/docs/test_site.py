"""The site: it is made without a warning and without a network, and nothing in it is lost."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest
from bs4 import BeautifulSoup
from typer.main import get_command

import engine
import jobs
from jobs.cli.app import app
from jobs.settings import Settings
from jobs.views import VIEWS
from tests.support.markdown_pages import ROOT, pages


class Site:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pages = {
            path.relative_to(folder).as_posix(): BeautifulSoup(path.read_bytes(), "html.parser")
            for path in folder.rglob("*.html")
        }

    def links(self, page: str) -> Iterator[tuple[str, str]]:
        """Path and anchor of what a page leads to within the site."""
        for tag in self.pages[page].find_all(["a", "img", "link", "script"]):
            link = tag.get("href") or tag.get("src")
            if not link or "://" in link or link.startswith(("mailto:", "data:")):
                continue
            path, _, anchor = unquote(link).partition("#")
            path = path.partition("?")[0]
            target = (self.folder / page).parent / path if path else self.folder / page
            yield target.resolve().relative_to(self.folder).as_posix(), anchor

    def text(self, page: str) -> str:
        article = self.pages[page].find("article")
        assert article is not None
        return article.get_text()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("site").resolve()
    nowhere = "http://127.0.0.1:9"  # whatever is fetched all the same fails at once
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "--builder", "html", "--fresh-env", "--nitpicky",
         "--fail-on-warning", "--keep-going", "--quiet", "--doctree-dir", folder / ".doctrees",
         ROOT / "docs", folder],
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "http_proxy": nowhere,
             "https_proxy": nowhere, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return Site(folder)


def test_every_page_can_be_reached_from_the_index(site: Site) -> None:
    reached, ahead = set(), ["index.html"]
    while ahead:
        page = ahead.pop()
        if page not in reached and page in site.pages:
            reached.add(page)
            ahead += [path for path, _ in site.links(page)]
    markdown = {page.removeprefix("docs/") for page in pages() if page.startswith("docs/")}
    assert {page.replace(".md", ".html") for page in markdown} <= reached


def test_decisions_are_one_entry_of_the_menu(site: Site) -> None:
    """They stand below it, and are seen once it is opened."""
    menu = site.pages["index.html"].find(class_="sidebar-tree")
    assert menu is not None
    records = [path.stem for path in (ROOT / "docs" / "decisions").glob("0*.md")]
    assert len(records) >= 10
    for name in records:
        (entry,) = menu.find_all("a", href=f"decisions/{name}.html")
        (above,) = entry.find_parents("li", class_="toctree-l1")
        assert above.find("a")["href"] == "decisions/index.html"


def test_no_link_is_broken(site: Site) -> None:
    names = {
        page: {tag["id"] for tag in content.find_all(id=True)}
        for page, content in site.pages.items()
    }
    broken = [
        f"{page}: {path}#{anchor}"
        for page in site.pages
        for path, anchor in site.links(page)
        if not (site.folder / path).exists() or (anchor and anchor not in names.get(path, ()))
    ]
    assert broken == []


def test_every_command_and_option_is_in_the_reference(site: Site) -> None:
    text = site.text("reference/commands.html")
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        for inner in getattr(command, "commands", {name: command}).values():
            for parameter in inner.params:
                for option in (*parameter.opts, *parameter.secondary_opts):
                    assert not option.startswith("-") or option in text, (name, option)
                assert not parameter.envvar or parameter.envvar in text
        assert f"pagemill {name}" in text
    assert "--log-level debug|info|warning|error" in text  # choices
    assert "0 to 65535" in text  # bounds
    assert "PAGEMILL_METRICS_PORT" in text


def test_every_setting_column_and_name_is_in_the_reference(site: Site) -> None:
    settings = site.text("reference/settings.html")
    assert all(name in settings for name in Settings.from_env({}).to_env())
    in_the_code = {
        name
        for room in ("jobs", "worker", "engine", "kernels")
        for path in (ROOT / room).rglob("*.py")
        for name in re.findall(r"\bPAGEMILL_[A-Z_]*[A-Z]\b", path.read_text("utf-8"))
    }
    # Of compose files, and of tests.
    in_the_code -= {"PAGEMILL_MODEL", "PAGEMILL_CHECK_INVARIANTS", "PAGEMILL_TEST"}
    assert {name for name in in_the_code if name not in settings} == set()
    views = site.text("reference/views.html")
    assert all(view in views for view in VIEWS)
    assert "rows_per_second" in views
    for package in (jobs, engine):
        page = f"reference/{package.__name__}.html"
        names = {tag["id"] for tag in site.pages[page].find_all(id=True)}
        assert {f"{package.__name__}.{name}" for name in package.__all__} <= names
