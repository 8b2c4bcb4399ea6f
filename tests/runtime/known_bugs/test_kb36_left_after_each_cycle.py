"""KB36: communicators, registrations, threads and sockets are left after each cycle (`bench soak` runs 200)."""

import pytest

from elasticfsm.runtime.faults import holdings

pytestmark = pytest.mark.slow


def test_three_cycles_leave_no_more_descriptors_and_threads_than_one(shared):
    shared.rescale(3)
    shared.rescale(2)
    deployment = shared.rig.deployment
    pids = [0, deployment.status().pids[deployment.members[0]]]
    first = [holdings.of_process(pid) for pid in pids]
    for _ in range(2):
        shared.rescale(3)
        shared.rescale(2)

    def more():
        now = [holdings.of_process(pid) for pid in pids]
        pairs = list(zip(now, first, strict=True))
        return [f"{a} after {b}" for a, b in pairs if a.descriptors > b.descriptors or a.threads > b.threads]

    assert shared.rig.until_clean(more, 5) == []
