"""Model directories: every layout that transformers writes is read, every bad one is refused with a useful text."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from elasticfsm.errors import ModelError
from elasticfsm.runtime.engine import Checkpoint, Model, ModelConfig, check_tokens, write_random_model
from elasticfsm.runtime.engine.tokenizer import decode, encode
from elasticfsm.runtime.models import PSALTER

from .simulation import Engine, request

SMALL: dict[str, Any] = {"layers": 2, "hidden": 32, "head_dim": 8, "experts": 4, "expert_width": 16}


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    write_random_model(tmp_path / "model", **SMALL)
    return tmp_path / "model"


def edit_config(directory: Path, **changes: Any) -> None:
    path = directory / "config.json"
    fields = json.loads(path.read_bytes()) | changes
    path.write_text(json.dumps({name: value for name, value in fields.items() if value != "removed"}))


def shard(directory: Path) -> Path:
    return sorted(directory.glob("*.safetensors"))[0]


def drop_tensor(directory: Path) -> None:
    index = directory / "model.safetensors.index.json"
    fields = json.loads(index.read_bytes())
    del fields["weight_map"]["model.layers.1.mlp.experts.3.up_proj.weight"]
    index.write_text(json.dumps(fields))


def drop_weights(directory: Path) -> None:
    for path in directory.glob("model*"):
        path.unlink()


def rewrite(path: Path, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    save_file({name: change(tensor).contiguous() for name, tensor in load_file(path).items()}, path)


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "no directory": (shutil.rmtree, "does not exist"),
    "no config": (lambda d: (d / "config.json").unlink(), "config.json does not exist"),
    "config is no JSON": (lambda d: (d / "config.json").write_text("{"), "not valid JSON"),
    "config is a list": (lambda d: (d / "config.json").write_text("[]"), "JSON list, expected an object"),
    "other architecture": (lambda d: edit_config(d, architectures=["LlamaForCausalLM"]), "LlamaForCausalLM.*expected"),
    "no architecture": (lambda d: edit_config(d, architectures="removed"), "architectures is None"),
    "missing field": (lambda d: edit_config(d, hidden_size="removed"), "hidden_size"),
    "missing experts": (lambda d: edit_config(d, num_experts="removed"), "num_experts"),
    "wrong type": (lambda d: edit_config(d, num_hidden_layers="two"), r"int.*num_hidden_layers"),
    "zero": (lambda d: edit_config(d, vocab_size=0), r">= 1.*vocab_size"),
    "heads": (lambda d: edit_config(d, num_key_value_heads=3), "expected a multiple"),
    "too many chosen": (lambda d: edit_config(d, num_experts_per_tok=5), "exceeds num_experts=4"),
    "yarn": (lambda d: edit_config(d, rope_scaling={"type": "yarn"}), "rope_parameters"),
    "quantised": (lambda d: edit_config(d, quantization_config={"bits": 4}), "quantization_config.*not supported"),
    "dense layers": (lambda d: edit_config(d, mlp_only_layers=[0]), "mlp_only_layers"),
    "other shape": (lambda d: edit_config(d, hidden_size=64), r"shape \[256, 32\], expected \[256, 64\]"),
    "no weights": (drop_weights, "neither model.safetensors nor"),
    "missing shard": (lambda d: shard(d).unlink(), "model-00001-of-00003.safetensors does not exist"),
    "missing tensor": (drop_tensor, "no tensor model.layers.1.mlp.experts.3.up_proj.weight"),
    "truncated": (
        lambda d: shard(d).write_bytes(shard(d).read_bytes()[:-100]),
        "model-00001-of-00003.safetensors is truncated or corrupt",
    ),
    "header only": (lambda d: shard(d).write_bytes(shard(d).read_bytes()[:20]), "00001.*truncated or corrupt"),
    "empty file": (lambda d: shard(d).write_bytes(b""), "00001.*truncated or corrupt"),
    "garbage": (lambda d: shard(d).write_bytes(b"\xff" * 4096), "00001.*truncated or corrupt"),
    "wrong shard": (lambda d: shutil.copy(sorted(d.glob("*.safetensors"))[1], shard(d)), "00001.*does not hold"),
    "index": (lambda d: (d / "model.safetensors.index.json").write_text("{}"), "no safetensors index"),
    "integers": (lambda d: rewrite(shard(d), lambda t: t.to(torch.int8)), "is I8, expected one of BF16, F16, F32"),
}


@pytest.mark.parametrize("case", BAD, ids=[name.replace(" ", "-") for name in BAD])
def test_a_bad_model_directory_is_refused_with_a_useful_text(model_dir: Path, case: str) -> None:
    spoil, text = BAD[case]
    spoil(model_dir)
    with pytest.raises(ModelError, match=text) as caught:
        Checkpoint(model_dir)
    assert str(model_dir) in str(caught.value)


def test_psalter_is_read() -> None:
    config = ModelConfig.read(PSALTER)
    assert (config.num_experts, config.num_experts_per_tok, config.head_dim) == (16, 2, 32)
    assert (config.eos_token_ids, config.tie_word_embeddings, config.rope_theta) == ((0,), True, 10000.0)


def test_end_tokens_of_the_generation_config_win(model_dir: Path) -> None:
    (model_dir / "generation_config.json").write_text('{"eos_token_id": [7, 0]}')
    assert ModelConfig.read(model_dir).eos_token_ids == (7, 0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_tokens_of_a_random_model_equal_the_reference(tmp_path: Path, dtype: torch.dtype, tied: bool) -> None:
    write_random_model(tmp_path, **SMALL, tied=tied, dtype=dtype, seed=3)
    assert check_tokens(tmp_path, [generate(tmp_path)]) == []


def test_stacked_experts_are_read_like_single_ones(model_dir: Path) -> None:
    before = generate(model_dir)
    for number, path in enumerate(sorted(model_dir.glob("*.safetensors"))[:2]):
        save_file(stack_experts(load_file(path), f"model.layers.{number}.mlp.experts."), path)
    index_again(model_dir)
    assert generate(model_dir) == before
    assert check_tokens(model_dir, [before]) == []


def stack_experts(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    parts = {
        part: torch.stack([tensors.pop(f"{prefix}{expert}.{part}_proj.weight") for expert in range(4)])
        for part in ("gate", "up", "down")
    }
    return tensors | {
        prefix + "gate_up_proj": torch.cat((parts["gate"], parts["up"]), dim=1),
        prefix + "down_proj": parts["down"],
    }


def index_again(directory: Path) -> None:
    files = {name: path.name for path in directory.glob("*.safetensors") for name in load_file(path)}
    (directory / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))


def generate(directory: Path) -> tuple[list[int], list[int]]:
    engine = Engine(directory=directory)
    engine.model = Model.load(directory)
    one = request(2, 30)
    engine.scheduler.add(one)
    engine.drain()
    return one.prompt, one.generated


def test_writing_a_random_model_is_deterministic_and_never_overwrites(model_dir: Path, tmp_path: Path) -> None:
    write_random_model(tmp_path / "again", **SMALL)
    for path in model_dir.iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()
    with pytest.raises(ModelError, match="already holds something"):
        write_random_model(model_dir, **SMALL)


def test_an_impossible_shape_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="num_experts_per_tok=2 exceeds num_experts=1"):
        write_random_model(tmp_path / "model", **SMALL | {"experts": 1})
    assert not (tmp_path / "model").exists()


def test_the_engine_never_imports_transformers() -> None:
    script = (
        "import sys; from elasticfsm.runtime.engine import Model; from elasticfsm.runtime.models import PSALTER;"
        "Model.load(PSALTER); sys.exit('transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 0


def test_text_becomes_bytes_and_comes_back() -> None:
    assert encode("Amen\0.") == [65, 109, 101, 110, 46]
    assert decode([65, 109, 101, 110, 0, 46]) == "Amen"
    assert decode([200]) == "\ufffd"
