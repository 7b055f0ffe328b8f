"""Read a policy: text -> document -> checked policy; every problem of it is listed at once, with its line."""

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path as FilePath
from typing import Any, Literal

import orjson
from pydantic import ValidationError

from streaming.policy.calendars import DAYS
from streaming.policy.deployment import Deployment
from streaming.policy.document import DEFAULT_CANDIDATES, SAYS, Document, Rule
from streaming.policy.lines import Path, line_numbers
from streaming.policy.parts_check import Declared, check_parts
from streaming.policy.problems import PolicyError, Problem, place_of
from streaming.policy.rules_check import check_rules
from streaming.policy.soundness import all_audiences, check_soundness

__all__ = ["Policy", "load_policy", "parse_policy", "read_policy"]

DIGEST_BYTES = 16
SECTIONS = ("groups", "users", "calendars", "zones", "preferences", "rule")
MODELS = {"weighted", "role-tables", "full-table"}


@dataclass(frozen=True)
class Policy:
    """A policy without problems.

    Parameters
    ----------
    document : Document
    lines : mapping of path to int
        Where its entries stand, for later errors; empty for JSON.
    """

    document: Document
    lines: Mapping[Path, int] = field(default_factory=dict, compare=False)

    @property
    def version(self) -> int:
        """Its version."""
        return self.document.version

    @cached_property
    def digest(self) -> str:
        """32 hexadecimal digits that documents of the same content share, whatever their formatting, defaults and order of rules.

        BLAKE2b of canonical JSON. It is not keyed: who guesses a whole policy can confirm the guess.
        """
        content = self.document.model_dump(mode="json", by_alias=True)
        for group in content["groups"].values():
            group["users"].sort()
        for intervals in content["calendars"].values():
            for interval in intervals:
                interval["days"] = sorted(set(interval["days"]), key=DAYS.index)
            intervals.sort(key=_canonical)
        for rule in content["rule"]:
            if rule["form"] == "candidates":
                rule["candidates"] = rule["candidates"] or DEFAULT_CANDIDATES
        content["rule"].sort(key=_canonical)
        return hashlib.blake2b(_canonical(content), digest_size=DIGEST_BYTES).hexdigest()

    def require(self, deployment: Deployment) -> None:
        """Check that the policy fits a deployment.

        Raises
        ------
        PolicyError
            With every problem.
        """
        rules = dict(enumerate(self.document.rule))
        found = _problems(self.document, rules, _declared(self.document.model_dump()), deployment, self.lines, whole=True)
        if found:
            raise PolicyError(found, self.lines)


def load_policy(path: FilePath, deployment: Deployment | None = None) -> Policy:
    """Read and check a file: JSON if its name ends in `.json`, else TOML.

    Raises
    ------
    PolicyError
        If it cannot be read, or with every problem.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise PolicyError([Problem((), f"the file {path} cannot be read; pass the path of an existing TOML or JSON file")]) from error
    except UnicodeDecodeError:
        raise PolicyError([Problem((), f"the file {path} is no UTF-8 text")]) from None
    return read_policy(text, "json" if path.suffix == ".json" else "toml", deployment)


def read_policy(text: str, syntax: Literal["toml", "json"], deployment: Deployment | None = None) -> Policy:
    """Read and check a text.

    Raises
    ------
    PolicyError
        If it is not in that syntax, or with every problem.
    """
    try:
        if syntax == "toml":
            return parse_policy(tomllib.loads(text), deployment, line_numbers(text))
        document = json.loads(text, object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except PolicyError:
        raise
    except ValueError as error:
        raise PolicyError([Problem((), f"is not {syntax.upper()}: {error}")]) from None
    except RecursionError:
        raise PolicyError([Problem((), "is nested too deeply")]) from None
    return parse_policy(document, deployment)


def parse_policy(document: Any, deployment: Deployment | None = None, lines: Mapping[Path, int] | None = None) -> Policy:
    """Check a document given as nested mappings.

    Parameters
    ----------
    document : mapping
        As TOML or JSON give it.
    deployment : Deployment, optional
        What it has to fit. None: names of roles, usages and categories are taken as they are.
    lines : mapping of path to int, optional
        Where its entries stand.

    Raises
    ------
    PolicyError
        With every problem. Soundness across rules is checked when nothing else is left to mend.
    """
    where = lines or {}
    if not isinstance(document, Mapping):
        raise PolicyError([Problem((), "should be a table of keys and values")])
    shape: list[Problem] = []
    try:
        whole = Document.model_validate(document)
        rules = dict(enumerate(whole.rule))
    except ValidationError as error:
        shape = [_problem(e["loc"], _words(e)) for e in error.errors(include_url=False, include_input=False)]
        whole, numbers = _usable(document, shape)
        rules = dict(zip(numbers, whole.rule, strict=True))
    problems = shape + _problems(whole, rules, _declared(document), deployment, where, whole=not shape)
    if problems:
        raise PolicyError(problems, where)
    return Policy(whole, where)


def _problems(
    document: Document,
    rules: dict[int, Rule],
    declared: Declared,
    deployment: Deployment | None,
    lines: Mapping[Path, int],
    whole: bool,
) -> list[Problem]:
    def name(number: int) -> str:
        return place_of(("rule", number), lines)

    found = [*check_parts(document, declared, deployment), *check_rules(rules, document, declared, deployment, name)]
    if whole and not found:
        audiences = [(a.role, a.usage) for a in deployment.audiences] if deployment else all_audiences(document)
        found = list(check_soundness(document, audiences, name))
    return found


def _declared(document: Mapping[str, Any]) -> Declared:
    sections = {section: document.get(section) for section in SECTIONS}
    return {section: frozenset(names) if isinstance(names, Mapping) else frozenset() for section, names in sections.items()}


def _usable(document: Mapping[str, Any], shape: list[Problem]) -> tuple[Document, list[int]]:
    """Return the document without the entries that have problems, and the numbers of the rules that are left."""
    broken = {problem.path[:2] for problem in shape}
    rest: dict[str, Any] = {}
    numbers: list[int] = []
    for key, value in document.items():
        if (key,) in broken or (key not in SECTIONS and any(path[0] == key for path in broken)):
            continue
        if key == "rule":
            numbers = [number for number in range(len(value)) if (key, number) not in broken]
            rest[key] = [value[number] for number in numbers]
        elif key in SECTIONS:
            rest[key] = {name: entry for name, entry in value.items() if (key, name) not in broken}
        else:
            rest[key] = value
    try:
        return Document.model_validate({"version": 1, **rest}), numbers
    except ValidationError:  # a name that is no text
        return Document(version=1), []


def _problem(path: Path, text: str) -> Problem:
    kept = path[:-1] if path and path[-1] == "[key]" else path
    if kept[:1] == ("preferences",) and len(kept) > 2 and kept[2] in MODELS:  # noqa: PLR2004
        kept = kept[:2] + kept[3:]
    return Problem(kept, text[:1].lower() + text[1:])


def _words(error: Mapping[str, Any]) -> str:
    return SAYS.get(str(error.get("ctx", {}).get("pattern")), str(error["msg"]))


def _canonical(content: Any) -> bytes:
    return orjson.dumps(content, option=orjson.OPT_SORT_KEYS)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) < len(pairs):
        raise ValueError("an object names a key twice")
    return out


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number")
