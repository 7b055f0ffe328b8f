"""The language: what is read, what is refused with its line, what makes two documents equal."""

import json
import pickle
import tomllib
from pathlib import Path
from typing import Any

import pytest

from geo.plane import Region
from streaming.policy import Audience, Deployment, Policy, PolicyError, load_policy, parse_policy, read_policy
from streaming.policy import document as language

HELSINKI = Region("Helsinki", 60.1, 24.7, 60.3, 25.2)
AUDIENCES = (Audience("friends", "friends", "meeting"), Audience("boss", "employer", "any"))
FITS = Deployment(AUDIENCES, 200.0, ("food", "health"), HELSINKI)
DEFAULT = '[[rule]]\nsubject = "default"\naudience = "*"\nlevel = "full"\n'
RULE = '\n[[rule]]\nsubject = "user:ann"\naudience = "*"\n'


def problems(text: str, deployment: Deployment | None = FITS) -> str:
    with pytest.raises(PolicyError) as caught:
        read_policy(f"version = 1\n{text}", "toml", deployment)
    return str(caught.value)


def test_the_example_in_the_documentation_is_a_policy_but_for_nothing() -> None:
    text = "\n".join(line[4:] for line in str(language.__doc__).split("::", 1)[1].splitlines())
    policy = read_policy(text, "toml", FITS)
    assert policy.version == 3
    assert policy.document.rule[0].candidates == 3
    assert set(policy.document.zones) == {"hospital"}


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (f'time_zone = "Europe/Atlantis"\n{DEFAULT}', 2, "no time zone"),
        (f'{DEFAULT}[groups.a]\nusers = []\ntime_zone = "localtime"', 8, "no time zone"),
        (f'[groups.a]\nusers = ["x"]\n[groups.b]\nusers = ["x"]\n{DEFAULT}', 5, "`x` is in group `a` already"),
        (f'[groups.a]\nusers = ["x", "x"]\n{DEFAULT}', 3, "named twice"),
        (f'{DEFAULT}[calendars.a]\nfrom = "08:00"\nto = "08:00"', 6, "is empty"),
        (f'{DEFAULT}[calendars.a]\nfrom = "24:00"\nto = "08:00"', 7, "from 00:00 to 23:59"),
        (f'{DEFAULT}[calendars.a]\ndays = ["monday"]\nfrom = "07:00"\nto = "08:00"', 7, "one of mon, tue"),
        (f'{DEFAULT}[calendars.a]\nfrom = 08:00:30\nto = "09:00"', 7, "string"),
        (f"{DEFAULT}[zones.a]\npolygon = []", 6, "empty"),
        (f"{DEFAULT}[zones.a]\n", 6, "exactly one of polygon, box and circle"),
        (f"{DEFAULT}[zones.a]\npolygon = [[24.8,60.1],[24.9,60.2],[24.9,60.1],[24.8,60.2]]", 6, "zone `a` crosses or touches itself"),
        (f"{DEFAULT}[zones.a]\nbox = {{ south = -18, west = 179, north = -16, east = -179 }}", 6, "antimeridian.*split"),
        (f"{DEFAULT}[zones.a]\npolygon = [[-179,-10],[179,-10],[179,10],[-179,10]]", 6, "180 degrees.*split"),
        (f"{DEFAULT}[zones.a]\npolygon = [[60.15,24.9],[60.2,24.9],[60.2,25.0]]", 6, "axes swapped"),
        (f"{DEFAULT}[zones.a]\npolygon = [[1,1],[2,1],[2,2]]", 6, "outside the region 'Helsinki', so that nothing"),
        (f"{DEFAULT}[[zones.a]]\npolygon = [[1,2],[3,4],[5,7]]\n[[zones.a]]\ncircle = {{lon=1,lat=2,radius_m=0}}", 9, "than 0"),
        (f"{DEFAULT}[zones.a]\npolygon = [[24.8,nan],[24.9,60.2],[24.9,60.1]]", 7, "finite"),
        (f'{DEFAULT}[preferences.a]\nmodel = "weighted"\nweights = {{ role = 0.5, time = 0.4 }}', 8, "add up to 1, and add up to 0.9"),
        (f'{DEFAULT}[preferences.a]\nmodel = "weighted"\nweights = {{ role = 1.0 }}\nrole = {{ "*" = 1.2 }}', 9, "less than or equal to 1"),
        (f'{DEFAULT}[preferences.a]\nmodel = "weighted"\nweights = {{ role = 1 }}\nrole = {{ freinds = 1 }}', 9, "did you mean `friends`"),
        (f'{DEFAULT}[preferences.a]\nmodel = "role-tables"\nweights = {{ role = 1.0 }}\nroles = {{}}', 8, "not permitted"),
        (f'{DEFAULT}[preferences.a]\nmodel = "full-table"\ntable."*"."*"."*"."zone:x" = 1', 8, "unknown zone `x`"),
        (f'{DEFAULT}[preferences.a]\nmodel = "linear"', 6, "does not match any of the expected tags"),
        (f"{RULE}level = 'perturbed'", 6, "exactly one of radius_m and preference"),
        (f"{RULE}level = 'perturbed'\nradius_m = 300\npreference = 'x'", 6, "exactly one of radius_m and preference"),
        (f"{RULE}level = 'perturbed'\nradius_m = 199", 7, "from 200, the operator's finest radius"),
        (f"{RULE}level = 'perturbed'\nradius_m = 300000", 7, "to 204800 metres"),
        (f"{RULE}level = 'perturbed'\nradius_m = '300'", 7, "valid number"),
        (f"{RULE}level = 'full'\nradius_m = 300", 7, "does not go with level = full"),
        (f"{RULE}level = 'none'\nevery = 2", 7, "releases nothing"),
        (f"{RULE}level = 'none'\nplace = 'category:health'", 7, "by silence"),
        (f"{RULE}level = 'full'\nevery = 0", 7, "greater than or equal to 1"),
        (f"{RULE}level = 'full'\nevery = true", 7, "valid integer"),
        (f"{RULE}level = 'full'\ncandidates = 3", 7, "only with form = candidates"),
        (f"{RULE}level = 'full'\nform = 'anchor'\ncategories = {{ food = 'none' }}", 8, "add `default`"),
        (f"{RULE}level = 'full'\nform = 'anchor'\ncategories = {{ default = 'full', fod = 'none' }}", 8, "did you mean `food`"),
        (f"{RULE}level = 'full'\n[rule.categories]\ndefault = 'full'", 7, "only with the forms"),
        (f"{RULE}level = 'precise'", 6, "'none', 'perturbed' or 'full'"),
        (f"{RULE}level = 'full'\ntime = 'night'", 7, "unknown calendar `night`: there is no calendar"),
        (f"{RULE}level = 'full'\nplace = 'zone:x'", 7, "unknown zone"),
        (f"{RULE}level = 'full'\nplace = 'category:helth'", 7, "did you mean `health`"),
        (f"{RULE}level = 'full'\nplace = 'hospital'", 7, "should be zone:NAME"),
        (f"{RULE}level = 'full'\nusage = 'meting'", 7, "did you mean `meeting`"),
        (f"{RULE}level = 'full'\nsecret = 1", 7, "not permitted"),
        ("[[rule]]\nsubject = 'ann'\naudience = '*'\nlevel = 'full'", 3, "group:NAME or user:NAME"),
        ("[[rule]]\nsubject = 'group:x'\naudience = '*'\nlevel = 'full'", 3, "unknown group"),
        ("[[rule]]\nsubject = 'default'\naudience = 'boss'\nlevel = 'full'", 4, "unknown role `boss`: there are `employer`, `friends`"),
        ("[[rule]]\nsubject = 'default'\nlevel = 'full'", 2, "required"),
        (f"{DEFAULT}max = 1", 6, "not permitted"),
        ("rules = []", 2, "not permitted"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_with_its_line(text: str, line: int, words: str) -> None:
    from re import search

    told = problems(text)
    assert search(rf"  - line {line}, .*{words}", told), told


@pytest.mark.parametrize("text", ["version = \n", "a = 1\na = 2\n", "[[rule]\n"])
def test_what_is_no_toml_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(PolicyError, match=r"is not TOML.*line \d"):
        read_policy(text, "toml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ('{"version": 1, "version": 2}', "names a key twice"),
        ('{"version": 1, "max_radius_m": NaN}', "NaN is no number"),
        ("[]", "a table of keys"),
        ("[" * 100_000, "nested too deeply|not JSON"),
        ('{"version": "1"}', "version: input should be a valid integer"),
        ('{"version": 1, "rule": {}}', "rule: input should be a valid tuple"),
        ('{"version": 1, "zones": [1]}', "zones: input should be a valid dictionary"),
        ('{"version": 1, "users": {"\\ud800": {}}}', "users"),
        ('{"version": 1, "groups": {"a b": {"users": []}}}', "groups.a b: should be a name"),
        ('{"version": 9007199254740992}', "version"),
    ],
)
def test_bad_json_is_refused(text: str, words: str) -> None:
    with pytest.raises(PolicyError, match=words):
        read_policy(text, "json")


