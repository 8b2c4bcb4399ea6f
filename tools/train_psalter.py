"""Train psalter, the small model of runtime/models: a byte-level Qwen3-MoE on scripture and on Python sources.

    python tools/train_psalter.py OUT_DIR --scripture FILE [--code FILE] [--steps N] [--device cuda|cpu] [--seconds S]

FILE for scripture is any plain ASCII text of the King James Bible (the shipped model used Debian's package bible-kjv).
Code defaults to the standard library of the Python that runs this. Needs torch and transformers. The shipped weights
took 7000 steps and 350 s on one H200; on the CPU a few hundred steps show that it learns.
"""

from __future__ import annotations

import argparse
import math
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

CONFIG = Qwen3MoeConfig(
    vocab_size=256,
    hidden_size=128,
    intermediate_size=256,
    moe_intermediate_size=144,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,
    num_experts=16,
    num_experts_per_tok=2,
    norm_topk_prob=True,
    max_position_embeddings=1024,
    tie_word_embeddings=True,
    # Small, so that routing stays skewed: a perfectly balanced model would give the balancer nothing to do.
    router_aux_loss_coef=0.0005,
    output_router_logits=True,
    bos_token_id=0,
    eos_token_id=0,
    pad_token_id=0,
)
PEAK_RATE = 4e-3
TRAINED_SHARE = 0.98
BATCH_AND_LENGTH = {"cuda": (192, 320), "cpu": (8, 128)}
PROMPTS = ("And the LORD said unto ", "In the beginning ", "def main(", "    for name in ")


def main() -> None:
    """Train, validate, show continuations, save in float16."""
    options = parse()
    torch.manual_seed(0)
    texts = {
        name: as_tokens(data, options.device)
        for name, data in (("scripture", options.scripture.read_bytes()), ("code", read_code(options.code)))
    }
    model = Qwen3MoeForCausalLM(CONFIG).to(options.device)
    train(model, list(texts.values()), options)
    model.eval()
    for name, text in texts.items():
        validate(model, name, text, options.device)
    show(model, options.device)
    model.config.output_router_logits = False
    model.half().save_pretrained(options.out, safe_serialization=True)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="directory to write the model to")
    parser.add_argument("--scripture", type=Path, required=True)
    parser.add_argument("--code", type=Path)
    parser.add_argument("--steps", type=int, default=7000)
    parser.add_argument("--device", choices=sorted(BATCH_AND_LENGTH), default="cuda")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after this time")
    return parser.parse_args()


def read_code(path: Path | None) -> bytes:
    """PATH, or all ASCII sources of the standard library, each ended by the byte 0."""
    if path is not None:
        return path.read_bytes()
    library = Path(sysconfig.get_path("stdlib"))
    files = sorted(file for file in library.rglob("*.py") if "site-packages" not in file.parts)
    sources = (file.read_bytes() for file in files)
    return b"".join(source + b"\0" for source in sources if source.isascii())


def as_tokens(data: bytes, device: str) -> Tensor:
    """One token a byte, uint8 [bytes]."""
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).to(device)


def sample(text: Tensor, start: int, end: int, rows: int, length: int) -> Tensor:
    """ROWS random pieces of TEXT[start:end], int64 [rows, length + 1]."""
    offsets = torch.randint(start, end - length - 1, (rows, 1), device=text.device)
    return text[offsets + torch.arange(length + 1, device=text.device)].long()


def batches(texts: list[Tensor], device: str) -> Iterator[Tensor]:
    """Endless training batches, in equal parts from all TEXTS."""
    rows, length = BATCH_AND_LENGTH[device]
    while True:
        parts = [sample(text, 0, int(len(text) * TRAINED_SHARE), rows // len(texts), length) for text in texts]
        yield torch.cat(parts)


def learning_rate(step: int, steps: int) -> float:
    """Linear warm-up over 200 steps, then a cosine down to a twentieth."""
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, step / steps)))
    return PEAK_RATE * min(1.0, step / 200) * (0.05 + 0.95 * cosine)


def train(model: Qwen3MoeForCausalLM, texts: list[Tensor], options: argparse.Namespace) -> None:
    """Next-byte cross-entropy plus a little of the router's balancing loss, AdamW."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE, betas=(0.9, 0.95), weight_decay=0.05)
    source, begun = batches(texts, options.device), time.monotonic()
    for step in range(options.steps):
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(step, options.steps)
        with torch.autocast(options.device, torch.bfloat16, enabled=options.device == "cuda"):
            loss, balance = losses(model, next(source))
        (loss + CONFIG.router_aux_loss_coef * balance).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        seconds = time.monotonic() - begun
        if step % 100 == 0:
            print(f"step {step}  loss {loss.item():.3f}  {seconds:.0f} s", flush=True)
        if seconds > options.seconds:
            return


def losses(model: Qwen3MoeForCausalLM, pieces: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy of the next byte, and the router's balancing loss."""
    output = model(input_ids=pieces[:, :-1], use_cache=False, output_router_logits=True)
    flat = output.logits.float().reshape(-1, CONFIG.vocab_size)
    return torch.nn.functional.cross_entropy(flat, pieces[:, 1:].reshape(-1)), output.aux_loss


@torch.no_grad()
def validate(model: Qwen3MoeForCausalLM, name: str, text: Tensor, device: str) -> None:
    """Print the loss on held-out text and each layer's expert load, in multiples of the mean."""
    pieces = sample(text, int(len(text) * TRAINED_SHARE), len(text), 64, BATCH_AND_LENGTH[device][1])
    print(f"{name}: validation loss {losses(model, pieces)[0].item():.3f}")
    output = model(input_ids=pieces[:, :-1], use_cache=False, output_router_logits=True)
    for layer, logits in enumerate(output.router_logits):
        chosen = logits.topk(CONFIG.num_experts_per_tok, dim=-1).indices.flatten()
        load = torch.bincount(chosen, minlength=CONFIG.num_experts).float()
        print(f"  layer {layer}: " + " ".join(f"{share:.2f}" for share in (load / load.mean()).tolist()))


@torch.no_grad()
def show(model: Qwen3MoeForCausalLM, device: str) -> None:
    """Print a greedy continuation of each prompt."""
    for prompt in PROMPTS:
        tokens = torch.tensor([list(prompt.encode())], device=device)
        text = model.generate(tokens, max_new_tokens=120, do_sample=False)[0].tolist()
        print(repr(bytes(text).decode("ascii", "replace")))


if __name__ == "__main__":
    main()
