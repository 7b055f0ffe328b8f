"""The command line: errors are one sentence, help is quick, and texts of unexpected errors stay hidden."""

import subprocess
import sys
from pathlib import Path

import pytest

from jobs import cli
from jobs.errors import UserError
from streaming.settings import TopicNames

SECRET = "48.8584, 2.2945"


def run_main(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["wayveil", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> str:
        raise ValueError(SECRET)

    monkeypatch.setattr(cli, "parse_duration_s", fail)
    monkeypatch.delenv(cli.DEBUG_VARIABLE, raising=False)


def test_help_loads_no_heavy_library() -> None:
    heavy = ["pyflink", "kafka", "numpy", "pydantic", "shapely", "pyarrow"]
    code = f"import sys, jobs.cli; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("words", [["--help"], ["broker", "--help"], ["topics", "create", "--help"], ["heartbeat", "--help"]])
def test_every_command_has_help(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    assert run_main(monkeypatch, *words) == 0


def test_an_unexpected_error_hides_its_text(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], failing: None) -> None:
    assert run_main(monkeypatch, "heartbeat", "--once") == cli.EXIT_FAILURE
    shown = capsys.readouterr()
    assert shown.err == "wayveil: ValueError stopped the command; run again with --debug to see the trace.\n"
    assert SECRET not in shown.out


def test_debug_shows_the_trace(monkeypatch: pytest.MonkeyPatch, failing: None) -> None:
    monkeypatch.setattr(sys, "argv", ["wayveil", "heartbeat", "--once", "--debug"])
    with pytest.raises(ValueError, match=SECRET):
        cli.main()


def test_a_user_error_is_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monkeypatch.delenv(cli.DEBUG_VARIABLE, raising=False)
    assert run_main(monkeypatch, "heartbeat", "--once", "--settings", str(tmp_path / "none.toml")) == cli.EXIT_USER_ERROR
    shown = capsys.readouterr().err
    assert shown.startswith("wayveil: the settings file ")
    assert shown.endswith("pass the path of an existing TOML file\n")


@pytest.mark.parametrize(("text", "seconds"), [("500ms", 0.5), ("10s", 10), ("1.5m", 90), (" 2h ", 7200)])
def test_durations(text: str, seconds: float) -> None:
    assert cli.parse_duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "10", "s", "-1s", "0s", "1 d", "nan s"])
def test_no_durations(text: str) -> None:
    with pytest.raises(UserError, match="is no duration"):
        cli.parse_duration_s(text)


def test_every_topic_of_the_product_can_be_read_by_name() -> None:
    assert [topic.value for topic in cli.OutputTopic] == list(TopicNames.model_fields)