def test_every_problem_is_listed_at_once_in_the_order_of_the_lines() -> None:
    told = problems(
        'time_zone = "Nowhere"\n'
        "[zones.a]\npolygon = 7\n"
        "[[rule]]\nsubject = 'default'\naudience = 'strangers'\nlevel = 'perturbed'\nplace = 'zone:a'\n"
        "[[rule]]\nsubject = 'default'\naudience = '*'\nlevel = 'ful'\n"
        "[[rule]]\nsubject = 'user:ann'\naudience = '*'\nlevel = 'full'\ntime = 'x'\nplace = 'zone:b'\n"
    )
    lines = [int(line.split("line ")[1].split(",")[0]) for line in told.splitlines()[1:]]
    assert lines == [2, 4, 7, 8, 13, 18, 19]
    assert "zone `a`" not in told  # it is declared: only its shape is wrong


@pytest.mark.parametrize(
    ("times", "refused"),
    [(("*", "*"), True), (("a", "*"), False), (("a", "b"), False), (("a", "c"), True), (("a", "a"), True), (("c", "*"), False)],
)
def test_rules_that_could_both_decide_are_refused_naming_both_lines(times: tuple[str, str], refused: bool) -> None:
    calendars = "".join(
        f"[calendars.{name}]\ndays = {days}\nfrom = '{start}'\nto = '{end}'\n"
        for name, days, start, end in [
            ("a", "['mon']", "22:00", "02:00"),
            ("b", "['tue']", "02:00", "03:00"),
            ("c", "['tue']", "01:59", "03:00"),
        ]
    )
    rules = "".join(f"[[rule]]\nsubject = 'default'\naudience = 'friends'\ntime = '{time}'\nlevel = 'full'\n" for time in times)
    if refused:
        told = problems(calendars + rules)
        assert "line 19, rule 2: overlaps with line 14, rule 1" in told
        assert ("on tue 01:59" in told) == (times == ("a", "c"))
    else:
        read_policy(f"version = 1\n{calendars}{rules}", "toml", FITS)


