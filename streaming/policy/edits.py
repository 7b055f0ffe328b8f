"""Users' own edits: rules of one user that stand in for what the deployment's policy says of them.

An edit is TOML with these keys and no others; what its rules refer to (calendars, zones, preferences) is what the policy declares::

    version = 3                          # grows with every edit of this user
    time_zone = "Europe/Lisbon"          # the policy's if left out

    [[rule]]                             # as in `streaming.policy.document`; the subject is left out, or is the user
    audience = "friends"
    level = "perturbed"
    radius_m = 800

Where none of them matches, rules about the user's group and about `default` go on to decide. An empty list, `rule = []`, withdraws: nothing
of the user is released to anybody.
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from hashlib import blake2b
from pathlib import Path as FilePath
from typing import Any

import orjson
from pydantic import Field, ValidationError

from streaming.policy.calendars import is_time_zone
from streaming.policy.deployment import Deployment
from streaming.policy.document import SAYS, Document, Rule, User, UserName
from streaming.policy.lines import Path, line_numbers
from streaming.policy.parts import ANY, Part
from streaming.policy.policy import Policy
from streaming.policy.problems import PolicyError, Problem, place_of
from streaming.policy.rules_check import check_rules
from streaming.policy.soundness import check_soundness

__all__ = ["MAX_RULES", "Edit", "Editable", "load_edit", "parse_edit"]

MAX_RULES = 100
REMEMBERED = 100_000
CONTENT_BYTES = 16


class Edit(Part):
    """One user's own rules; an empty list withdraws."""

    user: UserName
    version: int = Field(ge=1, lt=1 << 53, strict=True)
    time_zone: str | None = None
    rule: tuple[Rule, ...] = Field(max_length=MAX_RULES)

    @cached_property
    def content(self) -> bytes:
        """A digest that edits with the same rules share, whoever's they are and in whatever order."""
        rules = (rule.model_dump(mode="json", exclude={"subject"}) for rule in self.rule)
        text = b"\n".join(sorted(orjson.dumps(rule, option=orjson.OPT_SORT_KEYS) for rule in rules))
        return blake2b(text, digest_size=CONTENT_BYTES).digest()


def load_edit(path: FilePath, user: str) -> tuple[Edit, Mapping[Path, int]]:
    """Read a TOML file with an edit of a user; return it with the lines at which its entries stand.

    Raises
    ------
    PolicyError
        If it cannot be read, or with every problem that shows without a policy.
    """
    try:
        text = path.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except OSError as error:
        raise PolicyError([Problem((), f"the file {path} cannot be read; pass the path of an existing TOML file")]) from error
    except RecursionError:
        raise PolicyError([Problem((), "is nested too deeply")]) from None
    except ValueError as error:
        raise PolicyError([Problem((), f"is not TOML: {error}")]) from None
    lines = line_numbers(text)
    if "user" in document:
        raise PolicyError([Problem(("user",), "is named on the command line: leave it out")], lines)
    return parse_edit({**document, "user": user}, lines), lines


def parse_edit(document: Any, lines: Mapping[Path, int] | None = None) -> Edit:
    """Check an edit given as nested mappings, as far as no policy is needed for it.

    Parameters
    ----------
    document : mapping
        With `user`, `version`, `rule` and perhaps `time_zone`.
    lines : mapping of path to int, optional
        Where its entries stand.

    Raises
    ------
    PolicyError
        With every problem.
    """
    where = lines or {}
    if not isinstance(document, Mapping):
        raise PolicyError([Problem((), "should be a table of keys and values")])
    rules, own = document.get("rule"), f"user:{document.get('user')}"
    if isinstance(rules, list):
        document = {**document, "rule": [{"subject": own, **rule} if isinstance(rule, dict) else rule for rule in rules]}
    try:
        edit = Edit.model_validate(document)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        raise PolicyError([Problem(e["loc"], SAYS.get(str(e.get("ctx", {}).get("pattern")), e["msg"])) for e in found], where) from None
    problems = [
        Problem(("rule", number, "subject"), "should be the user whose edit it is: leave it out")
        for number, rule in enumerate(edit.rule)
        if rule.subject != own
    ]
    if edit.time_zone is not None and not is_time_zone(edit.time_zone):
        problems.append(Problem(("time_zone",), "should be a time zone of the IANA database, for instance `Europe/Helsinki`"))
    if problems:
        raise PolicyError(problems, where)
    return edit


