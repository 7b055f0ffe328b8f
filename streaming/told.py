"""What a row tells of a noisy position: the point, a public anchor near it, a category, or a few candidates."""

from typing import NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from geo.anchors.index import AnchorIndex
from geo.anchors.snapping import Level, rule_of_names, snap_to_anchors, snap_to_candidates, snap_to_categories
from streaming.policy import View

__all__ = ["Teller", "Told"]

NEAREST = 16
"""How many anchors a category is chosen from."""

UNANCHORED = '"form":"unanchored"'


class Told(NamedTuple):
    """What n rows tell.

    Attributes
    ----------
    members
        JSON members of each row.
    position
        Latitude and longitude that the row gives, shape (n, 2); NaN where it gives none.
    category
        Number of the category that the row gives, shape (n,); -1 where it gives none.
    """

    members: list[str]
    position: NDArray[np.float64]
    category: NDArray[np.int32]


class Teller:
    """Put noisy positions into the form of a view.

    All of it is post-processing of the noisy position with public data, and costs nothing. Where an anchored form finds no anchor that may
    be offered within the 95 % radius of the noise, it tells no position at all.

    Parameters
    ----------
    anchors
        Public places; None if no view is anchored.
    """

    def __init__(self, anchors: AnchorIndex | None) -> None:
        self._anchors = anchors
        self._rules: dict[tuple[tuple[str, str], ...], NDArray[np.int8]] = {}

    def tell(self, view: View, position: NDArray[np.float64], epsilon_per_m: float, reach_m: float) -> Told:
        """Encode what n rows of one view tell.

        Parameters
        ----------
        view
            Form, candidates, and the levels of categories.
        position
            Noisy latitude and longitude in degrees, shape (n, 2).
        epsilon_per_m, reach_m
            Parameter and 95 % radius of the noise.
        """
        if view.form == "point":
            members = [f'"form":"point","lat":{lat:.6f},"lon":{lon:.6f}' for lat, lon in position.tolist()]
            return Told(members, position, np.full(len(position), -1, np.int32))
        if self._anchors is None:
            raise ValueError("a view speaks of anchors and there are none: name their file in the settings")
        rule = self._rule(self._anchors, view.levels)
        lat, lon = position[:, 0], position[:, 1]
        if view.form == "candidates":
            found = snap_to_candidates(self._anchors, lat, lon, rule, epsilon_per_m, reach_m, k=view.candidates)
            lists = zip(found.anchor.tolist(), found.category.tolist(), found.share.tolist(), strict=True)
            members = [self._candidates(self._anchors, *each) for each in lists]
            return Told(members, *self._places(self._anchors, found.anchor[:, 0], found.category[:, 0]))
        if view.form == "anchor":
            snapped = snap_to_anchors(self._anchors, lat, lon, rule, epsilon_per_m, reach_m)
        else:
            snapped = snap_to_categories(self._anchors, lat, lon, rule, epsilon_per_m, reach_m, k=NEAREST)
        pairs = zip(snapped.anchor.tolist(), snapped.category.tolist(), strict=True)
        members = [self._place(self._anchors, *pair) if pair[1] >= 0 else UNANCHORED for pair in pairs]
        return Told(members, *self._places(self._anchors, snapped.anchor, snapped.category))

    def _rule(self, anchors: AnchorIndex, levels: tuple[tuple[str, str], ...]) -> NDArray[np.int8]:
        if levels not in self._rules:
            of_name = {name: Level[level.upper()] for name, level in levels}
            self._rules[levels] = rule_of_names(anchors, of_name, of_name.pop("default"))
        return self._rules[levels]

    @staticmethod
    def _place(anchors: AnchorIndex, anchor: int, category: int) -> str:
        return f'"form":"{"category" if anchor < 0 else "anchor"}",' + _members(anchors, anchor, category)

    @staticmethod
    def _candidates(anchors: AnchorIndex, anchor: list[int], category: list[int], share: list[float]) -> str:
        found = [
            f'{{{_members(anchors, *each)},"share":{part:.4f}}}'
            for *each, part in zip(anchor, category, share, strict=True)
            if each[1] >= 0
        ]
        return f'"form":"candidates","candidates":[{",".join(found)}]' if found else UNANCHORED

    @staticmethod
    def _places(
        anchors: AnchorIndex, anchor: NDArray[np.int64], category: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
        named = anchor >= 0
        position = np.full((len(anchor), 2), np.nan)
        position[named, 0], position[named, 1] = anchors.lat[anchor[named]], anchors.lon[anchor[named]]
        return position, category.astype(np.int32)


def _members(anchors: AnchorIndex, anchor: int, category: int) -> str:
    """Encode an anchor, or a category alone."""
    told = f'"category":{_text(anchors.category_names[category])}'
    if anchor < 0:
        return told
    return f'"anchor":{_text(anchors.ids[anchor])},{told},"lat":{anchors.lat[anchor]:.6f},"lon":{anchors.lon[anchor]:.6f}'


def _text(text: str) -> str:
    return orjson.dumps(text).decode()
