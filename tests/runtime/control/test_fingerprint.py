"""The fingerprint of the code: what it covers, and who is refused by it before anything changes."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import elasticfsm
from elasticfsm.errors import RequestRefused
from elasticfsm.runtime import wire
from elasticfsm.runtime.deployment import Deployment, Options
from elasticfsm.runtime.fingerprint import CODE, fingerprint, sources
from elasticfsm.runtime.ledger import Ledger, Standing
from elasticfsm.runtime.models import PSALTER
from elasticfsm.runtime.roster import Roster


def test_every_module_that_an_engine_imports_is_covered():
    code = "import sys\nimport elasticfsm.runtime.engine.process\n"
    code += "print(*[m.__file__ for n, m in sys.modules.items() if n.startswith('elasticfsm')], sep='\\n')\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    known = {path.resolve() for path in sources()}
    modules = [Path(line).resolve() for line in done.stdout.splitlines()]
    assert len(modules) > 80
    assert [str(path) for path in modules if path not in known] == []
    assert {"scale_up.yaml", "scale_down.yaml", "rebalance.yaml", "serving.yaml"} <= {path.name for path in known}


def test_it_changes_with_every_byte_of_code_and_spec_and_with_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(elasticfsm, "__file__", str(tmp_path / "__init__.py"))
    files = ["machine.py", "runtime/group.py", "runtime/engine/core.py", "spec/scale_up.yaml"]
    beside = ["runtime/bench/growth.py", "runtime/service/app.py", "check/run.py", "spec/faulty/kb01.yaml"]
    for name in (*files, *beside):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("a")
    seen = [fingerprint()]
    for name in (*beside, *files):
        (tmp_path / name).write_text("b")
        seen.append(fingerprint())
    assert len(set(seen[: len(beside) + 1])) == 1
    assert len(set(seen)) == len(files) + 1
    assert seen[0].startswith(f"{elasticfsm.__version__}+")


@pytest.mark.parametrize("code", ["", "0.0.9+0123456789ab"])
def test_an_engine_of_another_version_is_turned_away_for_good_and_told_both(code):
    sent = []
    roster = Roster(lambda engine, message: sent.append(message))
    roster.expect(["e1"], "op-1")
    welcome = wire.Welcome(settings=wire.Settings(model="/m", slots=8, kv_blocks=64, max_tokens=32, store="x:1"))
    hello = wire.Hello(sender="e1", operation="op-1", pid=7, wake="ipc:///w", code=code)
    turned = roster.hello(hello, welcome)
    assert (turned.final, turned.code, sent, roster.get("e1").here) == (True, CODE, [], False)
    assert f"it runs elasticfsm {code or 'of an older version'}, this deployment {CODE}" in turned.reason
    stranger = roster.hello(msgspec.structs.replace(hello, operation="op-0"), welcome)
    assert (stranger.code, "expected op-1" in stranger.reason) == ("", True)  # it does not end what waits for e1
    assert roster.hello(msgspec.structs.replace(hello, code=CODE), welcome) is None


@pytest.mark.parametrize("code", ["", "0.0.9+0123456789ab"])
def test_engines_of_another_version_are_not_taken_over_and_nothing_changes(tmp_path, code):
    standing = Standing(
        instance="run-1",
        generation=2,
        members=("e0",),
        model=str(PSALTER),
        address=f"ipc://{tmp_path}/hub.sock",
        journal=str(tmp_path / "journal"),
        next_engine=3,
        options=msgspec.to_builtins(Options(keep=60.0, slots=16)),
        processes={"e0": 1},
        code=code,
    )
    Ledger(tmp_path).write_standing(standing)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(RequestRefused, match=r"run elasticfsm .*, this is .*; take them over with the version"):
        Deployment.resume(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
