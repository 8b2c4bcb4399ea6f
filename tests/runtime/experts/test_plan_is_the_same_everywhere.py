"""The corpus of plans has one hash, whatever instructions numpy and BLAS may use."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

CORPUS = Path(__file__).with_name("corpus.py")
PRESENT = [name for name in __cpu_dispatch__ if __cpu_features__.get(name)]


def start(**environment):
    return subprocess.Popen(
        [sys.executable, str(CORPUS)], env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_plans_do_not_depend_on_the_instructions_that_numpy_and_blas_use():
    widest = [name for name in PRESENT if "512" in name or "V4" in name]
    settings = [
        {},
        {"NPY_DISABLE_CPU_FEATURES": " ".join(PRESENT), "OPENBLAS_NUM_THREADS": "1"},
        {"NPY_DISABLE_CPU_FEATURES": " ".join(widest), "OPENBLAS_CORETYPE": "Prescott"},
    ]
    if not PRESENT:
        pytest.skip("numpy on this machine dispatches to no optional CPU features: nothing could differ")
    children = [start(**each) for each in settings]
    try:
        results = [(*child.communicate(timeout=120), child.returncode) for child in children]
    finally:
        for child in children:
            child.kill()
            child.wait()
    assert [code for _, _, code in results] == [0, 0, 0], [error.decode() for _, error, _ in results]
    hashes = {output for output, _, _ in results}
    assert len(hashes) == 1 and hashes != {b""}, hashes