def test_each_of_many_overlapping_rules_is_named_once() -> None:
    told = problems(DEFAULT * 50)
    assert len(told.splitlines()) == 50
    assert told.count("overlaps with line 2, rule 1:") == 49


@pytest.mark.parametrize("change", ["subject = 'user:bob'", "audience = 'friends'", "usage = 'any'", "place = 'category:food'"])
def test_rules_that_differ_in_any_other_key_do_not_overlap(change: str) -> None:
    keys = {"subject": "'default'", "audience": "'*'", "level": "'full'"}
    name, value = change.split(" = ")
    text = "".join("[[rule]]\n" + "".join(f"{key} = {of}\n" for key, of in rule.items()) for rule in (keys, {**keys, name: value}))
    read_policy(f"version = 1\n{text}", "toml", FITS)


def test_calendars_that_overlap_may_not_stand_in_one_table() -> None:
    text = (
        "[calendars.a]\nfrom = '08:00'\nto = '10:00'\n[calendars.b]\nfrom = '09:00'\nto = '11:00'\n"
        "[preferences.p]\nmodel = 'weighted'\nweights = { time = 1 }\ntime = { a = 1, b = 0 }\n"
    )
    assert "line 11, preferences.p.time: calendars `a` and `b` both hold on mon 09:00" in problems(text)


