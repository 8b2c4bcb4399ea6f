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

# The reference's two best logits closer than this: either token is right. On a GPU both sides compute in bfloat16,
# whose steps at the size of these logits (8 to 32) are 1/16 to 1/8.
TIES = {"cpu": 1e-4, "cuda": 0.25}
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
            errors = process.stderr.read() if process.stderr else ""
            process.wait(SECONDS)
        finally:
            process.kill()
    if process.returncode != 0:
        raise ElasticError(f"the token check ended with status {process.returncode}: {errors.strip()[-800:]}")
    return msgspec.json.decode(result.read_bytes(), type=list[Wrong])


def main(model: str, given: str, result: str, device: str) -> None:
    """The checking process."""
    import torch

    from ..engine.reference import check_tokens

    torch.set_num_threads(2)
    streams = msgspec.json.decode(Path(given).read_bytes(), type=list[Stream])
    found = check_tokens(
        model,
        streams,
        TIES[device],
        progress=lambda done, total: print(f"{done}/{total}", flush=True),
        device=device,
    )
    wrong = [Wrong(each.request, each.position, each.got, each.expected, each.gap) for each in found]
    Path(result).write_bytes(msgspec.json.encode(wrong))


if __name__ == "__main__":
    main(*sys.argv[1:])
