"""docs/switch.md: what was tried for the switch, explored rule by rule, and the counterexamples in words."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from elasticfsm.check.rules import RULES, SIZES, Cell, explore_rule, load_rules
from elasticfsm.errors import SpecError

PAGE = Path("docs") / "switch.md"
RECORD = RULES.with_name("verdicts.json")
LIMIT = 3_000_000
CRASHES = {0: "no crash", 1: "one crash"}
TWO = ("confirm",)  # rules that are also explored with two crashes


@dataclass(frozen=True)
class Verdict:
    """One cell of the table as it is kept: the verdict, the states, and the trace of what goes wrong first."""

    rule: str
    crashes: int
    verdict: str
    states: int
    trace: list[str]


def write(directory: Path | None = None, console: Console | None = None) -> int:
    """Explores every rule (minutes), writes the page and the record beside the rules; returns the exit code 0.

    Raises `SpecError` outside a checkout, where there is no docs directory.
    """
    console = console or Console()
    page = (directory or Path.cwd()) / PAGE
    if not page.parent.is_dir():
        raise SpecError(f"no directory {page.parent}; run this in a checkout of the project")
    rules, document = load_rules()
    found: list[Verdict] = []
    for name in rules:
        for crashes in (*CRASHES, 2) if name in TWO else CRASHES:
            cell = explore_rule(name, rules, document, crashes, limit=LIMIT)
            found.append(kept(cell))
            console.print(f"{name}, {crashes}: {cell.verdict} ({cell.run.states:,} states, {cell.run.seconds:.0f} s)")
    RECORD.write_text(json.dumps([one.__dict__ for one in found], indent=1) + "\n", encoding="utf-8")
    page.write_text(text(found), encoding="utf-8")
    return 0


def kept(cell: Cell) -> Verdict:
    """A cell without what differs from run to run."""
    shortest = min(cell.worst(), key=lambda one: one.steps, default=None)
    return Verdict(cell.rule, cell.crashes, cell.verdict, cell.run.states, shortest.lines if shortest else [])


def recorded() -> list[Verdict]:
    """The verdicts beside the rules, as the last run wrote them."""
    return [Verdict(**one) for one in json.loads(RECORD.read_text(encoding="utf-8"))]


def text(found: list[Verdict]) -> str:
    """The page: introduction, table, counterexamples."""
    rules, _ = load_rules()
    cells = {(one.rule, one.crashes): one for one in found}
    lines = [INTRODUCTION, "| rule | no crash | one crash |", "|---|---|---|"]
    for name, rule in rules.items():
        told = [_cell(cells.get((name, crashes))) for crashes in CRASHES]
        if (name, 2) in cells:
            told[-1] += f"; two crashes: {_cell(cells[name, 2])}"
        says = f"**{rule.says}**" if name in ADOPTED else rule.says
        lines.append(f"| {says} | {told[0]} | {told[1]} |")
    lines += ["", NOTES]
    for name, rule in rules.items():
        wrong = next((cells[name, c] for c in CRASHES if (name, c) in cells and cells[name, c].trace), None)
        if wrong is not None:
            lines += [f"### {rule.says}", "", f"`{name}`, {CRASHES[wrong.crashes]}: {wrong.verdict}.", "", "```"]
            lines += [*wrong.trace, "```", ""]
    return "\n".join(lines).rstrip() + "\n"


def _cell(one: Verdict | None) -> str:
    if one is None:
        return ""
    return f"**holds** ({one.states:,})" if one.verdict == "holds" else f"{one.verdict} ({one.states:,})"


ADOPTED = ("confirm", "retire", "idle_peers")

INTRODUCTION = f"""<!-- written by `elasticfsm check --rules`; do not edit -->
# What was tried for the switch

Existing engines serve; new ones have prepared; at one moment all must change over, or none. Each rule below is a few
edits of one small protocol (`spec/variants/switch/`), explored at {SIZES}: two existing engines, one new engine and the
coordinator. To prepare is one local step. Messages take any time and come in any order, deadlines fire at any moment,
and one process, whoever it is, may die at any moment, also between two messages that it sends and inside a collective:
then the collective may return at one member and fail at another.

- *splits*: somebody stands on the side of the commit, somebody else on that of the abort (`agreement`, `decided_once`);
- *loses the service*: an engine that serves ends or is blocked although no engine that serves died (`service_kept`);
- *strands*: a state from which no good end can be reached (`good_end`).

The number behind a word is the length of the shortest trace in steps, the one in brackets counts states. A new engine
counts as one that serves from the moment its contribution to the join has been made use of; in the rules that say more
(*right after its join*, *revert*) only from the moment it has said `switched` or the coordinator has decided.
"""

NOTES = """An existing engine's death may always end the service (`failed`): nothing is claimed there but that everybody
finds out. Counts depend on how finely steps are cut; what is to be compared are the words.

What the table taught, beyond the rules themselves:

- **A new engine that has entered the join obeys no deadline of its own.** The collective may have completed at all the
  others: if it gives up then, they commit without it. It ends when it is told, or when a member closes its side, which
  every member does that goes back. (`confirm_impatient` is what happens otherwise.)
- **A new engine whose first step fails was left behind, and ends**: the others went back, or one of them died and they
  find out by themselves. It reports neither a failure of the operation nor its abort.
- **A question may be asked again**: who has switched says so again, who has ended repeats its last word.
- **What undoes goes on after its deadline**: an engine that fails because undoing took long would cost the service.

## The shortest counterexamples
"""
