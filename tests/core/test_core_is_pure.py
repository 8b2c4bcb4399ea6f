"""The core imports without torch, sockets or the runtime, and the wheel carries runtime and spec as real files."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "zmq", "nixl", "transformers", "safetensors", "elasticfsm.runtime")

IMPORT_ALL = """
import importlib, pkgutil, sys
import elasticfsm
skipped = ("elasticfsm.runtime", "elasticfsm.__main__")
names = []
def walk(package):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        if module.name in skipped:
            continue
        names.append(module.name)
        loaded = importlib.import_module(module.name)
        if module.ispkg:
            walk(loaded)
walk(elasticfsm)
print(len(names), *[name for name in %r if name in sys.modules])
"""


def run(code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=cwd, timeout=120, check=False
    )


def test_importing_the_core_imports_nothing_heavy(tmp_path: Path) -> None:
    done = run(IMPORT_ALL % (HEAVY,), tmp_path)
    assert done.returncode == 0, done.stderr
    count, *heavy = done.stdout.split()
    assert int(count) > 10
    assert heavy == []


def test_runtime_is_refused_as_a_top_level_module() -> None:
    done = run("import runtime", ROOT)
    assert done.returncode != 0
    assert "import this package as elasticfsm.runtime, not as runtime" in done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    from hatchling.builders.wheel import WheelBuilder

    folder = tmp_path_factory.mktemp("wheel")
    (built,) = WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    return zipfile.ZipFile(built)


@pytest.mark.parametrize("folder", ["runtime", "spec"])
def test_the_wheel_has_every_file_of(folder: str, wheel: zipfile.ZipFile) -> None:
    suffix = {"runtime": "*.py", "spec": "*.yaml"}[folder]
    wanted = {f"elasticfsm/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / folder).rglob(suffix)}
    assert len(wanted) > 3
    assert wanted <= set(wheel.namelist())


def test_files_in_the_wheel_are_no_links(wheel: zipfile.ZipFile) -> None:
    linked = [entry.filename for entry in wheel.infolist() if entry.external_attr >> 28 == 0o12]
    assert linked == []
    assert wheel.read("elasticfsm/spec/serving.yaml") == (ROOT / "spec" / "serving.yaml").read_bytes()


def test_the_wheel_has_no_tests(wheel: zipfile.ZipFile) -> None:
    assert {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" not in name} == {"elasticfsm"}
