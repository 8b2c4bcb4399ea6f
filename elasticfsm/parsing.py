"""Decodes a protocol file into the structs of `language`, key by key, so that an error names its place."""

from __future__ import annotations

from elasticfsm import language
from elasticfsm.reading import Document, Place


def parse(document: Document) -> language.File:
    """Decodes a document key by key, so that an error can name the state in which it stands."""
    data = dict(document.data)
    machines: dict[str, language.Machine] = {}
    for role, body in _mapping(document, data.get("machines"), ("machines",)).items():
        place: Place = ("machines", role)
        raw = dict(_mapping(document, body, place))
        phases = _mapping(document, raw.pop("phases", None), (*place, "phases"))
        ends = _mapping(document, raw.pop("ends", {}), (*place, "ends"))
        machine = document.convert({**raw, "phases": {}}, language.Machine, place)
        machine.phases = {name: _phase(document, phase, (*place, "phases", name)) for name, phase in phases.items()}
        machine.ends = {
            name: document.convert(state or {}, language.State, (*place, "ends", name)) for name, state in ends.items()
        }
        machines[role] = machine
    file: language.File = document.convert({**data, "machines": {}}, language.File, ())
    file.machines = machines
    return file


def _phase(document: Document, data: object, place: Place) -> language.Phase:
    raw = dict(_mapping(document, data, place))
    states = _mapping(document, raw.pop("states", None), (*place, "states"))
    phase: language.Phase = document.convert({**raw, "states": {}}, language.Phase, place)
    phase.states = {
        name: document.convert(state, language.State, (*place, "states", name)) for name, state in states.items()
    }
    return phase


def _mapping(document: Document, data: object, place: Place) -> dict[str, object]:
    if not isinstance(data, dict):
        raise document.wrong(place, f"expected a mapping, found {'nothing' if data is None else type(data).__name__}")
    return data
