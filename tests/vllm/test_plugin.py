"""The plugin by itself, with a stand-in for vLLM: when it acts, when it stays off, and that its faults stay its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# As much of vLLM as the plugin touches: names and call shapes, no behaviour of its own.
STAND_IN = {
    "vllm/__init__.py": "",
    "vllm/version.py": "__version__ = {version!r}",
    "vllm/distributed/__init__.py": "",
    "vllm/distributed/elastic_ep/__init__.py": "",
    "vllm/distributed/elastic_ep/elastic_state.py": """
import enum
from types import SimpleNamespace
import vllm.version

class Existing(enum.IntEnum):
    PREPARE = 0
    SYNC_KV_CACHE_MEMORY_SIZE = 1

class Group:
    pass

def _reduce(tensor, op=None, group=None, async_op=False):
    log.append("all_reduce")

log = []
torch = SimpleNamespace(distributed=SimpleNamespace(all_reduce=_reduce, other=1), tensor=list)

def stateless_destroy_torch_distributed_process_group(group):
    log.append("destroy")

class ParallelConfig:
    enable_elastic_ep = True
    data_parallel_master_ip, _coord_store_port, data_parallel_rank, data_parallel_size = "h", 7, 0, 2

    @staticmethod
    def sync_dp_state(dp_group, has_unfinished, pending_pause):
        log.append("sync")
        return True, False

    @staticmethod
    def has_unfinished_dp(dp_group, has_unfinished):
        return False

    @staticmethod
    def sync_kv_cache_memory_size(dp_group, kv_cache_memory):
        return kv_cache_memory

class DPEngineCoreProc:
    def __init__(self):
        self.vllm_config = SimpleNamespace(parallel_config=ParallelConfig())
        self.dp_group, self.current_wave, self.step_counter = Group(), 0, 1

    def run_busy_loop(self):
        return ParallelConfig.sync_dp_state(self.dp_group, has_unfinished=True, pending_pause=False)

    def _pause_complete(self): return False
    def resume_scheduler(self): return None
    def _eep_send_engine_core_notification(self, kind): log.append(kind)

class ElasticEPScalingState:
    def __init__(self, engine_core):
        self.engine_core, self.new_parallel_config = engine_core, ParallelConfig()
        self.worker_type, self.scale_type = "existing", "scale_up"
        self.commit_requested, self.new_dp_group, self.old_dp_group = False, None, engine_core.dp_group
        self.state = Existing.PREPARE

    def _collective_rpc(self, method, args=()):
        log.append(args[0])
        return list(args)

    def _init_new_dp_group(self): return "group"
    def _commit_new_dp_group(self): return None
    def _mark_ready_for_switch(self): return None
    def progress(self): return True
""",
    "vllm/distributed/elastic_ep/elastic_execute.py": """
from types import SimpleNamespace
import vllm.version

class ElasticEPScalingExecutor:
    def __init__(self):
        self.worker = SimpleNamespace(rank=3, vllm_config=SimpleNamespace(
            parallel_config=SimpleNamespace(data_parallel_rank=1)))
        self.reconfig_request = SimpleNamespace(new_data_parallel_master_ip="h", coord_store_port=7)

    def execute(self, execute_method, *args):
        return getattr(self, execute_method)(*args)

    def clear_async(self): return "cleared"
    def load_model(self): raise OSError("no weights")
""",
}
STATE = "import vllm.distributed.elastic_ep.elastic_state as s\n"
REGISTER = "import elasticfsm.integrations.vllm as plugin\nplugin.register()\n"


def run(tmp_path: Path, code: str, version: str = "0.33.0", **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs code in a fresh interpreter that has the stand-in instead of vLLM."""
    for name, text in STAND_IN.items():
        path = tmp_path / "lib" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("{version!r}", repr(version)))
    path = os.pathsep.join([str(tmp_path / "lib"), str(ROOT)])
    clean = {key: value for key, value in os.environ.items() if not key.startswith("ELASTICFSM")}
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**clean, "PYTHONPATH": path, "ELASTICFSM_JOURNAL": str(tmp_path / "journal"), **environment},
    )


