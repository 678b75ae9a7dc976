"""The pictures of the README: small, whole, and without anything that would be fetched."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from docs.screenshots import IMAGES, MOST_BYTES, as_svg, frames_in

pytestmark = pytest.mark.quick


def fetched(svg: str) -> list[str]:
    """What a picture would have a reader's browser fetch."""
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    names = set(re.findall(r"""xmlns(?::\w+)?="(.*?)\"""", svg))
    return [url for url in re.findall(r"""https?://[^\s"')<]+""", svg) if url not in names]


def test_pictures_are_small_and_whole() -> None:
    pictures = {path.name: path.read_bytes() for path in IMAGES.iterdir()}

    assert pictures.keys() == {"report.png", "watch.svg"}
    assert all(len(content) <= MOST_BYTES for content in pictures.values())
    assert pictures["report.png"].startswith(b"\x89PNG")
    svg = pictures["watch.svg"].decode()
    ET.fromstring(svg)
    assert "rows answered" in svg.replace("&#160;", " ")
    assert fetched(svg) == []


def test_what_a_terminal_took_back_is_a_frame_of_its_own() -> None:
    written = b"\x1b[?25l\x1b[1mone\x1b[0m 5%\r\nline\r\x1b[2K\x1b[1A\x1b[2Ktwo 9%\r\nline\x1b[?25h"

    frames = [frame for frame in frames_in(written) if frame.strip()]

    assert frames == ["\x1b[1mone\x1b[0m 5%\nline", "two 9%\nline"]


def test_a_frame_becomes_a_picture_of_its_own() -> None:
    svg = as_svg("\x1b[1mone\x1b[0m & <two>\n60%\n")

    ET.fromstring(svg)
    assert "&lt;two&gt;" in svg
    assert "font-face" not in svg
    assert fetched(svg) == []
