import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geo.privacy.prf import digests, stream, subkey

KEY = bytes(range(32))
parts = st.lists(st.binary(max_size=12), max_size=4)


@given(parts, parts)
def test_different_part_lists_give_different_keys(one, other):
    assert (subkey(KEY, *one) == subkey(KEY, *other)) == (one == other)


def test_subkey_has_32_bytes_and_depends_on_the_secret():
    assert len(subkey(KEY)) == 32
    assert subkey(KEY, b"a") != subkey(KEY[::-1], b"a")


@given(st.integers(0, 5), st.integers(0, 200), st.integers(1, 64), st.integers(0, 255))
def test_each_row_is_a_keyed_blake2b(rows, width, size, fill):
    messages = np.arange(rows * width, dtype=np.int64).astype(np.uint8).reshape(rows, width) ^ np.uint8(fill)
    expected = [hashlib.blake2b(row.tobytes(), key=KEY, digest_size=size).digest() for row in messages]
    got = digests(KEY, messages, size)
    assert got.shape == (rows, size)
    assert got.tobytes() == b"".join(expected)


def test_structured_rows_hash_like_their_bytes():
    rows = np.array([(1, -2), (3, 4)], dtype=[("a", "<u8"), ("b", "<i8")])
    np.testing.assert_array_equal(digests(KEY, rows, 16), digests(KEY, rows.view(np.uint8).reshape(2, 16), 16))
    np.testing.assert_array_equal(digests(KEY, rows[::-1], 16), digests(KEY, rows, 16)[::-1])


@given(st.binary(min_size=32, max_size=32), st.integers(0, 500))
def test_a_stream_is_shake_256_of_its_key_and_longer_ones_go_on(key, size):
    assert stream(key, size).tobytes() == hashlib.shake_256(key).digest(size)
    np.testing.assert_array_equal(stream(key, size + 7)[:size], stream(key, size))


def test_wrong_arguments_are_refused():
    rows = np.zeros((1, 4), dtype=np.uint8)
    with pytest.raises(ValueError, match="`secret`"):
        subkey(b"short")
    with pytest.raises(ValueError, match="`key`"):
        digests(bytes(65), rows, 16)
    with pytest.raises(ValueError, match="`size`"):
        digests(KEY, rows, 65)
    with pytest.raises(ValueError, match="`messages`"):
        digests(KEY, rows.astype(np.int64), 16)
    for key in (bytes(31), bytes(33)):
        with pytest.raises(ValueError, match="`key`"):
            stream(key, 1)
