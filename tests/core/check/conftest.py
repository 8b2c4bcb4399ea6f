"""Small protocols, broken on purpose by edits that a test writes down, and explored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elasticfsm.check.verdict import Run, run
from elasticfsm.check.world import Regime, sizes_of
from elasticfsm.compile import Program, compile_protocol
from elasticfsm.language import Edit, Patch
from elasticfsm.patch import patched
from elasticfsm.protocol import load
from elasticfsm.reading import read

GROW = Path(__file__).parent / "grow.yaml"
SWITCH = "variants/switch/base"
Explore = Callable[..., Run]

HASTY = {"at": "existing.settled", "leave": {"done": "retiring"}}  # it does not wait for `retire`

# For each property a small mistake that it must refute: edits, and where to look.
MISTAKES: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "no_deadlock": (
        [{"at": "existing.joining", "move": "groups.join: standby", "before": "placement.share: standby"}],
        {},
    ),
    "good_end": ([{"at": "existing.done", "sends": []}], {}),
    "commits": ([{"at": "coordinator.building", "leave": {"all prepared": "asking"}}], {}),
    "agreement": ([{"at": "coordinator.asking", "leave": {"all switched": "aborted"}}, HASTY], {"cancel": True}),
    "collective_order": (
        [{"at": "new.building", "move": "cache.agree: standby", "before": "groups.create: standby"}],
        {},
    ),
    "membership": ([{"at": "new.building", "add": {"cache.agree": "active"}, "before": "groups.create: standby"}], {}),
    "contracts": ([{"at": "existing.joining", "drop": "placement.share: standby"}], {}),
    "no_use_after_destroy": (
        [{"at": "existing.joining", "add": {"groups.destroy": "retired"}, "after": "groups.switch"}],
        {"sizes": "2+1"},
    ),
    "no_transfer_at_switch": ([{"at": "existing.building", "drop": "experts.stop"}], {}),
    "placement": (
        [
            {"at": "new.building", "drop": "weights.read: existing"},
            {"at": "existing.building", "drop": "weights.withdraw: new"},
        ],
        {},
    ),
    "coverage": ([{"at": "removing.checking", "drop": "experts.leave"}], {"of": "scale_down"}),
    "requests_kept": ([{"at": "removing.handing", "drop": "requests.hand_over"}], {"of": "scale_down"}),
    "service_kept": (
        [{"at": "existing.undoing", "leave": {"expired": "failed"}}],
        {"of": SWITCH, "regime": Regime(expiry="arbitrary")},
    ),
    "decided_once": (
        [{"at": "coordinator.recovering", "leave": {"answer committed": "planning"}}],
        {"of": GROW.parent / "restart.yaml", "sizes": "1", "regime": Regime(crashes=1, restart=True)},
    ),
    "in_doubt": (
        [{"at": "new.joining", "leave": {"expired": "undoing"}}],
        {"of": SWITCH, "regime": Regime(expiry="arbitrary")},
    ),
    "terminates": ([{"at": "existing.retiring", "sends": []}], {"of": "scale_up"}),
    "exactly_once": ([{"at": "messages", "put": {"withdraw": "coordinator, earlier -> existing"}}], {}),
    "one_operation": (
        [{"at": "coordinator.voting", "leave": {"received scale": "planning"}}],
        {"regime": Regime(again=True)},
    ),
    "no_leak": ([{"at": "existing.retiring", "drop": "groups.destroy: retired"}], {"of": "scale_up"}),
    "wishes_met": ([{"at": "engine.idle", "leave": {"received request": "idle"}}], {"of": "serving", "sizes": "2"}),
}


def broken(of: Path | str, *edits: dict[str, Any]) -> Program:
    """The program of a protocol after some edits."""
    if not edits:
        return compile_protocol(load(of))
    patch = Patch("broken", str(of), "", "contracts", [Edit(**edit) for edit in edits])
    return patched(patch, read(GROW))


@pytest.fixture
def explored() -> Explore:
    """Explores a protocol after some edits."""

    def explore(
        *edits: dict[str, Any],
        of: Path | str = GROW,
        sizes: str = "1+1",
        cancel: bool = False,
        regime: Regime | None = None,
        **how: Any,
    ) -> Run:
        program = broken(of, *edits)
        return run(program, sizes_of(program, sizes), regime or Regime(cancel=cancel), **how)

    return explore


@pytest.fixture
def mistakes() -> dict[str, tuple[list[dict[str, Any]], dict[str, Any]]]:
    """For each property the edits that break it, and how to explore the result."""
    return MISTAKES


@pytest.fixture
def grow() -> Callable[..., Program]:
    """The small protocol, or another one, after some edits."""

    def make(*edits: dict[str, Any], of: Path | str = GROW) -> Program:
        return broken(of, *edits)

    return make


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "mistake" in metafunc.fixturenames:
        metafunc.parametrize("mistake", MISTAKES)
