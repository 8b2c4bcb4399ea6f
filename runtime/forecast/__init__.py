"""What a change of size will do, computed before it: steps, bytes, pause, duration, placement. Starts nothing."""

from .predict import Assumptions, Prediction, predict

__all__ = ["Assumptions", "Prediction", "predict"]
