"""The errors that a caller may catch: every one says what was found, what was expected and what to do."""

from __future__ import annotations


class ElasticError(Exception):
    """Root of all errors raised by elasticfsm; `exit_code` is what the command line returns for it."""

    exit_code = 2


class SpecError(ElasticError):
    """A spec file is wrong; the text names file, line, what was found and what was expected."""


class CheckerError(ElasticError):
    """Two parts of the checker that must agree do not; no verdict can be trusted."""


class ModelError(ElasticError):
    """A model directory cannot be served: config or weights are missing, truncated or of another architecture."""


class RequestRefused(ElasticError):
    """An operator's request is impossible or comes at the wrong time; nothing was changed."""


class OperationRunning(RequestRefused):
    """Another operation is running; the text carries its id."""


class Refused(ElasticError):
    """The monitor refused a collective that the spec does not allow next; it was not issued."""

    exit_code = 1


class GroupError(ElasticError):
    """A process group failed: a peer died, closed its side, or a deadline passed."""

    exit_code = 1


class GroupCut(GroupError):
    """This process cut the group itself, to free a thread that waited in it."""


class DeadlineExpired(GroupError):
    """A wait reached its deadline; the text names what was waited for and for how long."""


class TransferError(ElasticError):
    """Weights could not be moved: peer gone, wrong size, or checksum mismatch."""

    exit_code = 1


class PlacementError(ElasticError):
    """A placement is impossible or breaks an invariant (coverage, slots, duplicates)."""


class EngineDied(ElasticError):
    """An engine process ended or fell silent."""

    exit_code = 1
