"""The table of a GPU run: what was found, beside its bar where there is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .growing import shares


class Row(NamedTuple):
    """A line; `verdict` is "met", "missed" or empty."""

    what: str
    found: str
    bar: str = ""
    verdict: str = ""


def rows(found: dict[str, Any]) -> list[Row]:
    """The lines of all sections that ran; one that did not is a line that says why."""
    makers: dict[str, Callable[[Any], list[Row]]] = {
        "copy_gbs": lambda gbs: [Row("plain device copy, 1 GiB", f"{gbs:.0f} GB/s")],
        "experts": _experts,
        "switch2": _switch,
        "switch4": _switch,
        "transfer": _transfer,
        "cycles": _cycles,
        "exact": _cycles,
        "eplb": _eplb,
        "throughput": _throughput,
        "throughput_nccl": _beside,
        "shape": _shape,
        "empty_groups": _empty,
    }
    lines: list[Row] = []
    for name, make in makers.items():
        section = found.get(name)
        if section is None:
            continue
        if isinstance(section, dict) and ("failed" in section or "skipped" in section):
            why = section.get("failed") or section["skipped"]
            lines.append(Row(name, str(why)[:200], "", "missed" if "failed" in section else "not run"))
            continue
        try:
            lines += make(section)
        except (KeyError, IndexError, ValueError, ZeroDivisionError) as error:
            lines.append(Row(name, f"incomplete: {error!r}", "", "missed"))
    return lines


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.2f}"


def _at_most(what: str, value: float, bar: float, unit: str = "") -> Row:
    return Row(what, _number(value) + unit, f"<= {bar:g}", "met" if value <= bar else "missed")


def _at_least(what: str, value: float, bar: float, unit: str = "") -> Row:
    return Row(what, _number(value) + unit, f">= {bar:g}", "met" if value >= bar else "missed")


def _experts(sections: list[dict[str, Any]]) -> list[Row]:
    return [
        Row(
            f"experts of a layer, {each['experts']} slots, {each['tokens']} tokens: grouped / dense / loop, ms",
            f"{each['grouped_ms']:.3f} / {each['dense_ms']:.3f} / {each['loop_ms']:.3f}",
            f"weights at copy speed: {each['bytes_ms_at_4TBs']:.2f}",
        )
        for each in sections
    ]


def _switch(found: dict[str, Any]) -> list[Row]:
    of = f"{found['ranks']} ranks"
    return [
        Row(f"{of}: step alone, p50 ms", f"{found['step_ms']:.2f}"),
        _at_most(f"{of}: steps while preparing, p99 / p50 alone", found["meanwhile_p99"], 1.5),
        _at_most(f"{of}: switch and first step, median steps", found["pause_steps"], 2.5),
        Row(
            f"{of}: tear down, create, capture, step in the foreground, median steps",
            f"{found['foreground_steps']:.0f}",
        ),
        Row(f"{of}: the longest step after, destroying the retired generation", f"{found['after_max']:.2f} steps"),
        Row(
            f"{of}: memory of one graph / all that torch holds, MiB",
            _mib(found["graph_bytes"], found["reserved_bytes"]),
        ),
        *_generations(found["memory_mib"]),
    ]


def _generations(memory: dict[str, list[list[int]]]) -> list[Row]:
    """MiB after each of some generations: on the GPU, reserved by torch, allocated."""
    return [
        Row(
            f"generations in a row, {how}: MiB on the GPU / torch reserved / allocated, first and last",
            " ".join(f"{a}->{b}" for a, b in zip(seen[0], seen[-1], strict=True)) + f" in {len(seen)}",
        )
        for how, seen in memory.items()
    ]


def _mib(*numbers: float) -> str:
    return " / ".join(f"{number / 2**20:.0f}" for number in numbers)


def _transfer(found: dict[str, Any]) -> list[Row]:
    lines = [Row("UCX lanes named for GPU reads", str(found["lanes"]))]
    for each in found["sizes"]:
        size = f"rows of {each['mb']:g} MB x {each['rows']}"
        lines += [
            Row(
                f"{size}, adjacent: NIXL ours / NIXL raw / NCCL / copy, GB/s",
                " / ".join(f"{each[name]:.1f}" for name in ("ours_adjacent", "raw_adjacent", "nccl_adjacent", "copy")),
            ),
            Row(
                f"{size}, scattered: the same, copy row by row",
                " / ".join(
                    f"{each[name]:.1f}"
                    for name in ("ours_scattered", "raw_scattered", "nccl_scattered", "copy_by_rows")
                ),
            ),
            Row(
                f"{size}: ours of raw / of NCCL / coalesced of one descriptor each",
                f"{each['ours_adjacent'] / each['raw_adjacent']:.2f} / "
                f"{each['ours_adjacent'] / each['nccl_adjacent']:.2f} / "
                f"{each['ours_adjacent'] / each['one_descriptor_per_expert']:.2f}",
            ),
        ]
    lines.append(_at_most("rows with a wrong byte", found["wrong_rows"], 0))
    return lines


def _cycles(found: dict[str, Any]) -> list[Row]:
    path = found["path"]
    lines = [
        Row(f"path, {found['dtype']}", " ".join(map(str, path))),
        _at_most(f"requests lost of {found['sent']}", found["lost"], 0),
        _wrong(found),
        _at_least("changes completed", found["completed"], len(path) - 1),
        _at_most("journal findings and refused collectives", len(found["journal_errors"]) + found["refused"], 0),
    ]
    if found["pauses"]:
        worst = max(found["pauses"], key=lambda pause: pause["steps"])
        lines.append(_at_most(f"longest step of a switch, median steps ({worst['change']})", worst["steps"], 2.5))
    for size, each in found["preparing"].items():
        lines.append(_at_most(f"{size} engines: steps while preparing, p99 / p50 alone", each["beside_p99"], 1.5))
        lines.append(
            Row(f"{size} engines: the same alone; longest beside", f"{each['alone_p99']:.2f}; {each['beside_max']:.2f}")
        )
    lines.append(
        Row("bytes by way", ", ".join(f"{name} {count / 1e6:.1f} MB" for name, count in found["bytes"].items()))
    )
    lines += _growths(found)
    lines += _memory(found["memory_mib"], len(path) > 3)
    lines += [Row("said", text[:110]) for text in (*found["says"][:4], *found["notes"])]
    return lines


def _growths(found: dict[str, Any]) -> list[Row]:
    """The median growth, its share of each phase, and what a plain copy of its bytes would have taken."""
    growths = sorted(found.get("growths", []), key=lambda each: float(each["total_s"]))
    if not growths:
        return []
    typical = growths[len(growths) // 2]
    moved = [each["forecast"]["measured_bytes"] for each in found["operations"] if each["change"] == typical["change"]]
    ideal = max(moved) / found["copy_gbs"] / 1e9
    return [
        Row(
            f"growth {typical['change']}, request to done: s; / (bytes / copy bandwidth)",
            f"{typical['total_s']:.1f}; {typical['total_s'] / max(ideal, 1e-12):.0f}",
        ),
        Row("its phases", shares(typical["phases"], typical["total_s"])),
    ]


def _memory(seen: list[tuple[int, list[int]]], barred: bool) -> list[Row]:
    """MiB in use at every visit of a size; growth counts from the second visit, when nothing is new any more."""
    lines = []
    for size in sorted({size for size, _ in seen}):
        visits = [used for at, used in seen if at == size]
        what = f"memory at {size}, MiB per GPU: first, second, last of {len(visits)} visits"
        lines.append(Row(what, " ".join(str(visits[at]) for at in (0, min(1, len(visits) - 1), -1))))
        if barred and len(visits) > 2:
            grown = max(last - second for second, last in zip(visits[1], visits[-1], strict=True))
            lines.append(_at_most(f"memory at {size}: last visit above the second, MiB", grown, 16))
    return lines


def _wrong(found: dict[str, Any]) -> Row:
    """In bfloat16 the bar is what transformers' own bfloat16 misses of its float32 on the same texts."""
    own = [int(note.rpartition(" ")[2]) for note in found["notes"] if note.startswith("transformers in bfloat16")]
    return _at_most(
        f"tokens wrong of {found['tokens']}", found["wrong"] if found["checked"] else 1 << 30, own[0] if own else 0
    )


