"""The keyed pseudo-random function: the only source of randomness for releases."""

import hashlib

import numpy as np
from numpy.typing import NDArray

__all__ = ["MAX_SECRET_BYTES", "MIN_SECRET_BYTES", "digests", "look_bits", "stream", "subkey"]

MIN_SECRET_BYTES = 16
MAX_SECRET_BYTES = 64
_ROWS_AND_BYTES = 2
_LOOK_BYTES = 8
_STREAM_KEY_BYTES = 32


def subkey(secret: bytes, *purpose: bytes) -> bytes:
    """Derive the key of one purpose from the secret.

    Parameters
    ----------
    secret : bytes
        16 to 64 bytes from a cryptographic source. Who knows it can remove all noise.
    *purpose : bytes
        Any number of parts. Each is hashed with its length before it, so two different lists never give the same message.

    Returns
    -------
    bytes
        32 bytes, BLAKE2b keyed with `secret` (RFC 7693).

    Raises
    ------
    ValueError
        If `secret` is too short or too long.
    """
    _check(secret, "secret")
    state = hashlib.blake2b(key=secret, digest_size=32)
    for part in purpose:
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.digest()


def digests(key: bytes, messages: NDArray[np.generic], size: int) -> NDArray[np.uint8]:
    """Hash each row under a key.

    As long as BLAKE2b is a pseudo-random function and `key` is unknown, the rows are indistinguishable from independent uniform
    bytes, one per different message; equal messages give equal rows.

    Parameters
    ----------
    key : bytes
        16 to 64 bytes, usually from `subkey`.
    messages : ndarray with shape (n, k) of uint8, or (n,) of a structured type
        One message per row; its bytes in memory are what is hashed, so a structured type should fix its byte order.
    size : int
        Bytes per digest, 1 to 64.

    Returns
    -------
    ndarray of uint8 with shape (n, size)

    Raises
    ------
    ValueError
        If `key`, `size` or the type of `messages` is outside its range.
    """
    _check(key, "key")
    if not 1 <= size <= hashlib.blake2b.MAX_DIGEST_SIZE:
        raise ValueError("`size` should be from 1 to 64 bytes.")
    rows = messages.dtype.names is not None and messages.ndim == 1
    if not rows and not (messages.dtype == np.uint8 and messages.ndim == _ROWS_AND_BYTES):
        raise ValueError("`messages` should be a 2-D array of uint8 or a 1-D structured array.")
    count = len(messages)
    width = messages.dtype.itemsize if rows else messages.shape[1]
    data = memoryview(np.ascontiguousarray(messages).tobytes())
    # Copying a keyed state costs a third less than keying a new one for each row.
    fresh = hashlib.blake2b(key=key, digest_size=size).copy
    out = []
    for start in range(0, count * width, width) if width else (0,) * count:
        state = fresh()
        state.update(data[start : start + width])
        out.append(state.digest())
    return np.frombuffer(b"".join(out), dtype=np.uint8).reshape(count, size)


def look_bits(
    key: bytes, user: NDArray[np.uint64], tick: int, cells: NDArray[np.int64], size: int
) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
    """Hash each user at a tick with what a mechanism looks at.

    Parameters
    ----------
    key : bytes
        16 to 64 bytes, usually from `subkey`.
    user : ndarray of uint64 with shape (n,)
        Identifiers.
    tick : int
        Number of the tick, a signed 64-bit integer.
    cells : ndarray of int64 with shape (n, k)
        Everything else that the bits are to depend on.
    size : int
        Bytes for the noise, 1 to 56.

    Returns
    -------
    bits : ndarray of uint8 with shape (n, size)
        As `digests`.
    look : ndarray of uint64 with shape (n,)
        Eight more bytes of the same digest: equal iff all of the above are (but for a chance of 2^-64).
    """
    messages = np.empty((len(cells), 2 + cells.shape[1]), "<i8")
    messages[:, 0], messages[:, 1], messages[:, 2:] = user.view(np.int64), tick, cells
    both = digests(key, messages.view(np.uint8), size + _LOOK_BYTES)
    look = np.ascontiguousarray(both[:, size:]).view("<u8")[:, 0].astype(np.uint64)
    return np.ascontiguousarray(both[:, :size]), look


def stream(key: bytes, size: int) -> NDArray[np.uint8]:
    """Stretch a key into as many bytes as one release needs.

    SHAKE-256 of the key (FIPS 202). Its sponge hides 512 bits of state from any output, so that as long as it behaves as a random function
    and the key is unknown, the bytes are indistinguishable from uniform ones, and those of different keys from independent ones. The
    key is the whole message and has one length: nothing can be appended, and no key is the beginning of another.

    Parameters
    ----------
    key : bytes
        32 bytes, from `subkey` over everything that the release depends on.
    size : int
        Number of bytes, at least 0.

    Returns
    -------
    ndarray of uint8 with shape (size,)

    Raises
    ------
    ValueError
        If `key` has another length.
    """
    if len(key) != _STREAM_KEY_BYTES:
        raise ValueError("`key` should have 32 bytes.")
    return np.frombuffer(hashlib.shake_256(key).digest(size), dtype=np.uint8)


def _check(key: bytes, name: str) -> None:
    if not MIN_SECRET_BYTES <= len(key) <= MAX_SECRET_BYTES:
        raise ValueError(f"`{name}` should have {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} bytes.")