def said(ran: subprocess.CompletedProcess[str]) -> str:
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def test_the_entry_point_is_the_one_that_vllm_looks_for() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert declared == {"vllm.general_plugins": {"elasticfsm": "elasticfsm.integrations.vllm:register"}}


def test_off_is_the_default_and_changes_nothing(tmp_path: Path) -> None:
    code = REGISTER + STATE + "print(s.torch.__class__.__name__, hasattr(s.DPEngineCoreProc, '_elasticfsm'))"
    assert said(run(tmp_path, code)) == "SimpleNamespace False"
    assert said(run(tmp_path, code, ELASTICFSM_VLLM="off")) == "SimpleNamespace False"


def test_an_unknown_word_is_off_and_says_so(tmp_path: Path) -> None:
    ran = run(
        tmp_path, REGISTER + STATE + "print(hasattr(s.DPEngineCoreProc, '_elasticfsm'))", ELASTICFSM_VLLM="guards"
    )
    assert said(ran) == "False"
    assert "none of off, observe, guard: the observer stays off" in ran.stderr


def test_registering_imports_nothing_of_vllm_and_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys\n" + REGISTER + "print(sorted(m for m in sys.modules if m.split('.')[0] in "
        "('vllm', 'torch', 'msgspec', 'yaml', 'transitions') or m.startswith('elasticfsm.embed')))"
    )
    assert said(run(tmp_path, code, ELASTICFSM_VLLM="guard")) == "[]"


@pytest.mark.parametrize("order", [REGISTER + STATE, STATE + REGISTER], ids=["before", "after"])
def test_it_is_installed_whether_vllm_was_imported_before_or_after_and_only_once(tmp_path: Path, order: str) -> None:
    code = order + (
        "first = s.ElasticEPScalingState\nplugin.register()\n"
        "from elasticfsm.integrations.vllm import core; core.install(s)\n"
        "print(s.ElasticEPScalingState is first, first.__name__, first.__mro__[1].__name__, s.torch.tensor is list)"
    )
    expected = "True ElasticEPScalingState ElasticEPScalingState True"
    assert said(run(tmp_path, code, ELASTICFSM_VLLM="observe")) == expected


@pytest.mark.parametrize("version", ["0.31.2", "0.34.0", "1.0.0", ""])
def test_a_release_that_the_table_does_not_fit_is_left_alone_with_one_line(tmp_path: Path, version: str) -> None:
    code = REGISTER + STATE + "print(hasattr(s.DPEngineCoreProc, '_elasticfsm'))"
    ran = run(tmp_path, code, version=version, ELASTICFSM_VLLM="guard")
    assert said(ran) == "False"
    assert ran.stderr.count("the observer stays off") == 1 and "it fits 0.32 and 0.33" in ran.stderr


def test_a_place_that_is_missing_keeps_the_observer_out_of_all(tmp_path: Path) -> None:
    code = STATE + "del s.DPEngineCoreProc._pause_complete\n" + REGISTER + "print(s.torch.__class__.__name__)"
    ran = run(tmp_path, code, ELASTICFSM_VLLM="guard")
    assert said(ran) == "SimpleNamespace"
    assert "not found in vLLM 0.33.0: DPEngineCoreProc._pause_complete" in ran.stderr


def test_without_elastic_parallelism_no_engine_is_watched(tmp_path: Path) -> None:
    code = (
        REGISTER
        + STATE
        + (
            "s.ParallelConfig.enable_elastic_ep = False\nprint(s.DPEngineCoreProc().run_busy_loop())\n"
            "from elasticfsm.integrations.vllm import core; print(core.current())"
        )
    )
    assert said(run(tmp_path, code, ELASTICFSM_VLLM="guard")).splitlines() == ["(True, False)", "None"]
    assert not (tmp_path / "journal").exists()


OPERATION = (
    "core = s.DPEngineCoreProc(); core.run_busy_loop(); state = s.ElasticEPScalingState(core)\n"
    "made = state._init_new_dp_group()\n"
    "told = state._collective_rpc('elastic_ep_execute', args=('start_async', 'prepare_reconfiguration'))\n"
)


def test_an_operation_is_journalled_and_its_results_are_passed_on(tmp_path: Path) -> None:
    code = REGISTER + STATE + OPERATION + "print(made, told, s.log)"
    assert said(run(tmp_path, code, ELASTICFSM_VLLM="observe")) == (
        "group ['start_async', 'prepare_reconfiguration'] ['sync', 'start_async']"
    )
    events = [json.loads(line) for line in (tmp_path / "journal" / "engine0.jsonl").read_text().splitlines()]
    steps = [event["step"] for event in events if event["event"] == "step.begin" and event.get("seen", True)]
    assert steps == ["step.sync: active", "groups.create: standby", "rpc.prepare_reconfiguration"]
    assert {event["operation"] for event in events} == {"", "h:7"}


def test_guard_refuses_what_comes_too_early_before_it_is_issued(tmp_path: Path) -> None:
    code = (
        REGISTER
        + STATE
        + OPERATION
        + (
            "from elasticfsm.embed import Refused\n"
            "try:\n    state._collective_rpc('elastic_ep_execute', args=('commit_scale_up', True))\n"
            "except Refused as error:\n    print(s.log, '|', error)"
        )
    )
    text = said(run(tmp_path, code, ELASTICFSM_VLLM="guard"))
    assert text.startswith("['sync', 'start_async'] | rank 0, scale_up.existing: in `prepare`")


FAULTS = {
    "monitor": "from elasticfsm.embed import Monitor as o; names = ('before', 'after', 'told', 'enter')",
    "recorder": "from elasticfsm.embed import Recorder as o; names = ('put', 'note', 'flush', 'begin', 'end')",
    "begin": "from elasticfsm.integrations.vllm.watch import Watch as o; names = ('_begin',)",
    "watch": "from elasticfsm.integrations.vllm.watch import Watch as o; names = ('__init__',)",
    "group": "from elasticfsm.integrations.vllm.watch import Watch as o; names = ('_group', '_agreed', '_changed')",
    "tables": "from elasticfsm.embed import Program as o; names = ('load',)",
}


@pytest.mark.parametrize("mode", ["observe", "guard"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_plugin_never_reaches_vllm(tmp_path: Path, fault: str, mode: str) -> None:
    sabotage = FAULTS[fault] + (
        "\ndef broken(*a, **k): raise ZeroDivisionError('sabotage')\nfor name in names: setattr(o, name, broken)\n"
    )
    after = "state._collective_rpc('elastic_ep_execute', args=('clear_async',)); print(made, s.log)"
    ran = run(tmp_path, REGISTER + STATE + sabotage + OPERATION + after, ELASTICFSM_VLLM=mode)
    assert said(ran) == "group ['sync', 'start_async', 'clear_async']"
    assert "ZeroDivisionError" in ran.stderr, "a fault is logged"


def test_a_plugin_that_cannot_even_be_imported_leaves_vllm_alone(tmp_path: Path) -> None:
    code = "import sys; sys.modules['elasticfsm.integrations.vllm.core'] = None\n" + REGISTER + STATE + "print('fine')"
    ran = run(tmp_path, code, ELASTICFSM_VLLM="guard")
    assert said(ran) == "fine" and "could not be installed" in ran.stderr


def test_a_worker_says_which_verb_it_is_in(tmp_path: Path) -> None:
    code = REGISTER + (
        "from vllm.distributed.elastic_ep.elastic_execute import ElasticEPScalingExecutor as E\n"
        "e = E(); print(e.execute('clear_async'))\n"
        "try:\n    e.execute('load_model')\nexcept OSError as error:\n    print(error)"
    )
    assert said(run(tmp_path, code, ELASTICFSM_VLLM="observe")).splitlines() == ["cleared", "no weights"]
    lines = (tmp_path / "journal" / "workers" / "engine1.3.jsonl").read_text().splitlines()
    found = [(event["event"], event["step"], event.get("error", "")) for event in map(json.loads, lines)]
    assert found == [
        ("step.begin", "rpc.clear_async", ""),
        ("step.end", "rpc.clear_async", ""),
        ("step.begin", "rpc.load_model", ""),
        ("step.end", "rpc.load_model", "OSError('no weights')"),
    ]
