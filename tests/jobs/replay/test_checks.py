"""Times that cannot be right never come into the log, whose clock they would move."""

from jobs.replay.checks import Checks
from jobs.replay.fixes import Batch, Reason, batch_of

START, END = 1_640_995_200_000, 1_796_000_000_000  # 2022-01-01, late in 2026
NOON = 1_710_072_000_000
WEEKS_1024_MS = 619_315_200_000


def checked(*fixes: tuple[str, int], rolled_over: tuple[str, ...] = ()) -> tuple[Batch, int]:
    users, times = zip(*fixes, strict=True)
    batch = batch_of(users, times, [48.0] * len(fixes), [11.0] * len(fixes), range(1, len(fixes) + 1), [(9, Reason.MALFORMED)], 4)
    return Checks(START, END, 8, rolled_over).apply(batch)


def test_what_is_plausible_passes_with_all_that_the_reader_said() -> None:
    batch, moved = checked(("anna", START), ("bert", END), ("ÄÄÄÄ", NOON))
    assert (batch.fixes["user"].to_pylist(), batch.refused, batch.other, moved) == (["anna", "bert", "ÄÄÄÄ"], [(9, Reason.MALFORMED)], 4, 0)


def test_implausible_times_and_users_are_refused_with_their_place() -> None:
    batch, _ = checked(
        ("", NOON), ("ÄÄÄÄÄ", NOON), ("a", 1_700_000_000), ("a", END + 1), ("a", 1_096_000_000_000), ("a", -(2**62)), ("a", NOON)
    )
    assert batch.fixes["index"].to_pylist() == [7]
    assert list(batch.refused) == [
        (9, Reason.MALFORMED),
        (1, Reason.MISSING_FIELD),
        (2, Reason.USER_TOO_LONG),
        (3, Reason.BEFORE_ARCHIVE),
        (4, Reason.FUTURE),
        (5, Reason.WEEK_ROLLOVER),
        (6, Reason.BEFORE_ARCHIVE),
    ]


def test_a_lost_week_count_is_mended_for_named_users_alone() -> None:
    behind = NOON - WEEKS_1024_MS
    batch, moved = checked(("gpx", behind), ("other", behind), ("gpx", NOON), rolled_over=("gpx",))
    assert batch.fixes["t_ms"].to_pylist() == [NOON]
    assert batch.refused[1:] == [(2, Reason.WEEK_ROLLOVER), (3, Reason.FUTURE)]
    assert moved == 2
