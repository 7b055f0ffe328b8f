"""Reading the files that several programs read."""

import gzip
import zlib
from pathlib import Path
from typing import Any

import orjson

from jobs.errors import UserError

__all__ = ["read_json"]


def read_json(path: Path) -> Any:
    """Read a JSON document; one whose name ends in `.gz` is unpacked.

    Raises
    ------
    UserError
        If it cannot be read, or is not JSON.
    """
    try:
        content = path.read_bytes()
        return orjson.loads(gzip.decompress(content) if path.name.endswith(".gz") else content)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"`{path}` cannot be read: {getattr(error, 'strerror', None) or 'it is damaged'}.") from error
    except orjson.JSONDecodeError as error:
        raise UserError(f"`{path.name}` is not JSON: {error} (NaN and Infinity are no JSON).") from error