def _eplb(found: dict[str, Any]) -> list[Row]:
    return [
        _at_most("EPLB async / off: median step", found["on_p50"], 1.05),
        _at_most("EPLB async / off: p99 step", found["on_p99"], 1.5),
        Row("EPLB off: p99 / p50; second run / first", f"{found['off_p99']:.2f}; {found['off_again']:.2f}"),
        Row("layers moved, rebalances, in steps", f"{found['layers_moved']}, {found['rebalances']}, {found['steps']}"),
    ]


def _empty(found: dict[str, str]) -> list[Row]:
    return [Row(f"torch's grouped product, {case}", said) for case, said in found.items()]


def _shape(found: dict[str, Any]) -> list[Row]:
    """Two engines on one GPU take turns, so only whether it works and where time goes."""
    return [
        Row(f"Qwen3-30B-A3B's shape, {found['layers']} layers, 1 -> 2", found["grow_phase"]),
        Row("the same, 2 -> 1", found.get("shrink_phase", "not tried")),
        _at_most("requests lost", found["lost"], 0),
        Row("growing, s, and its phases", f"{found['grow_s']:.1f}: {shares(found['growth_phases'], found['grow_s'])}"),
        *_alone_and_beside(found),
        Row("step at 1 / at 2, ms", " / ".join(f"{found['step_ms'][name]:.2f}" for name in ("one", "two"))),
    ]


