"""KB34: the new size gives fewer slots than there are experts, and that is found out half-way."""

import pytest

from elasticfsm.errors import RequestRefused

pytestmark = pytest.mark.slow


def test_a_size_whose_slots_cannot_hold_the_experts_is_refused_at_once_and_nothing_begins(shared):
    deployment = shared.at(2)
    slots, current = deployment.options.slots, deployment.operations.current
    assert slots < 16
    with pytest.raises(
        RequestRefused, match=f"1 x {slots} slots = {slots} for 16 experts; the smallest valid size is 2"
    ):
        deployment.scale(1)
    with pytest.raises(RequestRefused, match="the smallest valid size is 2"):
        deployment.scale(1, remove=["e0"])
    assert deployment.operations.current is current and len(deployment.members) == 2
    shared.rescale(3)
