"""`wayveil policy`: the examples that are shipped, what is said of them in plain words, and what is refused."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from geo.plane import Plane, Region
from geo.privacy.window_mean import WindowMean, nano_epsilon_per_m
from jobs.errors import UserError
from jobs.policy.cli import policy_app
from jobs.policy.program import check_policy, explain_policy, read_policy_file
from jobs.policy.words import Precision, belief_words, view_words, week_words
from streaming.policy import Audience, Deployment, View
from streaming.policy.calendars import DAYS, WEEK_MINUTES, week_mask

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "policies"
HELSINKI = Region("Helsinki", 60.1, 24.7, 60.3, 25.2)
FITS = Deployment(
    tuple(Audience(name, name, usage) for name, usage in [
        ("dispatcher", "any"), ("friends", "meeting"), ("colleagues", "meeting"), ("guide", "any"), ("statistics", "any")
    ]),
    200.0,
    ("education", "food", "health"),
    HELSINKI,
)  # fmt: skip
PRECISION = Precision(Plane(HELSINKI), 10, 4.0, 200.0, 120, 1440, 60.0)
EXAMPLES = sorted(path.name for path in FOLDER.glob("*.toml"))


def explain(name: str, audience: str, user: str | None = None, at: str | None = None) -> list[str]:
    lines: list[str] = []
    explain_policy(read_policy_file(FOLDER / name, FITS), FITS, PRECISION, audience, user, at, lines.append)
    return lines


def check(path: Path, deployment: Deployment | None = FITS) -> list[str]:
    lines: list[str] = []
    check_policy(path, deployment, lines.append)
    return lines


def test_there_are_examples() -> None:
    assert EXAMPLES == ["anchors.toml", "fleet.toml", "friends.toml", "one-audience.toml"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_is_usable_and_can_be_explained(name: str) -> None:
    assert check(FOLDER / name)[0].startswith("ok: version ")
    assert any("are not checked" in line for line in check(FOLDER / name, None))
    for audience in FITS.audiences:
        for user in (None, "ann", "bob", "cab-1", "cab-3", "ferry-1"):
            told = explain(name, audience.name, user)
            assert told[0].startswith(f"policy version {1 if name != 'fleet.toml' else 3}: what audience {audience.name}")
            assert len(told) > 1
            assert len(explain(name, audience.name, user, "2026-03-29T03:30")) > 1


def test_the_smallest_policy_releases_to_everybody_at_the_finest_radius() -> None:
    told = "\n".join(explain("one-audience.toml", "guide", "whoever"))
    mechanism = WindowMean(Plane(HELSINKI), 10, nano_epsilon_per_m(4.0, 200.0))
    assert "at all times: a position every 60 s" in told
    assert f"within {mechanism.radius_m(0.5):.0f} m of the true one half of the time (r50)" in told
    assert f"within {mechanism.radius_m(0.95):.0f} m 19 times in 20 (r95), for a protected radius of 200 m" in told


def test_a_fleet_is_seen_on_shift_alone() -> None:
    told = explain("fleet.toml", "dispatcher", "cab-1")
    assert told[0].endswith("sees of user cab-1 (group taxis); times of Europe/Helsinki")
    on = "mon 20:00-24:00, tue-fri 00:00-06:00 and 20:00-24:00, sat 00:00-06:00: a position every 60 s"
    assert any(line.startswith(on) for line in told)
    off = "mon 00:00-20:00, tue-fri 06:00-20:00, sat 06:00-24:00, sun 00:00-24:00: nothing, and not even whether"
    assert any(line.startswith(off) for line in told)
    assert "nothing" in explain("fleet.toml", "dispatcher")[1], "nobody else is seen"
    assert "800 m" in explain("fleet.toml", "dispatcher", "cab-3")[1], "the user goes before the group"
    assert "every 300 s" in explain("fleet.toml", "friends", "cab-1")[1]


def test_places_are_told_with_what_they_change() -> None:
    told = explain("fleet.toml", "friends", "ferry-1")
    assert "times of Europe/Tallinn" in told[0]
    assert "protected radius of 566 m" in told[1]
    assert told[2].startswith("  after a release to friends in zone harbour: a position every 60 s")
    assert "protected radius of 1600 m" in told[2]


def test_categories_and_candidates_are_told() -> None:
    told = explain("anchors.toml", "guide")
    assert "a public place near a position" in told[1]
    assert "places of category food are told by name; places of category health are never offered; all others are told as their" in told[1]
    assert told[2].startswith("  after a release to guide in category education: the category of a public place")
    assert "3 public places near a position" in explain("anchors.toml", "statistics", "ann")[1]


@pytest.mark.parametrize(
    ("at", "words"),
    [
        ("2026-03-29T03:30", r"at Sun 2026-03-29 04:30 EEST \(clocks skip 03:30"),
        ("2026-10-25T03:30", r"at Sun 2026-10-25 03:30 EEST \(clocks show it twice"),
        ("2026-06-01T12:00", r"at Mon 2026-06-01 12:00 EEST: "),
        ("2026-06-01T12:00Z", r"at Mon 2026-06-01 15:00 EEST: "),
    ],
)
def test_an_instant_is_read_where_the_user_is(at: str, words: str) -> None:
    assert re.match(words, explain("friends.toml", "friends", None, at)[1])


def test_times_matter() -> None:
    def radius(at: str) -> str:
        found = re.search(r"radius of (\d+) m", explain("friends.toml", "friends", None, at)[1])
        assert found
        return found[1]

    assert (radius("2026-06-01T07:59"), radius("2026-06-01T08:00")) == ("200", "400")


def test_the_certificate_follows_the_odds() -> None:
    told = belief_words(View(200.0, 1, "point", 1, ()), PRECISION)
    odds = np.exp(PRECISION.mechanisms.window_mean(200.0).charge_micro(200.0) / 1e6) / 9
    assert f"can become at most {int(np.ceil(100 * odds / (1 + odds)))} % sure of it by one release" in told
    assert "100 % by all 120 that the ledger lets through in 1440 ticks" in told
    assert "10 % sure of one of them" in told
    assert "at most 200 m from each other" in told


def test_no_more_releases_are_counted_than_the_ledger_and_the_rhythm_let_through() -> None:
    def view(radius_m: float, every: int) -> View:
        return View(radius_m, every, "point", 1, ())

    assert PRECISION.releases(view(200.0, 1)) == 120
    assert PRECISION.releases(view(200.0, 100)) == 15
    assert 235 < PRECISION.releases(view(400.0, 1)) <= 240
    tight = Precision(Plane(HELSINKI), 10, 4.0, 400.0, 1, 1440, 60.0)
    assert tight.releases(view(200.0, 1)) == 0
    assert "all are withheld" in belief_words(view(200.0, 1), tight)


def test_a_test_that_may_repeat_the_last_release_counts_in_the_belief() -> None:
    asks, view = replace(PRECISION, predictive=True), View(200.0, 1, "point", 1, ())
    assert "at most 33 % sure" in belief_words(view, PRECISION)
    assert "at most 48 % sure" in belief_words(view, asks)
    assert asks.releases(view) == 85
    assert "told again" in view_words(view, asks)


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (np.ones(WEEK_MINUTES, bool), "at all times"),
        (week_mask([(DAYS[:5], 480, 960), (("sun",), 0, 1)]), "mon-fri 08:00-16:00, sun 00:00-00:01"),
        (week_mask([(DAYS, 1320, 360)]), "mon-sun 00:00-06:00 and 22:00-24:00"),
        (week_mask([(("wed",), 0, 1440)]), "wed 00:00-24:00"),
    ],
)
def test_weeks_are_told_by_days_and_hours(mask: "np.ndarray", words: str) -> None:
    assert week_words(mask) == words


def test_overlapping_zones_and_unnamed_users_are_pointed_out(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    box = "{ south = 60.1, west = 24.7, north = 60.2, east = 24.9 }"
    path.write_text(f"version = 1\n[zones.b]\nbox = {box}\n[zones.a]\nbox = {box}\n")
    told = "\n".join(check(path))
    assert "zones a and b overlap; where both hold, a counts" in told
    assert "nothing is released of users whom the policy does not name" in told


def test_an_unknown_audience_and_a_time_that_is_none_are_refused() -> None:
    with pytest.raises(UserError, match="unknown audience `freinds`: did you mean `friends`"):
        explain("friends.toml", "freinds")
    for at in ("soon", "2026-02-30T00:00", "25:00"):
        with pytest.raises(UserError, match="no date and time"):
            explain("friends.toml", "friends", None, at)


def test_the_command_line_reads_the_settings(tmp_path: Path) -> None:
    settings = tmp_path / "wayveil.toml"
    settings.write_text(
        '[region]\nname = "Helsinki"\nsouth = 60.1\nwest = 24.7\nnorth = 60.3\neast = 25.2\n[secret]\nenv = "NONE"\n'
        '[[audience]]\nname = "guide"\nusage = "any"\n'
    )
    run = CliRunner().invoke
    policy = str(FOLDER / "one-audience.toml")
    assert run(policy_app, ["check", policy]).output.startswith("ok: version 1, 1 rules")
    assert run(policy_app, ["check", policy, "--settings", str(settings)]).output.startswith("ok: version 1")
    told = run(policy_app, ["explain", policy, "--settings", str(settings), "--audience", "guide"]).output
    assert "at all times: a position every 60 s" in told
    bad = run(policy_app, ["check", str(FOLDER / "fleet.toml"), "--settings", str(settings)])
    assert isinstance(bad.exception, UserError)
    assert "line 26, rule 1.audience: unknown role `dispatcher`: there are `guide`" in str(bad.exception)
