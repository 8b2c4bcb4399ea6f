"""A deployment that is served; every engine is gone after the tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from served import Served

from elasticfsm.runtime.deployment import Deployment, Options
from elasticfsm.runtime.models import PSALTER


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    journal = tmp_path_factory.mktemp("journal")
    with Deployment.start(PSALTER, 1, Options(slots=16, largest=4, journal=str(journal))) as deployment:
        made = Served(deployment)
        try:
            yield made
        finally:
            made.server.close()
