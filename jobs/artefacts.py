"""The public files that a job needs beside its settings: density's tiling, the policy, and the anchors."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from geo.anchors.index import AnchorIndex
from geo.plane import Plane
from geo.tiling.lattice import same_region
from geo.tiling.tiling import Tiling
from jobs.errors import UserError
from jobs.tiling.program import read_tiling
from streaming.anchor_file import AnchorFileError, load_anchors
from streaming.audiences import deployment_of
from streaming.mechanisms import Mechanisms
from streaming.policy import Policy, PolicyError, load_policy
from streaming.policy.calendars import TIME_ZONES_VERSION
from streaming.settings import Product, Settings

__all__ = ["Artefacts", "read_anchors", "read_artefacts", "read_policy"]


@dataclass(frozen=True)
class Artefacts:
    """Public files, read and checked; None where the settings name none or the job does not need it."""

    tiling: Tiling | None
    policy: Policy | None
    anchors: AnchorIndex | None

    @property
    def digests(self) -> dict[str, str]:
        """The digest of each, and the version of the time zone database, by which policies read the clock."""
        named = {"tiling": self.tiling, "policy": self.policy, "anchors": self.anchors}
        return {name: artefact.digest for name, artefact in named.items() if artefact is not None} | {"time_zones": TIME_ZONES_VERSION}


def read_artefacts(settings: Settings, products: Collection[Product]) -> Artefacts:
    """Read what a job with these products needs.

    Raises
    ------
    UserError
        If a file cannot be read, or does not fit the settings.
    """
    if "traces" in products:
        _require_noise(settings)
    anchors = read_anchors(settings) if "traces" in products else None
    policy = read_policy(settings, anchors) if "traces" in products else None
    return Artefacts(_read_tiling(settings) if "density" in products else None, policy, anchors)


def _require_noise(settings: Settings) -> None:
    privacy = settings.privacy
    try:
        mechanisms = Mechanisms(Plane(settings.region.region()), privacy.step_m, privacy.ratio, tests_first=False)
        for radius_m in (privacy.radius_m, privacy.finest_m):
            mechanisms.window_mean(radius_m)
    except ValueError as error:
        raise UserError(f"The settings of [privacy] and [region] do not go together: {error}") from error


def read_anchors(settings: Settings) -> AnchorIndex | None:
    """Read the anchors that the settings name, if they do.

    Raises
    ------
    UserError
        If the file cannot be read, or is of another region.
    """
    if settings.anchors is None:
        return None
    try:
        anchors, _ = load_anchors(Path(settings.anchors))
    except AnchorFileError as error:
        raise UserError(f"The anchors cannot be used: {error}") from error
    if not same_region(settings.region.region(), anchors.plane.region):
        raise UserError(
            f"The anchors {settings.anchors} were built for another region than the settings name: build them with `wayveil anchors build "
            "--settings`."
        )
    return anchors


def read_policy(settings: Settings, anchors: AnchorIndex | None) -> Policy | None:
    """Read the policy that the settings name, if they do.

    Raises
    ------
    UserError
        With every problem of it.
    """
    if settings.policy is None:
        return None
    try:
        return load_policy(Path(settings.policy), deployment_of(settings, anchors))
    except PolicyError as error:
        raise UserError(f"The policy {settings.policy} cannot be used: {error}") from error


def _read_tiling(settings: Settings) -> Tiling:
    if settings.density is None:
        raise UserError("Density needs a section [density] in the settings: name a tiling there, made by `wayveil tiling build`.")
    path = Path(settings.density.tiling)
    tiling, _ = read_tiling(path)
    if not same_region(settings.region.region(), tiling.plane.region):
        raise UserError(
            f"The tiling {path} was built for another region than the settings name: build one with `wayveil tiling build --settings`."
        )
    return tiling
