"""One TOML file says everything a job needs; every problem in it is listed at once."""

import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from geo.plane import Region

__all__ = [
    "PRODUCTS",
    "AudienceSettings",
    "DensitySettings",
    "JobSettings",
    "KafkaSecurity",
    "KafkaSettings",
    "PrivacySettings",
    "Product",
    "RegionSettings",
    "SecretSource",
    "Settings",
    "SettingsError",
    "SourceSettings",
    "TickSettings",
    "TopicNames",
    "load_settings",
    "parse_settings",
]

Product = Literal["traces", "density"]
PRODUCTS: tuple[Product, ...] = ("traces", "density")

TopicName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,200}$")]


class SettingsError(ValueError):
    """The settings are not usable; the message lists every problem, a line each."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class KafkaSecurity(_Section):
    """How clients reach the broker: in the clear, by TLS, or by TLS with a name and a password (SASL).

    There is no SASL without TLS: SCRAM would keep the password to itself, but the fixes would cross the network in the clear. The broker's
    certificate must always name the host of `bootstrap`.

    `ca_file` (PEM) holds the certificates that may have signed the broker's, by default those that the machine trusts; `client_file` (PEM)
    the client's own private key and certificate. The password is what `password_file` or `password_env` holds, to the last byte: every
    client of Kafka takes it from there itself, also those inside Flink, so that it is in no settings, table, job graph or checkpoint. On a
    cluster these files and the variable are needed on each machine, at the same absolute path.
    """

    protocol: Literal["PLAINTEXT", "SSL", "SASL_SSL"] = "PLAINTEXT"
    ca_file: str | None = None
    client_file: str | None = None
    mechanism: Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"] = "SCRAM-SHA-512"
    username: str | None = Field(default=None, pattern=r"^[A-Za-z0-9._@+-]{1,128}$")
    password_file: str | None = None
    password_env: str | None = Field(default=None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")

    @model_validator(mode="after")
    def _fits_its_protocol(self) -> Self:
        login, password = self.username is not None, (self.password_file is not None) + (self.password_env is not None)
        if self.protocol == "SASL_SSL" and not (login and password == 1):
            raise ValueError("SASL_SSL needs `username`, and exactly one of `password_file` and `password_env`")
        if self.protocol != "SASL_SSL" and (login or password):
            raise ValueError("a name and a password are used with protocol = SASL_SSL only")
        if self.protocol == "PLAINTEXT" and (self.ca_file is not None or self.client_file is not None):
            raise ValueError("certificates are used with protocol = SSL or SASL_SSL only")
        return self


class KafkaSettings(_Section):
    """Where the broker is, and how it is reached.

    `transaction_timeout_s` must exceed the checkpoint interval plus the longest outage to survive, and stay at or
    below the broker's `transaction.max.timeout.ms` (15 minutes by Kafka's default).
    """

    bootstrap: str = Field(default="127.0.0.1:9092", pattern=r"^[^\s:]+:\d+(,[^\s:]+:\d+)*$")
    transaction_timeout_s: int = Field(default=900, ge=10, le=86_400)
    security: KafkaSecurity = KafkaSecurity()


class TopicNames(_Section):
    """Topics. `charges`, `rejected`, `late`, `balance`, `runs` and `policies` are for operators only: no audience may read them.

    Where there are audiences, `traces` is the beginning of their topics' names: "traces.friends".
    """

    traces: TopicName = "traces"
    releases: TopicName = "releases"
    charges: TopicName = "charges"
    rejected: TopicName = "rejected"
    late: TopicName = "late"
    balance: TopicName = "balance"
    runs: TopicName = "runs"
    policies: TopicName = "policies"
    density: TopicName = "density"


class AudienceSettings(_Section):
    """Who reads one topic of traces, and what for: rules of the policy speak of both. `role` is the name unless it is given."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    role: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_-]{1,64}$")
    usage: str = Field(default="any", pattern=r"^[A-Za-z0-9_-]{1,64}$")

    @property
    def acts_as(self) -> str:
        """The role that rules see."""
        return self.role or self.name


class SourceSettings(_Section):
    """One raw topic of JSON documents and the names of its fields.

    `time_unit` is fixed per source and never guessed; `iso` times need an offset. `text_numbers` accepts coordinates
    and times written as text ("12.3"); without it they are rejected.
    """

    topic: TopicName = "fixes"
    user: str = "user"
    time: str = "t"
    lat: str = "lat"
    lon: str = "lon"
    time_unit: Literal["s", "ms", "us", "iso"] = "ms"
    text_numbers: bool = False
    null_island_deg: float = Field(default=0.01, ge=0, le=1, description="half width of the rejected band around 0,0; 0 switches it off")
    archive_start: str = Field(default="2000-01-01", pattern=r"^\d{4}-\d{2}-\d{2}$")
    future_tolerance_s: int = Field(default=300, ge=0, le=86_400)
    max_user_bytes: int = Field(default=256, ge=1, le=4096)


