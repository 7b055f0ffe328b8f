"""The files that the demo makes before it runs: secret, settings and policy, and the public tiles and anchors."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import orjson

from geo.tiling.tiling import Tiling
from jobs.anchors.program import Plan as AnchorsPlan
from jobs.anchors.program import build_anchors as build_anchors_file
from jobs.anchors.readers import Columns
from jobs.demo.sample import PLACES, POLICY, ROADS
from jobs.tiling.program import Plan as TilingPlan
from jobs.tiling.program import build_tiling as build_tiling_file
from streaming.settings import Settings

__all__ = ["SETTINGS", "build_anchors", "build_tiling", "write_settings"]

USERS_A_TICK, CELL_M = 100, 25
PLACE_COLUMNS = Columns(("kind=value",))
SECRET_BYTES = 32
OWNER_ONLY = 0o600

SETTINGS = """\
# Written by `wayveil demo`. All settings, with ranges and defaults, are in streaming/settings.py.
# What each audience may learn, and the public places that this speaks of:
policy = {policy}
anchors = {anchors}

[kafka]
bootstrap = {bootstrap}

[region]                  # public; one region that holds both places
name = "slovenia-to-finland"
south = 45.0
west = 14.0
north = 61.0
east = 26.0

[tick]
silent_ticks = 5          # who is silent for 5 minutes is no longer reported as absent

[privacy]                 # each look: ln 4 within 200 m, the default
releases_per_window = 10  # 10 looks a day instead of 120, so that the demo shows a budget that runs out

[[audience]]              # one topic each: traces.dispatch and so on
name = "dispatch"
usage = "operations"

[[audience]]
name = "partners"
usage = "planning"

[[audience]]
name = "city"
usage = "statistics"

[density]                 # users in each of the public tiles: one tree in ten minutes, which may spend all they have
tiling = {tiling}
epsilon = 4.0             # large, since the demo has few users
window_ticks = 10
schedule = "sample"

[secret]
file = {secret}

[job]
checkpoint_dir = {checkpoints}
"""


def write_settings(folder: Path, bootstrap: str) -> dict[str, Path]:
    """Write secret, policy and settings, and return where the latter two are; they can be used from any working folder.

    Parameters
    ----------
    folder : Path
        Where to.
    bootstrap : str
        Address of the broker.
    """

    def quoted(text: str | Path) -> str:
        return orjson.dumps(str(text)).decode()

    home = folder.resolve()
    secret, policy, settings = home / "secret.txt", folder / POLICY.name, folder / "wayveil.toml"
    secret.touch(OWNER_ONLY)
    secret.write_text(os.urandom(SECRET_BYTES).hex())
    shutil.copyfile(POLICY, policy)
    settings.write_text(
        SETTINGS.format(
            policy=quoted(policy.resolve()),
            anchors=quoted(home / "anchors.parquet"),
            bootstrap=quoted(bootstrap),
            secret=quoted(secret),
            tiling=quoted(home / "tiling.parquet"),
            checkpoints=quoted(home / "checkpoints"),
        ),
        encoding="utf-8",
    )
    return {"settings": settings, "policy": policy}


def build_tiling(settings: Settings) -> Tiling:
    """Build the public tree with the command's own program, for the users that the demo is known to have at a time."""
    density = settings.density
    assert density is not None
    region = settings.region.region()
    plan = TilingPlan(region, (ROADS,), USERS_A_TICK, density.epsilon, CELL_M, Path(density.tiling), density.neighbours)
    return build_tiling_file(plan, lambda line: None)


def build_anchors(settings: Settings, say: Callable[[str], None]) -> None:
    """Build the anchors with the command's own program; `say` takes a line on what they are."""
    assert settings.anchors is not None
    build_anchors_file(AnchorsPlan(settings.region.region(), PLACES, PLACE_COLUMNS, Path(settings.anchors)), say)
