"""The token check in a process of its own: `python -m elasticfsm.runtime.demo.tokens MODEL STREAMS RESULT NUMBERS`.

It imports transformers (seconds, and memory), which no serving process may do. Progress goes to stdout, a line a batch.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from elasticfsm.errors import ElasticError

# The reference's two best logits closer than this: either token is right. In float32 engine and reference differ by the
# order of sums only. In bfloat16 a router's near-tie may fall the other way, in the engine or in the reference, and
# other experts answer: there a token is wrong when neither transformers in bfloat16 nor in float32 would have said it,
# and it is printed how often transformers' own bfloat16 misses its float32 by as much.
RULES = {
    "cpu": (1e-4, ("float32",)),
    "cuda float32": (1e-2, ("float32",)),
    "cuda bfloat16": (0.5, ("float32", "bfloat16")),
}
SECONDS = 300.0
NOTES: list[str] = []  # what the last check on a GPU said of its references

Stream = tuple[tuple[int, ...], tuple[int, ...]]  # prompt, generated


class Wrong(msgspec.Struct, array_like=True, frozen=True):
    """Generated token `position` of stream `request` is `got`; the reference says `expected`, `gap` above in logits."""

    request: int
    position: int
    got: int
    expected: int
    gap: float


def check(
    model: Path,
    streams: Sequence[Stream],
    directory: Path,
    progress: Callable[[int, int], None],
    numbers: str = "cpu",
) -> list[Wrong]:
    """Compare all streams with transformers' own model; blocks. ElasticError when the checking process fails."""
    NOTES.clear()
    given, result = directory / "streams.json", directory / "wrong.json"
    given.write_bytes(msgspec.json.encode(streams))
    command = [sys.executable, "-m", __name__, str(model), str(given), str(result), numbers]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stdout or ():
                done, _, total = line.partition("/")
                if done.isdigit() and total.strip().isdigit():
                    progress(int(done), int(total))
                elif numbers != "cpu":
                    NOTES.append(line.rstrip())
            errors = process.stderr.read() if process.stderr else ""
            process.wait(SECONDS)
        finally:
            process.kill()
    if process.returncode != 0:
        raise ElasticError(f"the token check ended with status {process.returncode}: {errors.strip()[-800:]}")
    return msgspec.json.decode(result.read_bytes(), type=list[Wrong])


def main(model: str, given: str, result: str, numbers: str) -> None:
    """The checking process."""
    import torch

    from ..engine.reference import check_tokens, disagreement

    torch.set_num_threads(2)
    streams = msgspec.json.decode(Path(given).read_bytes(), type=list[Stream])
    tie, names = RULES[numbers]
    device = numbers.split(maxsplit=1)[0]
    found: dict[tuple[int, int], Wrong] = {}
    for number, name in enumerate(names):
        mismatches = check_tokens(
            model,
            streams,
            tie,
            batch_tokens=2048 if device == "cpu" else 32768,
            progress=lambda done, total: print(f"{done}/{total}", flush=True),
            device=device,
            dtype=getattr(torch, name),
        )
        gaps = sorted((round(each.gap, 2) for each in mismatches), reverse=True)[:12]
        print(f"{name}: {len(mismatches)} tokens are {tie} or more below its best: {gaps}", flush=True)
        these = {(each.request, each.position): Wrong(**vars(each)) for each in mismatches}
        found = {place: found[place] for place in these.keys() & found.keys()} if number else these
    if len(names) > 1:
        own = disagreement(model, streams, tie, device)
        print(f"transformers in bfloat16 against float32 on the same texts: {own}", flush=True)
    wrong = [found[place] for place in sorted(found)]
    Path(result).write_bytes(msgspec.json.encode(wrong))


if __name__ == "__main__":
    main(*sys.argv[1:])
