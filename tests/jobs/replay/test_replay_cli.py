"""What the options of `wayveil replay` mean, and how their mistakes are told."""

from datetime import UTC, datetime

import pytest
from typer.testing import CliRunner

from jobs.cli import app
from jobs.errors import UserError
from jobs.replay.cli import _mapped, _moment, _speed, _zone


@pytest.mark.parametrize(("text", "speed"), [("max", None), ("1x", 1.0), ("10x", 10.0), ("0.5x", 0.5)])
def test_rates(text: str, speed: float | None) -> None:
    assert _speed(text) == speed


@pytest.mark.parametrize("text", ["", "x", "10", "-1x", "0x", "nanx", "infx", "1e99x", "fast"])
def test_other_rates_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="is no rate"):
        _speed(text)


def test_moments_need_an_offset_where_no_zone_is_meant() -> None:
    assert _moment("2026-01-05T08:00Z", None) == datetime(2026, 1, 5, 8, tzinfo=UTC)
    assert _moment("2026-01-05", UTC) == datetime(2026, 1, 5, tzinfo=UTC)
    for text in ("2026-01-05T08:00", "soon"):
        with pytest.raises(UserError, match="is no moment"):
            _moment(text, None)


def test_zones_and_columns() -> None:
    assert str(_zone("Europe/Lisbon")) == "Europe/Lisbon"
    for name in ("Europe/Atlantis", "../etc/passwd", ""):
        with pytest.raises(UserError, match="is no time zone"):
            _zone(name)
    assert _mapped(["lat=breite", "time=a=b"]) == {"lat": "breite", "time": "a=b"}
    for word in ("lat", "lat=", "height=z"):
        with pytest.raises(UserError, match="--map"):
            _mapped([word])


def test_help_names_every_option() -> None:
    shown = CliRunner().invoke(app, ["replay", "--help"], env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}).output
    for option in (
        "--to",
        "--format",
        "--rate",
        "--user-from",
        "--zone",
        "--map",
        "--time-unit",
        "--week-rollover",
        "--out",
        "--resume",
        "--report",
    ):
        assert option in shown
