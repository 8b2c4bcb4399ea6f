"""The token check: what transformers' own model would have generated. The only module that imports transformers."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

Stream = tuple[Sequence[int], Sequence[int]]


@dataclass(frozen=True)
class Mismatch:
    """In stream REQUEST, generated token POSITION is GOT; the reference says EXPECTED, whose logit is GAP above."""

    request: int
    position: int
    got: int
    expected: int
    gap: float


def check_tokens(
    model_dir: Path | str,
    streams: Sequence[Stream],
    tie: float = 1e-4,
    batch_tokens: int = 2048,
    progress: Callable[[int, int], None] | None = None,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> list[Mismatch]:
    """Compare STREAMS, pairs of prompt ids and generated ids, with greedy decoding by transformers, in DTYPE on DEVICE.

    Teacher forcing: one forward over prompt and generated tokens tells the reference's choice at each position given
    the tokens before it, so that one wrong token does not make all later ones wrong. A token also counts as right when
    its logit is less than TIE below the best. PROGRESS is called with (streams done, streams). Imports transformers
    (seconds). Loads the whole model into this process; blocks.
    """
    model = load_reference(model_dir, device, dtype)
    found: list[Mismatch] = []
    done = 0
    for indices in _batches(streams, batch_tokens):
        found += _check_batch(model, streams, indices, tie)
        done += len(indices)
        if progress:
            progress(done, len(streams))
    return sorted(found, key=lambda mismatch: (mismatch.request, mismatch.position))


def load_reference(model_dir: Path | str, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Any:
    """transformers' Qwen3MoeForCausalLM of MODEL_DIR in DTYPE on DEVICE, without progress bars."""
    # By name: a type checker that follows the import would read all of transformers.
    transformers = importlib.import_module("transformers")
    transformers.utils.logging.disable_progress_bar()
    model = transformers.Qwen3MoeForCausalLM.from_pretrained(str(model_dir), dtype=dtype)
    return model.eval().to(device)


def _batches(streams: Sequence[Stream], batch_tokens: int) -> Iterator[list[int]]:
    """Streams of similar length together, so that little is padding."""
    lengths = [len(prompt) + len(generated) for prompt, generated in streams]
    batch: list[int] = []
    for index in sorted(range(len(streams)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[index] > batch_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


@torch.no_grad()
def _check_batch(model: Any, streams: Sequence[Stream], indices: list[int], tie: float) -> list[Mismatch]:
    # Padding stands on the right, where a causal model's earlier positions cannot see it: no mask is needed.
    texts = [torch.tensor([*streams[index][0], *streams[index][1]], dtype=torch.int64) for index in indices]
    padded = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True).to(model.device)
    hidden = model.model(input_ids=padded, use_cache=False)[0]
    found = []
    for row, index in enumerate(indices):
        prompt, generated = streams[index]
        first = len(prompt) - 1
        logits = model.lm_head(hidden[row, first : first + len(generated)]).float().cpu()
        found += _wrong(index, logits, torch.tensor(generated, dtype=torch.int64), tie)
    return found


def _wrong(request: int, logits: Tensor, generated: Tensor, tie: float) -> list[Mismatch]:
    best, expected = logits.max(dim=-1)
    gaps = best - logits.gather(1, generated[:, None])[:, 0]
    wrong = ((generated != expected) & (gaps >= tie)).nonzero().flatten().tolist()
    return [
        Mismatch(request, position, int(generated[position]), int(expected[position]), float(gaps[position]))
        for position in wrong
    ]


@torch.no_grad()
def disagreement(model_dir: Path | str, streams: Sequence[Stream], tie: float, device: str) -> int:
    """How many tokens transformers in bfloat16 would choose that its float32 puts TIE or more below its best.

    Over the same texts, token by token: what may be expected of any engine in bfloat16.
    """
    rough = load_reference(model_dir, device, torch.bfloat16)
    exact = load_reference(model_dir, device)
    count = 0
    for indices in _batches(streams, 16384):
        texts = [torch.tensor([*streams[index][0], *streams[index][1]], dtype=torch.int64) for index in indices]
        padded = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True).to(device)
        chosen = rough(input_ids=padded, use_cache=False).logits.argmax(dim=-1)
        logits = exact(input_ids=padded, use_cache=False).logits
        gaps = logits.max(dim=-1).values - logits.gather(2, chosen[:, :, None])[:, :, 0]
        for row, index in enumerate(indices):
            first, length = len(streams[index][0]) - 1, len(streams[index][1])
            count += int((gaps[row, first : first + length] >= tie).sum())
    return count
