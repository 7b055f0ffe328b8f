import numpy as np
import orjson
from numpy.typing import NDArray

from geo.privacy.prf import subkey
from streaming.audit import audit_charges
from streaming.charges import CHARGE, distinct_charges, read_charges
from streaming.closing import Closer
from streaming.decode import Decoder, user_id
from streaming.earlier import EarlierSpends
from streaming.records import RECORD
from streaming.release import Outputs
from streaming.settings import Settings, parse_settings
from streaming.shard import Protector, ShardState, tick_grid

SECRET = b"k" * 32
TICK = 28_333_334
START = TICK * 60_000


def settings(**sections: object) -> Settings:
    region = {"name": "helsinki", "south": 60.0, "west": 24.5, "north": 60.4, "east": 25.4}
    return parse_settings({"region": region, "secret": {"env": "UNUSED"}, **sections})


def fixes(*docs: dict[str, object], config: Settings) -> NDArray[np.void]:
    values = [orjson.dumps({"user": "a", "t": START, "lat": 60.2, "lon": 24.9, **doc}) for doc in docs]
    n = len(values)
    decoder = Decoder(config.source, tick_grid(config), SECRET)
    return decoder.decode(values, np.full(n, START + 59_000), np.zeros(n, int), np.arange(n))


def rows_of(out: Outputs, topic: str) -> list[dict[str, object]]:
    return [orjson.loads(line.split("\t")[1]) for line in out.get(topic, [])]


def close(*docs: dict[str, object], config: Settings | None = None) -> Outputs:
    config = config or settings()
    closer = Closer(config, SECRET, ["traces"], EarlierSpends.none())
    out, _ = closer.close(ShardState.empty({}), 0, TICK, fixes(*docs, config=config))
    return out


def charges_of(out: Outputs) -> list[NDArray[np.void]]:
    return [read_charges(row) for row in rows_of(out, "charges")]


def test_order_of_arrival_has_no_say() -> None:
    docs = [{"user": f"u{i % 7}", "t": START + i * 97 % 50_000, "lat": 60.1 + i % 13 / 100} for i in range(200)]
    assert close(*docs)["traces"] == close(*docs)["traces"]
    forward, backward = close(*docs), close(*reversed(docs))
    assert sorted(forward["traces"]) == sorted(backward["traces"])
    assert forward["balance"] == backward["balance"]


def test_every_record_has_one_outcome() -> None:
    docs = [{"t": START + i * 1000} for i in range(5)] + [
        {"t": START},
        {"t": START + 1, "lat": 60.39},
        {"lat": 95},
        {"user": None},
        {"t": 0},
    ]
    (balance,) = rows_of(close(*docs, config=settings(tick={"max_fixes": 3})), "balance")
    parts = ("used", "merged", "duplicate", "late", "rejected", "withheld", "control")
    assert balance["records"] == len(docs) == sum(balance[part] for part in parts)  # type: ignore[misc]
    assert balance["duplicate"] == 1
    assert balance["rejected"] == 3


def test_where_somebody_was_changes_no_status_key_or_count() -> None:
    def shape(out: Outputs) -> object:
        traces = [{k: v for k, v in row.items() if k not in ("lat", "lon", "look")} for row in rows_of(out, "traces")]
        return traces, out["releases"]

    places = [(60.2, 24.9), (0.0, 0.0), (95.0, 24.9), (-33.0, 151.0), (None, 24.9), ("x", 24.9), (60.2, 1848.0)]
    shapes = [shape(close({"lat": lat, "lon": lon, "t": START + 5}, {"user": "b"})) for lat, lon in places]
    assert all(other == shapes[0] for other in shapes)
    assert shapes[0][0][0]["status"] == "released"  # type: ignore[index]


def test_a_change_within_the_cell_changes_nothing_and_one_of_cell_redraws() -> None:
    base = close({"lat": 60.2, "lon": 24.9})["traces"]
    assert close({"lat": 60.2000001, "lon": 24.9})["traces"] == base
    (a,), (b,) = rows_of({"t": base}, "t"), rows_of(close({"lat": 60.21, "lon": 24.9}), "traces")
    assert abs((b["lat"] - a["lat"]) - 0.01) > 1e-5  # type: ignore[operator]


def test_at_the_limit_rows_are_withheld_by_the_ledger_alone() -> None:
    config = settings(privacy={"releases_per_window": 2, "window_ticks": 4})
    protector, state = Protector(config, SECRET), ShardState.empty({})
    seen = []
    for tick in range(TICK, TICK + 8):
        rows = fixes({}, config=config)
        rows["tick"] = tick
        (row,) = rows_of(protector.close(state, 0, tick, rows), "traces")
        seen.append(row["status"][0])  # type: ignore[index]
        state = ShardState.load(state.dump(), state.slots)
    assert "".join(seen) == "rrwwrrww"


