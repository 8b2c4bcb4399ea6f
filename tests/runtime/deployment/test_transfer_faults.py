"""Transfers are wounded in flight, over true asynchronous transports, while a deployment rebalances and is rescaled."""

import os
import signal
from pathlib import Path

import pytest
from deployed import BUSY

from elasticfsm.runtime.faults.zygote import Zygote

pytestmark = pytest.mark.slow

TLS = ["tcp", "posix,sysv,self,tcp"]  # both move bytes in the background, unlike the default between processes


@pytest.fixture(scope="module", params=TLS)
def slow_zygote(request):
    """Engines forked from it use a transport whose reads are really in flight."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UCX_TLS", request.param)
        made = Zygote()
    yield made
    made.close()


@pytest.fixture
def wounds(running, tmp_path, slow_zygote):
    """A deployment of two whose transfers can be wounded."""
    made = Wounds(running.fork_from(slow_zygote), tmp_path / "wounds")
    made.directory.mkdir()
    return made


class Wounds:
    def __init__(self, running, directory):
        self.running, self.directory = running, directory

    def start(self, **options):
        self.deployment = self.running.start(
            2, faults=(f"in-flight={self.directory}",), transfer="nixl", **BUSY | options
        )
        self.source = self.deployment.status().pids["e0"]
        return self.deployment

    def hold(self, when="in flight"):
        """Wait until a read of e1 from e0 is under way, or about to be; it is held there."""
        self.write("armed", when)
        self.running.serve_until((self.directory / "flying").exists)
        (self.directory / "flying").unlink()

    def scale(self, size, at):
        """Begin an operation that comes to a state while the read is in flight."""
        operation = self.deployment.scale(size)
        self.running.until(lambda: at in dict(operation.status().history))
        return operation

    def inflict(self, what):
        self.write("go", what)

    def write(self, name, text):
        (self.directory / "new").write_text(text)
        (self.directory / "new").rename(self.directory / name)

    def looked(self, what):
        self.running.until((self.directory / f"{what}-looked").exists)

    def audits(self, engine="e1"):
        """(why, wrong) of every look at the slots of an engine."""
        events = self.running.events(engine)
        return [(event["why"], event["wrong"]) for event in events if event["event"] == "experts.audit"]

    def right(self):
        """The source lives, every token and every slot is right, and a look was taken after every wound."""
        running = self.running
        assert self.deployment.status().pids["e0"] == self.source and Path(f"/proc/{self.source}").exists()
        running.right()
        looks = [wrong for why, wrong in self.audits() if why.startswith("wounded")]
        assert looks and not any(looks)


def stopped(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.mark.parametrize("slow_zygote", TLS[:1], indirect=True)
def test_a_read_that_is_let_go_of_and_a_source_that_stops_cost_no_byte_and_no_operation(wounds):
    deployment = wounds.start()
    wounds.hold()
    grown = wounds.scale(3, "building")
    wounds.inflict("release")
    assert grown.wait(60).phase == "completed"
    wounds.looked("release")
    assert deployment.counters["e1"]["rebalances_broken"] == deployment.counters["e0"]["rebalances_broken"] == 1
    wounds.hold()
    shrunk = wounds.scale(2, "building")
    wounds.inflict("stop")
    wounds.running.until(lambda: stopped(wounds.source))
    os.kill(wounds.source, signal.SIGCONT)
    assert shrunk.wait(60).phase == "completed"
    wounds.right()
    assert [len(looks) for looks in (wounds.audits("e0"), wounds.audits("e1"))] > [2, 2]


@pytest.mark.parametrize("slow_zygote", TLS[1:], indirect=True)
def test_a_source_that_frees_early_stays_alive_and_what_is_read_then_is_refused(wounds):
    wounds.start(eplb="sync")
    wounds.hold("before")
    operation = wounds.scale(3, "building")
    wounds.inflict("free")
    assert operation.wait(60).phase == "completed"
    wounds.looked("free")
    wounds.right()
    refused = [e for e in wounds.running.events("e1") if "arrived with checksum" in str(e.get("error"))]
    assert {event["machine"] for event in refused} == {"rebalance.worker"}


def test_the_death_of_a_source_in_flight_ends_the_operation_and_leaves_every_slot_of_the_reader_as_it_was(wounds):
    deployment = wounds.start()
    wounds.hold()
    operation = wounds.scale(3, "building")
    wounds.inflict("kill")
    record = operation.wait(30)
    assert record.phase == "failed" and record.error
    assert {stream.wait(10) for stream in wounds.running.streams} <= {"failed", "finished"}
    assert deployment.failed
    wounds.running.close()
    looks = [wrong for why, wrong in wounds.audits() if why.startswith("wounded")]
    assert looks and not any(looks)
