"""Users' own edits: what one may say, when it fits a policy, and that nobody else is affected by one that does not."""

from pathlib import Path
from typing import Any

import pytest

from streaming.policy import Edit, Editable, PolicyError, Resolver, load_edit, parse_edit, parse_policy, soundness
from tests.streaming.test_policy_resolver import FITS, WORLD, table, user_id

LOUD = {"audience": "*", "level": "full"}
AT_A = {"audience": "friends", "place": "zone:a", "level": "perturbed", "radius_m": 1000}
WORLD_FOR_EDITS = {**WORLD, "preferences": {"q": WORLD["preferences"]["q"]}}


def editable(*rules: dict[str, Any], **more: Any) -> Editable:
    return Editable(parse_policy({**WORLD_FOR_EDITS, "rule": list(rules), **more}, FITS), FITS)


def edit(user: str, *rules: dict[str, Any], **more: Any) -> Edit:
    return parse_edit({"user": user, "version": 1, "rule": list(rules), **more})


def texts(of: Editable, one: Edit) -> list[str]:
    return [f"{problem.path}: {problem.text}" for problem in of.problems(one)]


def test_an_edit_survives_its_record() -> None:
    one = edit("ann", LOUD, AT_A, time_zone="Asia/Tokyo")
    assert {rule.subject for rule in one.rule} == {"user:ann"}
    assert parse_edit(one.model_dump(mode="json", exclude_defaults=True)) == one


def test_likeness_is_of_rules_alone() -> None:
    assert edit("ann", LOUD, AT_A).content == edit("bob", AT_A, LOUD, time_zone="Asia/Tokyo").content
    assert edit("ann", LOUD, AT_A).content != edit("ann", LOUD).content


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"user": "ann", "version": 1}, ("rule",)),
        ({"user": "ann", "version": 0, "rule": []}, ("version",)),
        ({"user": "ann", "version": True, "rule": []}, ("version",)),
        ({"user": "", "version": 1, "rule": []}, ("user",)),
        ({"user": "ann", "version": 1, "rule": [], "from_tick": 3}, ("from_tick",)),
        ({"user": "ann", "version": 1, "rule": [], "time_zone": "Moon"}, ("time_zone",)),
        ({"user": "ann", "version": 1, "rule": [LOUD | {"subject": "user:bob"}]}, ("rule", 0, "subject")),
        ({"user": "ann", "version": 1, "rule": [LOUD, LOUD | {"subject": "default"}]}, ("rule", 1, "subject")),
        ({"user": "ann", "version": 1, "rule": [LOUD | {"lat": 60.0}]}, ("rule", 0, "lat")),
        ({"user": "ann", "version": 1, "rule": [3]}, ("rule", 0)),
        ({"user": "ann", "version": 1, "rule": [LOUD] * 101}, ("rule",)),
        ([], ()),
    ],
)
def test_what_is_no_edit_is_refused_with_its_place(document: Any, path: tuple[str | int, ...]) -> None:
    with pytest.raises(PolicyError) as caught:
        parse_edit(document)
    assert [problem.path for problem in caught.value.problems] == [path]


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ([LOUD | {"time": "shift"}], "(0, 'time'): unknown calendar `shift`"),
        ([LOUD | {"audience": "freinds"}], "(0, 'audience'): unknown role `freinds`: did you mean `friends`?"),
        ([LOUD, {"audience": "boss", "level": "perturbed", "radius_m": 1}], "(1, 'radius_m'): should be from 100"),
        ([LOUD, LOUD], "(1): overlaps with rule 1"),
        ([{"audience": "boss", "level": "none"}, AT_A | {"audience": "boss"}], "(1): releases at zone:a although nothing"),
        ([AT_A | {"every": 2}], "(0): has every = 2 at zone:a, and rule 2 of the policy has every = 1"),
    ],
)
def test_what_does_not_fit_is_told_with_the_number_in_the_edit(rules: list[dict[str, Any]], said: str) -> None:
    base = editable({"subject": "user:zoe", **LOUD}, {"subject": "default", **LOUD})
    (text,) = texts(base, edit("ann", *rules))
    assert text.replace("('rule', ", "(").startswith(said)
    assert base.unfit({"ann": edit("ann", *rules), "bob": edit("bob", LOUD)}) == {"ann"}