def _alone_and_beside(found: dict[str, Any]) -> list[Row]:
    return [
        Row(
            f"steps, {name}: p50, p99, longest, in median steps of the size",
            f"{each['p50']:.2f}, {each['p99']:.2f}, {each['max']:.2f} of {each['count']}",
        )
        for name, each in {**found["alone"], **found["beside"]}.items()
    ]


def _beside(found: dict[str, Any]) -> list[Row]:
    return [
        Row("rows by NCCL: layers, moved", f"{found['layers']}, {found['moved_bytes'] / 1e9:.1f} GB"),
        Row("spreading, s", f"{found['spread_s']:.1f}"),
        *_alone_and_beside(found),
        *[Row("said", text[:110]) for text in found["says"][:3]],
    ]


def _throughput(found: dict[str, Any]) -> list[Row]:
    total = found["grow_s"] + found["spread_s"]
    return [
        Row("layers, clients, moved", f"{found['layers']}, {found['clients']}, {found['moved_bytes'] / 1e9:.1f} GB"),
        Row(
            "tokens/s at 1, growing, spreading, 2, 1 again",
            " / ".join(f"{found[f'tokens_per_s_{name}']:.0f}" for name in ("one", "grow", "spread", "two", "back")),
        ),
        _at_least("parallel efficiency 1 -> 2", found["ratio"] / 2, 0.9),
        _at_most("longest step of the switch 1 -> 2, median steps", found["pause_steps"]["grow"], 2.0),
        _at_most("longest step of the switch 2 -> 1, median steps", found["pause_steps"]["shrink"], 2.0),
        Row("step at 1 / at 2, ms", " / ".join(f"{found['step_ms'][name]:.2f}" for name in ("one", "two"))),
        Row(
            "growing + spreading, s; the bytes by plain copy, s",
            f"{found['grow_s']:.1f} + {found['spread_s']:.1f}; {found['ideal_s']:.2f}",
        ),
        _at_most("growth time / (bytes / copy bandwidth)", total / max(found["ideal_s"], 1e-9), 1.5),
        Row("phases of growing", shares(found["growth_phases"], found["grow_s"])),
        Row("tokens/s while growing / before", f"{found['tokens_per_s_grow'] / found['tokens_per_s_one']:.2f}"),
        *_alone_and_beside(found),
        _at_most(f"requests lost of {found['sent']}", found["lost"], 0),
        Row("memory, MiB per GPU: at 1, at 2, at 1 again", str(found["memory_mib"])),
        *[Row("said", text[:110]) for text in found["says"][:3]],
    ]
