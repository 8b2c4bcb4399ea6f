"""The committed JSON Schema is that of the language, and accepts what is shipped."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from elasticfsm import schema
from elasticfsm.reading import read
from elasticfsm.steps import SPEC

FILES = sorted(SPEC.glob("**/*.yaml"))


def test_the_committed_schema_is_fresh() -> None:
    assert schema.is_fresh(), "run `elasticfsm schema` and commit spec/schema.json"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(SPEC).as_posix())
def test_a_shipped_file_is_valid(path: Path) -> None:
    jsonschema.validate(read(path).data, json.loads(schema.text()))


def test_a_misspelled_key_is_not_valid() -> None:
    data = read(SPEC / "serving.yaml").data
    data["machines"]["engine"]["phase"] = data["machines"]["engine"].pop("phases")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, json.loads(schema.text()))


def test_a_stale_schema_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    assert not schema.is_fresh(path)
    schema.write(path)
    assert schema.is_fresh(path)
    path.write_text(path.read_text().replace("within", "inside"))
    assert not schema.is_fresh(path)
