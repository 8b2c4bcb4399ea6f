"""The token check in a process of its own: `python -m elasticfsm.runtime.demo.tokens MODEL STREAMS RESULT DEVICE`.

It imports transformers (seconds, and memory), which no serving process may do. Progress goes to stdout, a line a batch.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from elasticfsm.errors import ElasticError

# The reference's two best logits closer than this: either token is right. Engines on a GPU compute in bfloat16, whose
# steps at the size of these logits (8 to 32) are 1/16 to 1/8, layer by layer. There a router's near-tie may also
# fall the other way, in the engine or in the reference, and then other experts answer: a token counts as wrong when
# neither transformers in bfloat16 nor transformers in float32 would have said it.
TIES = {"cpu": 1e-4, "cuda": 0.5}
REFERENCES = {"cpu": ("float32",), "cuda": ("float32", "bfloat16")}
SECONDS = 300.0

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
    device: str = "cpu",
) -> list[Wrong]:
    """Compare all streams with transformers' own model; blocks. ElasticError when the checking process fails."""
    given, result = directory / "streams.json", directory / "wrong.json"
    given.write_bytes(msgspec.json.encode(streams))
    command = [sys.executable, "-m", __name__, str(model), str(given), str(result), device]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stdout or ():
                done, _, total = line.partition("/")
                if done.isdigit() and total.strip().isdigit():
                    progress(int(done), int(total))
                elif device != "cpu":
                    print(line.rstrip(), file=sys.stderr, flush=True)  # how far each reference is away
            errors = process.stderr.read() if process.stderr else ""
            process.wait(SECONDS)
        finally:
            process.kill()
    if process.returncode != 0:
        raise ElasticError(f"the token check ended with status {process.returncode}: {errors.strip()[-800:]}")
    return msgspec.json.decode(result.read_bytes(), type=list[Wrong])


def main(model: str, given: str, result: str, device: str) -> None:
    """The checking process."""
    import os

    import torch

    from ..launch import die_with_parent

    die_with_parent(os.getppid())
    from ..engine.reference import check_tokens

    torch.set_num_threads(2)
    streams = msgspec.json.decode(Path(given).read_bytes(), type=list[Stream])
    found: dict[tuple[int, int], Wrong] = {}
    for number, name in enumerate(REFERENCES[device]):
        mismatches = check_tokens(
            model,
            streams,
            TIES[device],
            progress=lambda done, total: print(f"{done}/{total}", flush=True),
            device=device,
            dtype=getattr(torch, name),
        )
        print(f"{name}: {len(mismatches)} differ: {[round(each.gap, 2) for each in mismatches]}", flush=True)
        these = {(each.request, each.position): Wrong(**vars(each)) for each in mismatches}
        found = {place: found[place] for place in these.keys() & found.keys()} if number else these
    wrong = [found[place] for place in sorted(found)]
    Path(result).write_bytes(msgspec.json.encode(wrong))


if __name__ == "__main__":
    main(*sys.argv[1:])
