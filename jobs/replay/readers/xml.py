"""What the readers of XML share: its elements one after the other, in bounded memory, from files that nobody vouches for."""

from collections.abc import Iterator
from typing import Any

from lxml import etree

from jobs.replay.files import InputFile
from jobs.replay.fixes import DamagedError

__all__ = ["elements", "local_name", "root_of"]


def elements(file: InputFile, tags: tuple[str, ...], events: tuple[str, ...] = ("end",)) -> Iterator[tuple[str, Any]]:
    """Yield (event, element) of some tags in whatever namespace; an element's content is gone when the next one comes.

    Entities are not followed, nothing is fetched, and texts and depths that would need much memory end the file.

    Raises
    ------
    DamagedError
        After all whole elements before the place where the file is no XML.
    """
    names = tuple(f"{{*}}{tag}" for tag in tags)
    with file.open() as content:
        try:
            found = etree.iterparse(content, events, tag=names, resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
            for event, element in found:
                yield event, element
                if event == "end":
                    element.clear()
                    parent = element.getparent()
                    while parent is not None and element.getprevious() is not None:
                        del parent[0]
        except etree.XMLSyntaxError as error:
            raise DamagedError("its XML is broken or not whole") from error


def local_name(element: Any) -> str:
    """Return the tag of an element without its namespace."""
    return str(etree.QName(element).localname)


def root_of(head: bytes) -> str | None:
    """Return the name of the outermost element of a file that begins with `head`, without its namespace; None if that is no XML."""
    parser = etree.XMLPullParser(("start",), resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    try:
        parser.feed(head)
        event = next(iter(parser.read_events()), None)
    except etree.XMLSyntaxError:
        event = next(iter(parser.read_events()), None)
    return None if event is None else local_name(event[1])
