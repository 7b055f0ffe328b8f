"""What the readers of XML share: its elements one after the other, in bounded memory, from files that nobody vouches for."""

from collections.abc import Iterator
from typing import Any

from lxml import etree

from jobs.replay.files import InputFile
from jobs.replay.fixes import DamagedError

__all__ = ["elements", "local_name", "root_of"]

PIECE_BYTES = 1 << 15
MAX_BETWEEN_BYTES = 1 << 22
"""Most that a file may hold between two elements that a reader wants, since all of it is in memory, up to 40 times as large."""

SAFE = {"resolve_entities": False, "no_network": True, "load_dtd": False, "huge_tree": False}


def elements(file: InputFile, tags: tuple[str, ...], events: tuple[str, ...] = ("end",)) -> Iterator[tuple[str, Any]]:
    """Yield (event, element) of some tags in whatever namespace; an element's content is gone when the next one comes.

    Entities are not followed, nothing is fetched, and texts and depths that would need much memory end the file.

    Raises
    ------
    DamagedError
        After all whole elements before the place where the file is no XML.
    """
    parser = etree.XMLPullParser(events, tag=tuple(f"{{*}}{tag}" for tag in tags), **SAFE)
    between, within = 0, None
    with file.open() as content:
        while True:
            piece = content.read1(PIECE_BYTES)  # type: ignore[attr-defined]  # what comes before damage comes by itself
            between += len(piece)
            error: etree.XMLSyntaxError | None = None
            try:
                if piece:
                    parser.feed(piece)
                else:
                    parser.close()
            except etree.XMLSyntaxError as found:
                error = found
            for event, element in parser.read_events():
                between = 0
                yield event, element
                if event == "end":
                    element.clear()
                    _forget_before(element)
                    if (parent := element.getparent()) is not within:
                        # what ended around the parent stays in memory, too: many short tracks would add up
                        within = parent
                        for ancestor in element.iterancestors():
                            _forget_before(ancestor)
            # a prefix that nobody declared is common among the extensions of GPX, and breaks nothing
            if error is not None and {entry.domain for entry in parser.feed_error_log} != {etree.ErrorDomains.NAMESPACE}:
                raise DamagedError("its XML is broken or not whole") from error
            if between > MAX_BETWEEN_BYTES:
                raise DamagedError("megabytes of its XML are no positions")
            if not piece:
                return


def _forget_before(element: Any) -> None:
    """Remove what ended before an element in the same parent."""
    parent = element.getparent()
    while parent is not None and element.getprevious() is not None:
        del parent[0]


def local_name(element: Any) -> str:
    """Return the tag of an element without its namespace."""
    return str(etree.QName(element).localname)


def root_of(head: bytes) -> str | None:
    """Return the name of the outermost element of a file that begins with `head`, without its namespace; None if that is no XML."""
    parser = etree.XMLPullParser(("start",), **SAFE)
    try:
        parser.feed(head)
        event = next(iter(parser.read_events()), None)
    except etree.XMLSyntaxError:
        event = next(iter(parser.read_events()), None)
    return None if event is None else local_name(event[1])
