"""The import contracts hold, and they can fail."""

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINT_IMPORTS = shutil.which("lint-imports", path=sysconfig.get_path("scripts"))


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    assert LINT_IMPORTS is not None, "run `make setup`"
    return subprocess.run([LINT_IMPORTS, "--no-cache"], cwd=folder, capture_output=True, text=True, check=False)


def test_the_packages_keep_every_contract() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Empty packages of the same names under the same contracts, with all imports that are allowed."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    modules = {
        "geo/__init__.py": "import numpy\n",
        "streaming/__init__.py": "import geo\nimport pydantic\n",
        "streaming/ticks.py": "",
        "streaming/flink/__init__.py": "import pyflink\nimport streaming.ticks\n",
        "jobs/__init__.py": "import streaming.flink\nimport geo\nimport kafka\nimport confluent_kafka\n",
    }
    for name, text in modules.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_the_model_keeps_every_contract(model: Path) -> None:
    done = lint_imports(model)
    assert done.returncode == 0, done.stdout
    assert "0 broken" in done.stdout


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("geo/__init__.py", "streaming.ticks"),
        ("geo/__init__.py", "pydantic"),
        ("geo/__init__.py", "kafka"),
        ("streaming/ticks.py", "jobs"),
        ("streaming/ticks.py", "streaming.flink"),
        ("streaming/ticks.py", "pyflink.table"),
        ("streaming/ticks.py", "kafka.errors"),
        ("streaming/ticks.py", "confluent_kafka"),
        ("jobs/__init__.py", "pyflink.datastream"),
    ],
)
def test_a_forbidden_import_breaks_a_contract(model: Path, module: str, forbidden: str) -> None:
    with (model / module).open("a") as file:
        file.write(f"\n\ndef later():\n    import {forbidden}\n")
    done = lint_imports(model)
    assert done.returncode == 1, done.stdout
    assert "BROKEN" in done.stdout