class RegionSettings(_Section):
    """The public bounding box in degrees; west > east crosses the antimeridian. Positions outside are clipped to it."""

    name: str
    south: float = Field(ge=-90, le=90)
    west: float = Field(ge=-180, le=180)
    north: float = Field(ge=-90, le=90)
    east: float = Field(ge=-180, le=180)

    def region(self) -> Region:
        """Return the region as the `geo` package knows it."""
        return Region(self.name, self.south, self.west, self.north, self.east)


class TickSettings(_Section):
    """Tumbling event-time ticks.

    A fix is late iff its tick's end + `lateness_s` is at or before its own record's log timestamp. A user stays
    enrolled until `silent_ticks` ticks pass without a fix. `max_speed_mps` is tested only between fixes of one window.
    """

    length_s: int = Field(default=60, ge=1, le=86_400)
    lateness_s: int = Field(default=30, ge=0, le=7 * 86_400)
    max_fixes: int = Field(default=60, ge=1, le=1000)
    max_speed_mps: float = Field(default=70.0, gt=0, le=1000)
    silent_ticks: int = Field(default=60, ge=1, le=100_000)


class PrivacySettings(_Section):
    """What is promised: the noise of a release changes likelihoods by at most a factor `ratio` between places `radius_m` apart.

    Snapping to the grid, and the test of the predictive mechanism, come on top; the charge says how much.
    `window_ticks` is w of the w-event guarantee and `releases_per_window` sets its limit: so many full charges in any w consecutive ticks.
    `full_radius_m`, by default `radius_m`, is the finest radius that a policy may choose; a release at another radius than `radius_m` is
    charged accordingly. The defaults promise ln 4 within 200 m per released tick and 120 releases a day; somebody who stays put can then be
    averaged from 289 m an axis (standard deviation) down to 26 m (mean) or 19 m (median) a day. `mechanism = "predictive"` first asks, in
    private, whether the last release is still near enough, and repeats it then: cheaper for users who stay, dearer for those who drive.
    """

    ratio: float = Field(default=4.0, gt=1, le=1000)
    radius_m: float = Field(default=200.0, gt=0, le=100_000)
    step_m: int = Field(default=10, ge=1, le=1000)
    window_ticks: int = Field(default=1440, ge=1, le=100_000)
    releases_per_window: int = Field(default=120, ge=1, le=100_000)
    full_radius_m: float | None = Field(default=None, gt=0, le=100_000)
    mechanism: Literal["window-mean", "predictive"] = "window-mean"
    epoch_ticks: int = Field(default=1440, ge=1, le=1_000_000)

    @property
    def finest_m(self) -> float:
        """The finest radius that a policy may choose."""
        return self.radius_m if self.full_radius_m is None else self.full_radius_m

    @model_validator(mode="after")
    def _full_is_finest(self) -> Self:
        if self.finest_m > self.radius_m:
            raise ValueError("full_radius_m must be at most radius_m: it is the finest radius of all")
        return self


class DensitySettings(_Section):
    """What the density product promises, and the public tree that it counts on.

    Any `window_ticks` consecutive ticks together cost at most `epsilon` (with `discrete-gaussian`: (`epsilon`, `delta`), by zCDP).
    `replace-one` protects where a user is, and publishes exactly how many are present; it is the only choice where traces of the same
    users are published. `add-remove` protects presence as well. `smoothing` filters the noisy counts over ticks, which costs nothing and
    helps where users change slowly against the noise. `test_level` is the level of the tree whose tiles the schedules
    `budget-distribution` and `budget-absorption` compare.
    """

    tiling: str
    epsilon: float = Field(default=1.0, ge=1e-6, le=1000)
    window_ticks: int = Field(default=60, ge=1, le=100_000)
    schedule: Literal["uniform", "sample", "budget-distribution", "budget-absorption"] = "uniform"
    neighbours: Literal["replace-one", "add-remove"] = "replace-one"
    noise: Literal["discrete-laplace", "discrete-gaussian"] = "discrete-laplace"
    delta: float = Field(default=1e-6, gt=0, lt=1)
    budgets: Literal["by-workload", "uniform"] = "by-workload"
    smoothing: bool = False
    test_level: int = Field(default=1, ge=0, le=20)

    @model_validator(mode="after")
    def _tests_are_pure(self) -> Self:
        if self.noise == "discrete-gaussian" and self.schedule.startswith("budget-"):
            raise ValueError("the schedules with tests need noise = discrete-laplace: choose uniform or sample for discrete-gaussian")
        return self