def test_anchored_forms_and_categories_need_anchors() -> None:
    bare = Deployment(AUDIENCES, 200.0, None, HELSINKI)
    told = problems(f"{RULE}level = 'full'\nform = 'anchor'\nplace = 'category:food'", bare)
    assert "form = anchor needs anchors" in told
    assert "the category `food` needs anchors" in told


def test_max_radius_has_to_be_on_the_ladder_where_preferences_use_it() -> None:
    text = f"max_radius_m = 100\n{DEFAULT}"
    read_policy(f"version = 1\n{text}", "toml", FITS)
    told = problems(f"{text}[preferences.a]\nmodel = 'weighted'\nweights = {{ role = 1 }}")
    assert "line 2, max_radius_m: should be from 200" in told


def test_a_policy_for_a_user_never_seen_and_an_empty_policy_are_fine() -> None:
    read_policy("version = 1", "toml", FITS)
    read_policy(f"version = 1\n[users.nobody]\ntime_zone = 'Asia/Tokyo'\n{RULE}level = 'full'", "toml", FITS)


def test_a_zone_of_two_parts_may_stand_on_both_sides_of_the_antimeridian() -> None:
    fiji = Deployment(AUDIENCES, 200.0, None, Region("Fiji", -20, 177, -15, -178))
    text = (
        "version = 1\n[[zones.strait]]\nbox = { south = -18, west = 179, north = -17, east = 180 }\n"
        "[[zones.strait]]\nbox = { south = -18, west = -180, north = -17, east = -179 }\n"
    )
    read_policy(text, "toml", fiji)


def test_toml_and_json_and_other_formatting_give_one_digest() -> None:
    text = f'version = 1\n[groups.g]\nusers = ["a", "b"]\n[calendars.c]\nfrom = 08:00:00\nto = "09:00"\n{DEFAULT}{RULE}level = "none"\n'
    toml = read_policy(text, "toml")
    document = tomllib.loads(text)
    document["calendars"]["c"] = [{"to": "09:00", "from": "08:00", "days": ["sun", *language.DAYS]}]
    document["rule"].reverse()
    document["groups"]["g"]["users"].reverse()
    document["rule"][0] |= {"usage": "*", "every": 1, "form": "point"}
    document["max_radius_m"] = 5000
    assert read_policy(json.dumps(document), "json").digest == toml.digest
    assert len(toml.digest) == 32
    for change in ({"version": 2}, {"time_zone": "Asia/Tokyo"}, {"rule": document["rule"][:1]}, {"groups": {}}):
        assert parse_policy({**document, **change}).digest != toml.digest


def test_a_policy_survives_pickling(tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    path.write_text(json.dumps({"version": 7, "rule": [{"subject": "default", "audience": "*", "level": "full"}]}))
    policy = load_policy(path, FITS)
    again: Policy = pickle.loads(pickle.dumps(policy))
    assert again == policy
    assert again.digest == policy.digest


def test_files_that_cannot_be_read_are_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="cannot be read; pass the path"):
        load_policy(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(PolicyError, match="no UTF-8"):
        load_policy(tmp_path / "bad.toml")


def test_a_checked_policy_is_checked_again_against_another_deployment() -> None:
    policy = read_policy(f"version = 1\n{RULE}level = 'perturbed'\nradius_m = 300", "toml", FITS)
    with pytest.raises(PolicyError, match=r"line 7, rule 1.radius_m: should be from 500"):
        policy.require(Deployment(AUDIENCES, 500.0))


@pytest.mark.parametrize(
    "change", [{"full_radius_m": 0.0}, {"full_radius_m": float("nan")}, {"categories": ("a", "a")}, {"categories": ("default",)}]
)
def test_a_deployment_outside_its_range_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="should"):
        Deployment(**{"audiences": AUDIENCES, "full_radius_m": 200.0, **change})
    with pytest.raises(ValueError, match="different names"):
        Deployment((AUDIENCES[0], AUDIENCES[0]), 200.0)
