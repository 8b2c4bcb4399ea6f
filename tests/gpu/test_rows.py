"""Rows over NCCL that break: serving goes on, and the group for rows is made anew."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.gpu


def test_a_group_for_rows_that_broke_blocks_no_step_and_is_made_anew():
    from elasticfsm.runtime.bench.gpu.children import measured, words

    def arguments(store, scratch):
        return [[str(rank), store, str(scratch / f"{rank}.json")] for rank in range(2)]

    results, logs, folder = measured("tests.gpu.rows_end", arguments, 60.0)
    with folder:
        assert len(results) == 2, words(logs)
        first, second = (json.loads(result.read_bytes()) for result in results)
    assert "nothing came within 1 s" in first["error"]
    for found in (first, second):
        assert found["before"] and found["stepped"] and found["closed"]
        assert found["stepped_after"], "the step waits behind rows that never come"
        assert found["after"], "no rows came over the new group"
