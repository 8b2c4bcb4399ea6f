"""A stage for the real objects of the runtime: every micro-step is told, nothing happens by itself."""

from elasticfsm.testing.stage.act import Act, read
from elasticfsm.testing.stage.reproduce import NotReproduced, reproduce
from elasticfsm.testing.stage.stage import Impossible, Stage

__all__ = ["Act", "Impossible", "NotReproduced", "Stage", "read", "reproduce"]
