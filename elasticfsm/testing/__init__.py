"""For tests of protocols and engines: an in-memory world for the real machines, and hands that touch nothing real."""

from elasticfsm.testing.ground import Ground, Meeting, Violated
from elasticfsm.testing.hands import Hands, hands
from elasticfsm.testing.world import World

__all__ = ["Ground", "Hands", "Meeting", "Violated", "World", "hands"]