class Editable:
    """A policy into which users' edits are put.

    Guarantee
        Which edits fit, and so what holds, is a function of the policy, the deployment and each edit by itself. A user whose edit does not
        fit gets nothing released, and nobody else is affected: the result has no problem where the policy has none.

    Whether the policy permits edits is for the caller to ask.

    Parameters
    ----------
    policy : Policy
        That fits the deployment.
    deployment : Deployment
    """

    def __init__(self, policy: Policy, deployment: Deployment) -> None:
        self.policy, self._deployment = policy, deployment
        document = policy.document
        self._group_of, self._ruled = document.group_of(), {rule.group for rule in document.rule}
        self._declared = {
            "groups": frozenset(document.groups),
            "calendars": frozenset(document.calendars),
            "zones": frozenset(document.zones),
            "preferences": frozenset(document.preferences),
        }
        self._audiences = [(audience.role, audience.usage) for audience in deployment.audiences]
        self._fits: dict[tuple[str | None, bytes], bool] = {}

    def merged(self, edits: Mapping[str, Edit]) -> Policy:
        """Return the policy with what it says of some users replaced by their edits.

        Parameters
        ----------
        edits : mapping of str to Edit
            By user.
        """
        unfit, document = self.unfit(edits), self.policy.document
        rules = [rule for rule in document.rule if rule.user not in edits]
        users = dict(document.users)
        for user, edit in sorted(edits.items()):
            rules += _nothing(user) if not edit.rule or user in unfit else edit.rule
            if edit.time_zone is not None and user not in unfit:
                users[user] = User(time_zone=edit.time_zone)
        return _Merged(document.model_copy(update={"rule": tuple(rules), "users": users}))

    def unfit(self, edits: Mapping[str, Edit]) -> frozenset[str]:
        """Return the users whose edits do not fit; edits of the same rules under the same rules of a group are checked once."""
        like = {user: self._likeness(user, edit) for user, edit in edits.items()}
        new = {kind: user for user, kind in like.items() if kind not in self._fits}
        if len(self._fits) + len(new) > REMEMBERED:
            self._fits.clear()
            new = {kind: user for user, kind in like.items()}
        broken = {user for user, _ in self._problems({user: edits[user] for user in new.values()}, {})}
        self._fits.update({kind: user not in broken for kind, user in new.items()})
        return frozenset(user for user, kind in like.items() if not (self._fits[kind] and _in_known_zone(edits[user])))

    def problems(self, edit: Edit, lines: Mapping[Path, int] | None = None) -> list[Problem]:
        """Return what keeps an edit from fitting; paths are those of the edit."""
        return [problem for _, problem in self._problems({edit.user: edit}, lines or {})]

    def _likeness(self, user: str, edit: Edit) -> tuple[str | None, bytes]:
        group = self._group_of.get(user)
        return group if group in self._ruled else None, edit.content

    def _problems(self, edits: Mapping[str, Edit], lines: Mapping[Path, int]) -> Iterator[tuple[str, Problem]]:
        """Yield each problem, and whose it is; soundness is checked for what has no other problem."""
        broken = set()
        for user, problem in self._checked(edits, lines, self._rule_problems):
            broken.add(user)
            yield user, problem
        rest = {user: edit for user, edit in edits.items() if user not in broken}
        yield from self._checked(rest, lines, self._soundness_problems)

    def _checked(
        self, edits: Mapping[str, Edit], lines: Mapping[Path, int], check: "Callable[[_Numbered], Iterator[Problem]]"
    ) -> Iterator[tuple[str, Problem]]:
        """Check edits together or, where they are too many for that, in halves: what is found of one alone is found in any company."""
        rules = _Numbered(self.policy, edits, lines)
        found = [(rules.whose(problem), problem) for problem in check(rules)] if edits else []
        if len(edits) > 1 and any(owner is None for owner, _ in found):
            half = len(edits) // 2
            for some in (dict([*edits.items()][:half]), dict([*edits.items()][half:])):
                yield from self._checked(some, lines, check)
            return
        for owner, problem in found:
            yield owner or (next(iter(edits)), Problem((), problem.text))

    def _rule_problems(self, rules: "_Numbered") -> Iterator[Problem]:
        return check_rules(rules.own(), self.policy.document, self._declared, self._deployment, rules.name)

    def _soundness_problems(self, rules: "_Numbered") -> Iterator[Problem]:
        return check_soundness(rules.document(), self._audiences, rules.name)


class _Merged(Policy):
    """A policy with edits: what everybody shares has been checked with the policy, and each user's rules on their own."""

    def require(self, deployment: Deployment) -> None:
        """Nothing is left to check."""


class _Numbered:
    """Rules of a policy that may count for some users, and behind them those of their edits, numbered through.

    Rules about other users and other groups have no say in what is found of these.
    """

    def __init__(self, policy: Policy, edits: Mapping[str, Edit], lines: Mapping[Path, int]) -> None:
        self._policy, self._lines = policy, lines
        self._groups = {
            name: group.model_copy(update={"users": users})
            for name, group in policy.document.groups.items()
            if (users := tuple(user for user in group.users if user in edits))
        }
        shared = enumerate(policy.document.rule)
        self._shared = [(number, rule) for number, rule in shared if rule.user is None and rule.group in {None, *self._groups}]
        self._own = [(user, number, rule) for user, edit in edits.items() for number, rule in enumerate(edit.rule)]

    def own(self) -> dict[int, Rule]:
        """Return the rules of the edits by number."""
        return {number: rule for number, (_, _, rule) in enumerate(self._own, len(self._shared))}

    def document(self) -> Document:
        """Return a document of all the rules, in which no other users are named."""
        rules = (*(rule for _, rule in self._shared), *(rule for _, _, rule in self._own))
        return self._policy.document.model_copy(update={"rule": rules, "users": {}, "groups": self._groups})

    def name(self, number: int) -> str:
        """Return what an error calls a rule."""
        if number < len(self._shared):
            return f"{place_of(('rule', self._shared[number][0]), self._policy.lines)} of the policy"
        return place_of(("rule", self._own[number - len(self._shared)][1]), self._lines)

    def whose(self, problem: Problem) -> tuple[str, Problem] | None:
        """Return the user whose rule has a problem, and the problem with the number of the rule in the edit; None if it is of no one rule.

        It is a user's rule: where others decide alone, they do so for everybody, and the policy has no problems.
        """
        if problem.path[:1] != ("rule",):
            return None
        user, number, _ = self._own[int(problem.path[1]) - len(self._shared)]
        return user, Problem(("rule", number, *problem.path[2:]), problem.text)


def _in_known_zone(edit: Edit) -> bool:
    return edit.time_zone is None or is_time_zone(edit.time_zone)


def _nothing(user: str) -> tuple[Rule, ...]:
    return (Rule(subject=f"user:{user}", audience=ANY, level="none"),)
