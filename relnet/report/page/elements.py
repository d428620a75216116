"""HTML as a tree: whatever is text is escaped where the tree is written, so that no name a user gave can become markup."""

from collections.abc import Iterable
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

Node = str | Element | None
Content = Node | Iterable[Node]


def element(tag: str, *content: Content, **attributes: str | bool | None) -> Element:
    """An element with text and elements in it.

    attributes: "class_" stands for class, other underscores for hyphens; True is an attribute without a value, None or False is none.

    >>> document(element("p", "a < b ", element("b", "c"), class_="note"))
    '<!DOCTYPE html>\\n<p class="note">a &lt; b <b>c</b></p>\\n'
    """
    made = Element(tag)
    for name, value in attributes.items():
        if value is not None and value is not False:
            made.set(name.rstrip("_").replace("_", "-"), "" if value is True else value)
    for part in content:
        for one in [part] if part is None or isinstance(part, str | Element) else part:
            _append(made, one)
    return made


def _append(parent: Element, part: Node) -> None:
    if isinstance(part, Element):
        parent.append(part)
    elif part is not None and len(parent):
        parent[-1].tail = (parent[-1].tail or "") + part
    elif part is not None:
        parent.text = (parent.text or "") + part


def document(root: Element) -> str:
    """The page as text. What stands in script and style elements is written as it is."""
    return f"<!DOCTYPE html>\n{ElementTree.tostring(root, encoding='unicode', method='html')}\n"
