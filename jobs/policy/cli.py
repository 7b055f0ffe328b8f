"""The commands `wayveil policy check`, `wayveil policy explain` and `wayveil policy put`."""

from pathlib import Path
from typing import Annotated

import typer

from jobs.errors import UserError

__all__ = ["policy_app"]

policy_app = typer.Typer(help="What each audience may learn of whom, when and roughly where.", no_args_is_help=True)

DEFAULT_SETTINGS = Path("wayveil.toml")

PolicyArgument = Annotated[Path, typer.Argument(help="Policy: TOML, or JSON if the name ends in .json.")]


@policy_app.command("check")
def policy_check(
    policy: PolicyArgument,
    settings: Annotated[Path | None, typer.Option("--settings", help="Settings file (TOML) that the policy has to fit.")] = None,
) -> None:
    """Tell whether a policy can be used; list everything that is wrong with it, with its lines."""
    from jobs.artefacts import read_anchors
    from jobs.policy.program import check_policy
    from jobs.protect import read_settings
    from streaming.audiences import deployment_of

    read = read_settings(settings) if settings else None
    check_policy(policy, deployment_of(read, read_anchors(read)) if read else None, typer.echo)


@policy_app.command("explain")
def policy_explain(
    policy: PolicyArgument,
    audience: Annotated[str, typer.Option(help="Name of the audience.")],
    settings: Annotated[Path, typer.Option("--settings", envvar="WAYVEIL_SETTINGS", help="Settings file (TOML).")] = DEFAULT_SETTINGS,
    user: Annotated[str | None, typer.Option(help="Of whom.", show_default="everybody whom the policy does not name")] = None,
    at: Annotated[
        str | None, typer.Option(help="When: 2026-03-29T03:30 is wall time where the user is.", show_default="at any time")
    ] = None,
) -> None:
    """Tell in plain words what an audience sees, how precise it is, and what anybody can come to believe by it."""
    from geo.plane import Plane
    from jobs.artefacts import read_anchors
    from jobs.policy.program import explain_policy, read_policy_file
    from jobs.policy.words import Precision
    from jobs.protect import read_settings
    from streaming.audiences import deployment_of

    read = read_settings(settings)
    fits, privacy = deployment_of(read, read_anchors(read)), read.privacy
    try:
        plane = Plane(read.region.region())
    except ValueError as error:
        raise UserError(str(error)) from error
    precision = Precision(
        plane,
        privacy.step_m,
        privacy.ratio,
        privacy.radius_m,
        privacy.releases_per_window,
        privacy.window_ticks,
        read.tick.length_s,
        privacy.mechanism == "predictive",
    )
    explain_policy(read_policy_file(policy, fits), fits, precision, audience, user, at, typer.echo)


@policy_app.command("put")
def policy_put(
    policy: Annotated[Path, typer.Argument(help="Policy as for check; with --user, TOML with version, time_zone and rules.")],
    settings: Annotated[Path, typer.Option("--settings", envvar="WAYVEIL_SETTINGS", help="Settings file (TOML).")] = DEFAULT_SETTINGS,
    user: Annotated[str | None, typer.Option(help="Whose own rules these are.", show_default="the whole policy")] = None,
    start: Annotated[
        str | None, typer.Option("--from", help="When it begins to hold: 2026-03-29T03:30+02:00.", show_default="the next tick")
    ] = None,
    log_time: Annotated[str | None, typer.Option(help="Time of the record, for a replay's topics.", show_default="now")] = None,
) -> None:
    """Publish a version of the policy, which running jobs take over at a tick's start, or a user's own rules, which wait for an epoch."""
    from jobs.policy.publish import put_edit, put_policy
    from jobs.protect import read_settings

    if user is None:
        typer.echo(put_policy(read_settings(settings), policy, start, log_time))
        return
    if start is not None:
        raise UserError("A user's own rules hold from the next public epoch on, so that they do not tell when they were made: omit --from.")
    typer.echo(put_edit(read_settings(settings), user, policy, log_time))
