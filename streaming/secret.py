"""The deployment's secret: where it is read and how its absence is refused."""

import hashlib
import os
from pathlib import Path

from geo.privacy.prf import subkey
from streaming.settings import SecretSource

__all__ = ["SecretError", "load_secret", "secret_check"]

MIN_BYTES = 32


class SecretError(ValueError):
    """The secret is missing or too short; the message says what to do and never shows the secret."""


def load_secret(source: SecretSource) -> bytes:
    """Read the secret that keys noise, pseudonyms and user ids.

    Parameters
    ----------
    source
        A file or the name of an environment variable (exactly one).

    Returns
    -------
    bytes
        32 bytes derived from the source's content.

    Raises
    ------
    SecretError
        If the file or variable is missing or shorter than 32 bytes.
    """
    if source.file is not None:
        try:
            raw = Path(source.file).read_bytes().strip()
        except OSError as error:
            raise SecretError(f"the secret file {source.file} cannot be read; create it with 32 or more random bytes") from error
    else:
        raw = os.environ.get(source.env or "", "").encode()
        if not raw:
            raise SecretError(f"the environment variable {source.env} holds no secret; set it to 32 or more random bytes")
    if len(raw) < MIN_BYTES:
        raise SecretError(f"the secret has {len(raw)} bytes; use at least {MIN_BYTES} random bytes")
    return hashlib.blake2b(raw, digest_size=32, person=b"wayveil").digest()


def secret_check(secret: bytes) -> str:
    """Return a short keyed digest by which a worker sees that it holds the submitter's secret."""
    return subkey(secret, b"check")[:8].hex()
