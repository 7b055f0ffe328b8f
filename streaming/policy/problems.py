"""What is wrong with a policy, and where: the errors that people read."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from streaming.policy.lines import Path, line_of

__all__ = ["PolicyError", "Problem", "place_of", "unknown"]

SHOWN = 8


@dataclass(frozen=True)
class Problem:
    """One thing to mend.

    Parameters
    ----------
    path : tuple of str and int
        Where, from the document's root.
    text : str
        What it should be.
    """

    path: Path
    text: str


class PolicyError(ValueError):
    """The policy is not usable; the message lists every problem, a line each.

    Attributes
    ----------
    problems : tuple of Problem
    """

    def __init__(self, problems: Sequence[Problem], lines: Mapping[Path, int] | None = None) -> None:
        self.problems = tuple(problems)
        where = lines or {}
        ordered = sorted(problems, key=lambda problem: line_of(where, problem.path) or 0)
        told = dict.fromkeys(f"  - {place_of(problem.path, where)}: {problem.text}" for problem in ordered)
        super().__init__("the policy has problems to mend:\n" + "\n".join(told))


def place_of(path: Path, lines: Mapping[Path, int]) -> str:
    """Return where an entry stands, for people: its line, if known, and its path; rules count from 1."""
    parts = [str(part + 1) if isinstance(part, int) else part for part in path]
    if len(path) > 1 and path[0] == "rule":
        parts = [f"rule {parts[1]}", *parts[2:]]
    name = ".".join(parts) or "policy"
    line = line_of(lines, path)
    return name if line is None else f"line {line}, {name}"


def unknown(kind: str, name: str, known: Collection[str]) -> str:
    """Return the sentence about a name that nothing has."""
    close = get_close_matches(name, known, 1)
    if close:
        return f"unknown {kind} `{name}`: did you mean `{close[0]}`?"
    names = sorted(known)
    shown = ", ".join(f"`{one}`" for one in names[:SHOWN]) + (", …" if len(names) > SHOWN else "")
    return f"unknown {kind} `{name}`: " + (f"there are {shown}" if names else f"there is no {kind}")
