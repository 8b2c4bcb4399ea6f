"""A deployment: engines, their coordinator and the router, in the process that starts it."""

from ..options import Options, Status, default_slots
from .facade import Deployment

__all__ = ["Deployment", "Options", "Status", "default_slots"]