def test_rules_stand_in_for_those_about_the_user_and_an_empty_list_withdraws() -> None:
    base = editable({"subject": "default", **LOUD}, {"subject": "user:ann", "audience": "friends", "level": "none"})
    mine = {"audience": "boss", "level": "perturbed", "radius_m": 400}
    found = table(Resolver(base.merged({"ann": edit("ann", mine), "eve": edit("eve")}), FITS, user_id))
    plain = table(Resolver(base.policy, FITS, user_id))
    for (user, audience, *rest), view in found.items():
        match user, audience:
            case "ann", 2:
                assert view is not None
                assert view.radius_m == 400
            case "ann", _:
                assert view == plain["bob", audience, *rest], "the rule about ann has gone"
            case "eve", _:
                assert view is None
            case _:
                assert view == plain[user, audience, *rest]


def test_a_user_whose_edit_no_longer_fits_gets_nothing_and_nobody_else_is_affected() -> None:
    base = editable({"subject": "default", **LOUD}, calendars={"work": WORLD["calendars"]["work"]})
    edits = {"ann": edit("ann", LOUD | {"time": "night"}), "bob": edit("bob", LOUD | {"time": "work"})}
    found, plain = table(Resolver(base.merged(edits), FITS, user_id)), table(Resolver(base.policy, FITS, user_id))
    assert {view for (user, *_), view in found.items() if user == "ann"} == {None}
    assert all(view == plain[key] for key, view in found.items() if key[0] != "ann")


def test_a_group_counts_where_an_edit_is_judged() -> None:
    base = editable({"subject": "default", **LOUD}, {"subject": "group:g", "audience": "friends", "level": "none"})
    edits = {user: edit(user, AT_A) for user in ("ann", "bob", "cid", "eve")}
    assert base.unfit(edits) == {"ann", "bob"}
    assert base.unfit(dict(reversed(edits.items()))) == {"ann", "bob"}


@pytest.mark.parametrize("limit", [0, 12, 13, 24, 40, 10**6])
def test_an_edit_is_judged_by_itself_whatever_the_company(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soundness, "MAX_CASES", limit)
    rules = [[LOUD | {"audience": "boss"}, AT_A | {"radius_m": 500 + i, "audience": "boss"}] for i in range(6)]
    rules += [[{"audience": "boss", "level": "none"}, AT_A | {"audience": "boss", "radius_m": 700 + i}] for i in range(3)]
    edits = {f"u{i}": edit(f"u{i}", *some) for i, some in enumerate(rules)}
    monkeypatch.setattr(soundness, "MAX_CASES", 10**6)
    base = {"subject": "default", **LOUD}
    alone = editable(base)
    monkeypatch.setattr(soundness, "MAX_CASES", limit)
    each = {user for user, one in edits.items() if alone.problems(one)}
    assert editable(base).unfit(edits) == alone.unfit(edits) == each
    assert each == (set(edits) if limit < 12 else {"u6", "u7", "u8"})


def test_a_file_is_read_with_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "edit.toml"
    path.write_text('version = 2\n\n[[rule]]\naudience = "friends"\nlevel = "full"\n')
    one, lines = load_edit(path, "ann")
    assert (one.user, one.version, len(one.rule)) == ("ann", 2, 1)
    assert lines["rule", 0, "level"] == 5
    for text, said in (
        ('version = 1\nuser = "bob"\nrule = []\n', "line 2, user: is named on the command line"),
        ('version = 1\n[[rule]]\naudience = "friends"\nlevel = "loud"\n', "line 4, rule 1.level"),
        ("version = ", "is not TOML"),
        (f"a = {'[' * 5000}{']' * 5000}", "nested too deeply"),
    ):
        path.write_text(text)
        with pytest.raises(PolicyError, match=said):
            load_edit(path, "ann")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(PolicyError, match="is not TOML"):
        load_edit(path, "ann")
    with pytest.raises(PolicyError, match="cannot be read"):
        load_edit(tmp_path / "none.toml", "ann")
