"""Which formats there are, and which of them a file has: told from its content, never from a guess about its numbers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module

from jobs.replay.files import InputFile
from jobs.replay.fixes import Batch, ReadOptions

__all__ = ["FORMATS", "Format", "recognise"]


@dataclass(frozen=True)
class Format:
    """A format of files of fixes; its module in `jobs.replay.readers`, which is loaded when it is needed, has the two functions below.

    Attributes
    ----------
    name : str
        What `--format` calls it.
    module : str
        Module of `jobs.replay.readers`.
    title : str
        What it is, for people.
    """

    name: str
    module: str
    title: str

    def recognises(self, file: InputFile, head: bytes) -> bool:
        """Tell whether a file whose first bytes are `head` has this format."""
        found: Callable[[InputFile, bytes], bool] = import_module(f"jobs.replay.readers.{self.module}").recognises
        return found(file, head)

    def read(self, file: InputFile, options: ReadOptions) -> Iterator[Batch]:
        """Read a file, in its order; raises `DamagedError` where it cannot go on."""
        read: Callable[[InputFile, ReadOptions], Iterator[Batch]] = import_module(f"jobs.replay.readers.{self.module}").read
        return read(file, options)


FORMATS = (
    Format("geolife", "geolife", "GeoLife track (.plt)"),
    Format("tdrive", "tdrive", "T-Drive taxi"),
    Format("cabspotting", "cabspotting", "Cabspotting taxi"),
    Format("porto", "porto", "Porto taxi trips (CSV of polylines)"),
    Format("gpx", "gpx", "GPX 1.0 or 1.1"),
    Format("sumo", "sumo", "SUMO floating car data (fcd-export)"),
    Format("nmea", "nmea", "NMEA 0183 sentences"),
    Format("owntracks", "owntracks", "OwnTracks recorder (.rec)"),
    Format("traccar", "traccar", "Traccar positions"),
    Format("takeout", "takeout", "Google location history (Records, semantic, phone Timeline, iOS)"),
    Format("geojson", "geojson", "GeoJSON points and tracks"),
    Format("parquet", "parquet", "Parquet or GeoParquet table"),
    Format("csv", "table", "CSV with a header"),
)
"""In the order in which they are tried: what is more particular comes first."""


def recognise(file: InputFile, head: bytes) -> Format | None:
    """Return the format of a file, or None if it has none of them."""
    return next((format_ for format_ in FORMATS if format_.recognises(file, head)), None)