def test_enrolment_ends_after_silence_and_the_state_goes_after_the_window() -> None:
    config = settings(tick={"silent_ticks": 3}, privacy={"window_ticks": 5})
    protector, state = Protector(config, SECRET), ShardState.empty({})
    none = np.zeros(0, RECORD)
    counts = [len(protector.close(state, 0, TICK, fixes({}, config=config))["traces"])]
    for tick in range(TICK + 1, TICK + 9):
        counts.append(len(protector.close(state, 0, tick, none).get("traces", [])))
    assert counts == [1, 1, 1, 1, 0, 0, 0, 0, 0]
    assert len(state.users) == 0
    assert not state.slots


def test_summaries_equal_the_rows() -> None:
    out = close(*({"user": f"u{i}"} for i in range(20)))
    (summary,) = rows_of(out, "releases")
    traces = rows_of(out, "traces")
    assert summary["released"] == sum(row["status"] == "released" for row in traces) == 20
    assert summary["epsilon_micro"] == sum(row["epsilon_micro"] for row in traces)  # type: ignore[misc]


def test_earlier_spends_count() -> None:
    config = settings(privacy={"releases_per_window": 2, "window_ticks": 4})
    first = Protector(config, SECRET)
    (now,) = charges_of(first.close(ShardState.empty({}), 0, TICK, fixes({}, config=config)))
    before = now.copy()
    before["tick"] -= 1
    spends = EarlierSpends.of([now, now, before])
    again = Protector(config, SECRET, spends)
    (row,) = rows_of(again.close(ShardState.empty({}), 0, TICK, fixes({"lat": 60.3}, config=config)), "traces")
    assert row["status"] == "withheld"


def test_operator_records_hold_no_coordinate_and_no_user() -> None:
    out = close({"user": "alice", "lat": 95.123}, {"user": "alice", "t": START - 10**6, "lat": 60.345})
    assert len(out["rejected"]) == len(out["late"]) == 1
    for topic in ("rejected", "late", "balance"):
        assert not any(secret in line for line in out[topic] for secret in ("alice", "95.1", "60.3", "24.9", "951230", "603450"))


def test_second_looks_never_pass_the_limit_together() -> None:
    charges: list[NDArray[np.void]] = []
    for look in range(4):
        config = settings(privacy={"window_ticks": 6, "releases_per_window": 3, "epoch_ticks": 1000}, tick={"max_fixes": look + 1})
        protector = Protector(config, SECRET, EarlierSpends.of(charges))
        state = ShardState.empty({})
        for tick in range(TICK, TICK + 20):
            here = {"t": START, "lat": 60.2 + look / 100}
            rows = fixes(here, {"user": "b", **here} if tick % 5 < 2 else here, config=config)
            rows["tick"] = tick
            charges += charges_of(protector.close(state, 0, tick, rows))
    spent = distinct_charges(charges)
    assert len(spent) == len(np.concatenate(charges))
    assert audit_charges(spent, 6, 3 * 1_484_321)[1] == 0


def test_a_row_is_given_on_only_when_nothing_of_it_is_left() -> None:
    config = settings(privacy={"window_ticks": 6, "releases_per_window": 2, "epoch_ticks": 1000}, tick={"silent_ticks": 2})
    first, state = Protector(config, SECRET), ShardState.empty({})
    charges = []
    for tick in range(TICK, TICK + 12):
        rows = fixes({}, config=config)
        rows["tick"] = tick
        charges += charges_of(first.close(state, 0, tick, rows))
    second, state = Protector(config, SECRET, EarlierSpends.of(charges)), ShardState.empty({})
    granted = []
    for tick in range(TICK, TICK + 40):
        present = ["c", *(["a"] if tick == TICK else []), *(["b"] if tick >= TICK + 9 else [])]
        rows = fixes(*({"user": user} for user in present), config=config)
        rows["tick"] = tick
        paid = np.concatenate([np.zeros(0, CHARGE), *charges_of(second.close(state, 0, tick, rows))])
        granted.append(int((paid["user"] == user_id(subkey(SECRET, b"user-id"), "b")).sum()))
        assert (state.users["spent"] >= 0).all()
    assert all(sum(granted[i : i + 6]) <= 2 for i in range(len(granted)))
