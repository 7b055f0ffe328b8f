"""The deployment's secret and the password for Kafka: where they are read, and how their absence is refused."""

import hashlib
import os
from pathlib import Path

from pydantic import SecretStr

from geo.privacy.prf import subkey
from streaming.settings import KafkaSecurity, SecretSource

__all__ = ["SecretError", "load_password", "load_secret", "secret_check"]

MIN_BYTES = 32


class SecretError(ValueError):
    """A secret is missing or unusable; the message says what to do and never shows the secret."""


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


def load_password(security: KafkaSecurity) -> SecretStr:
    """Read the password for Kafka.

    Kafka's clients inside Flink read it from the same place by themselves, as part of a quoted text: hence what it may consist of.

    Parameters
    ----------
    security
        Settings that name a file or an environment variable.

    Raises
    ------
    SecretError
        If the file or variable is missing, or does not hold exactly a password.
    """
    if security.password_file is not None:
        where = f"the password file {security.password_file}"
        if set(str(Path(security.password_file).absolute())) & set(":}"):
            raise SecretError(f"{where} lies at a path with `:` or `}}`, which Kafka's clients cannot read; move it")
        try:
            text = Path(security.password_file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise SecretError(f"{where} cannot be read; create it as a text file with the password of {security.username}") from None
    else:
        where = f"the environment variable {security.password_env}"
        text = os.environ.get(security.password_env or "", "")
    if not text:
        raise SecretError(f"{where} is empty; let it hold the password of {security.username}")
    if not (text.isascii() and text.isprintable()) or set(text) & set('"\\'):
        raise SecretError(
            f"{where} must hold the password alone, in ASCII and without line breaks, quotes and backslashes; write it with `printf %s`"
        )
    return SecretStr(text)
