"""What all parts of a policy share: their base, and the words that mean everything."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["ANY", "NAME", "PART_SAYS", "Name", "NameOrAny", "Part"]

ANY = "*"
NAME = r"[A-Za-z0-9_-]{1,64}"

_NAME = f"^{NAME}$"
_NAME_OR_ANY = rf"^({NAME}|\*)$"
PART_SAYS = {
    _NAME: "should be a name of at most 64 letters, digits, `_` and `-`",
    _NAME_OR_ANY: "should be a name of at most 64 letters, digits, `_` and `-`, or `*`",
}
"""What each pattern says in words."""

Name = Annotated[str, Field(pattern=_NAME)]
NameOrAny = Annotated[str, Field(pattern=_NAME_OR_ANY)]


class Part(BaseModel):
    """A part of a policy: no unknown keys, no NaN, no change afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
