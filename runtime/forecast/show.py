"""A prediction as text."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from .predict import Prediction

LAYERS = 8  # so many lines of the placement are printed; the JSON has all


def show(prediction: Prediction, console: Console) -> None:
    """Print the dry run."""
    leaving = f", leaving: rank {', '.join(map(str, prediction.leaving))}" if prediction.leaving else ""
    console.print(
        f"[bold]{prediction.before} -> {prediction.after} engines[/] by {prediction.protocol}, "
        f"{prediction.slots} expert slots per engine{leaving}",
        highlight=False,
    )
    for role in prediction.roles:
        console.print(f"\n[bold]{role.role}[/] ({role.engines})", highlight=False)
        console.print(_course(prediction, role.role))
    console.print(_bytes(prediction))
    console.print(_summary(prediction))
    console.print(_placement(prediction))


def _course(prediction: Prediction, name: str) -> Table:
    table = _table("", "state", "runs", "does", "says", "until")
    role = next(each for each in prediction.roles if each.role == name)
    for station in role.stations:
        if not station.then:
            continue
        where = {"foreground": "between steps", "background": "beside steps"}.get(station.thread, "")
        table.add_row(station.state, where, ", ".join(station.steps), ", ".join(station.sends), station.then)
    return table


def _bytes(prediction: Prediction) -> Table:
    table = _table("bytes per rank (MB)", "rank", "role", "weights in", "weights out", "experts in", "experts out")
    for rank in prediction.ranks:
        moved = (rank.weights_received, rank.weights_sent, rank.experts_received, rank.experts_sent)
        table.add_row(str(rank.rank), rank.role, *(f"{count / 1e6:.2f}" if count else "-" for count in moved))
    return table


def _summary(prediction: Prediction) -> Table:
    rows, measured = prediction.rows, "measured by copying memory" if prediction.bandwidth_measured else "given"
    table = _table("predicted", "", "")
    lines = [
        ("moved", f"{prediction.bytes_moved / 1e6:.2f} MB; experts in {prediction.layers_moved} layers"),
        ("expert rows", f"{rows.moved}, at least {rows.moved_bound}: x{rows.of_moved:.2f}"),
        ("balance", f"{rows.balance:.3f}, at best {rows.balance_bound:.3f}: {rows.of_balance:.3f} of it"),
        ("pause", f"{prediction.pause_steps:.1f} steps, once, at the switch"),
        ("until the switch", f"{prediction.preparing_seconds:.2f} s"),
        ("experts", f"{prediction.experts_seconds:.3f} s at {prediction.bandwidth / 1e9:.1f} GB/s ({measured})"),
        ("KV cache", f"{prediction.kv_tokens_before} -> {prediction.kv_tokens_after} tokens"),
    ]
    for line in lines:
        table.add_row(*line)
    return table


def _placement(prediction: Prediction) -> Table:
    table = _table("experts by rank", "layers", "rank", "before", "after")
    for change in prediction.placement[:LAYERS]:
        span = str(change.first) if change.first == change.last else f"{change.first}-{change.last}"
        for rank, (before, after) in enumerate(zip(change.before, change.after, strict=True)):
            table.add_row(span if not rank else "", str(rank), before, after if after != before else "the same")
    if len(prediction.placement) > LAYERS:
        table.add_row("...", "", f"{len(prediction.placement) - LAYERS} more in the JSON", "")
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.show_header = any(columns)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