class SecretSource(_Section):
    """A file, or an environment variable, that holds at least 32 random bytes; exactly one of the two."""

    file: str | None = None
    env: str | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.file is None) == (self.env is None):
            raise ValueError("set exactly one of `file` and `env`")
        return self


class JobSettings(_Section):
    """How the job runs.

    `shards` must not change between a run and its restart from a checkpoint. Every shard costs a fixed effort a tick, so take about
    eight for each parallel step.
    """

    parallelism: int = Field(default=2, ge=1, le=4096)
    shards: int = Field(default=16, ge=1, le=65_536)
    checkpoint_dir: str = ".wayveil/checkpoints"
    checkpoint_interval_s: float = Field(default=10, ge=0.1, le=3600)
    restarts: int = Field(default=3, ge=0, le=1000)
    batch: int = Field(default=20_000, ge=1, le=1_000_000)


class Settings(_Section):
    """Everything a job needs.

    `policy` is the file that says what each audience may learn of whom, and `anchors` the file of the public places that it may speak of.
    Without a policy everybody's traces go to one audience (or to each) at `privacy.radius_m`. With `live_policies`, the topic `policies`
    brings newer versions while the job runs; without a policy to begin with, nothing is released until then.
    """

    kafka: KafkaSettings = KafkaSettings()
    topics: TopicNames = TopicNames()
    source: tuple[SourceSettings, ...] = Field(default=(SourceSettings(),), min_length=1, max_length=255)
    region: RegionSettings
    tick: TickSettings = TickSettings()
    privacy: PrivacySettings = PrivacySettings()
    audience: tuple[AudienceSettings, ...] = Field(default=(), max_length=64)
    policy: str | None = None
    live_policies: bool = False
    anchors: str | None = None
    density: DensitySettings | None = None
    secret: SecretSource
    job: JobSettings = JobSettings()

    @model_validator(mode="after")
    def _whole(self) -> Self:
        topics = [source.topic for source in self.source] + [*self.written_by_job(PRODUCTS), self.topics.runs, self.topics.policies]
        if len(set(topics)) != len(topics):
            raise ValueError("every topic needs a name of its own: a raw topic and an output topic, or two of them, share one")
        if self.kafka.transaction_timeout_s <= self.job.checkpoint_interval_s:
            raise ValueError("kafka.transaction_timeout_s must be longer than job.checkpoint_interval_s")
        if self.privacy.mechanism == "predictive" and len(self.audiences) > 1:
            raise ValueError(
                "privacy.mechanism = predictive serves one audience: its charges would tell one audience what another was sent"
            )
        if len({audience.name for audience in self.audience}) < len(self.audience):
            raise ValueError("every audience needs a name of its own")
        self.region.region()
        return self

    @property
    def audiences(self) -> tuple[AudienceSettings, ...]:
        """Who reads traces; where nobody is named, one audience called "default"."""
        return self.audience or (AudienceSettings(name="default"),)

    @property
    def trace_topics(self) -> list[str]:
        """The topic of each of the `audiences`."""
        return [f"{self.topics.traces}.{audience.name}" for audience in self.audience] or [self.topics.traces]

    def product_topics(self, product: Product) -> list[str]:
        """Return the topics that hold a product."""
        return self.trace_topics if product == "traces" else [self.topics.density]

    def read_by_job(self, products: Collection[Product]) -> list[str]:
        """Return the topics that a streaming job with these products reads; each needs heartbeats."""
        live = [self.topics.policies] if self.live_policies and "traces" in products else []
        return [*(source.topic for source in self.source), *live]

    def written_by_job(self, products: Collection[Product]) -> list[str]:
        """Return the topics that a streaming job with these products writes."""
        names = self.topics
        ledger = [names.releases, names.charges] if "traces" in products else []
        own = [topic for product in products for topic in self.product_topics(product)]
        return [*own, *ledger, names.rejected, names.late, names.balance]


def parse_settings(document: Mapping[str, Any]) -> Settings:
    """Validate settings given as nested mappings.

    Raises
    ------
    SettingsError
        With one line for every problem: the setting's path and what it should be.
    """
    try:
        return Settings.model_validate(document)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, e['loc'])) or 'settings'}: {e['msg']}" for e in error.errors(include_url=False, include_input=False)]
        raise SettingsError("the settings have problems to mend:\n" + "\n".join(f"  - {line}" for line in lines)) from None


def load_settings(path: Path) -> Settings:
    """Read and validate a TOML settings file; relative paths in it are taken from the working folder.

    Raises
    ------
    SettingsError
        If the file cannot be read, is not TOML, or is not valid.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"the settings file {path} cannot be read; pass the path of an existing TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"the settings file {path} is not TOML: {error}") from None
    return parse_settings(document)
