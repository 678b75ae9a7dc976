"""A page as a parser sees it: elements with their attributes and texts, and whether it is whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = frozenset({"meta", "br", "img", "link", "input", "hr"})


@dataclass
class Element:
    tag: str
    attributes: dict[str, str | None] = field(default_factory=dict)
    children: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(c if isinstance(c, str) else c.text for c in self.children)

    def all(self, tag: str | None = None, **attributes: str) -> Iterator[Element]:
        """Elements below this one of a tag, with those words in attributes (`class_`: class)."""
        for child in self.children:
            if isinstance(child, str):
                continue
            wanted = {name.rstrip("_"): value for name, value in attributes.items()}
            if tag in (None, child.tag) and all(
                value in (child.attributes.get(name) or "").split()
                for name, value in wanted.items()
            ):
                yield child
            yield from child.all(tag, **attributes)

    def one(self, tag: str | None = None, **attributes: str) -> Element:
        (found,) = self.all(tag, **attributes)
        return found


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = Element("#root")
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(attrs) == len(dict(attrs)), f"<{tag}> has an attribute twice"
        element = Element(tag, dict(attrs))
        self.open[-1].children.append(element)
        if tag not in _VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].children.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> ends <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def parsed(page: str) -> Element:
    """The root of a page, all of whose elements are closed as they were opened."""
    parser = _Parser()
    parser.feed(page)
    parser.close()
    assert [element.tag for element in parser.open] == ["#root"]
    return parser.root
