"""Reads a YAML file into plain data, and remembers the line of every key so that an error can name it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import yaml

from elasticfsm.errors import SpecError

Place = tuple[str | int, ...]


class _Loader(yaml.SafeLoader):
    """YAML 1.2 scalars: `on`, `off`, `yes` and `no` are words, `1:30` is not 90, and two equal keys are an error."""


_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern) for tag, pattern in resolvers if tag not in ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:int")
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$"), list("tf"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?[0-9]+$"), list("-+0123456789"))


class Document:
    """The plain data of one file and the line on which each of its keys stands."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.lines: dict[Place, int] = {}
        try:
            node = yaml.compose(text, Loader=_Loader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            raise SpecError(f"{path}:{mark.line + 1 if mark else '?'}: not YAML: {error.problem}") from error
        if not isinstance(node, yaml.MappingNode):
            raise SpecError(f"{path}:1: expected a mapping with the key `protocol`, found {_kind(node)}")
        self._walk(node, ())
        self.data: dict[str, Any] = _Loader("").construct_document(node)

    def _walk(self, node: yaml.Node, place: Place) -> None:
        self.lines.setdefault(place, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                if key.value in seen:
                    raise SpecError(
                        f"{self.path}:{key.start_mark.line + 1}: the key `{key.value}` stands here twice; remove one"
                    )
                seen.add(key.value)
                self.lines[(*place, key.value)] = key.start_mark.line + 1
                self._walk(value, (*place, key.value))
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self._walk(item, (*place, index))

    def line(self, place: Place) -> int:
        """The line of a key, or of the nearest key above it that exists."""
        while place not in self.lines:
            place = place[:-1]
        return self.lines[place]

    def wrong(self, place: Place, text: str) -> SpecError:
        """An error that names file, line and place."""
        where = ".".join(str(part) for part in place)
        return SpecError(f"{self.path}:{self.line(place)}: at {where or 'the top'}: {text}")

    def convert(self, data: Any, kind: Any, place: Place) -> Any:
        """Decodes plain data into a typed struct; raises `SpecError` with the place of the first mismatch."""
        try:
            return msgspec.convert(data, kind)
        except msgspec.ValidationError as error:
            text, _, inner = str(error).partition(" - at `")
            deeper = tuple(
                int(p) if p.isdigit() else p for p in re.findall(r"[\w]+", inner.removeprefix("$").rstrip("`"))
            )
            unknown = re.search(r"unknown field `(.*)`", text)
            found = _existing(data, (*deeper, unknown.group(1)) if unknown else deeper)
            raise self.wrong(place + found, _in_words(text, kind, found)) from error


def read(path: Path | str) -> Document:
    """Reads one YAML file; raises `SpecError` when it is missing, not YAML or has a key twice."""
    path = Path(path)
    try:
        return Document(path, path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise SpecError(
            f"{path}: no such file; `elasticfsm check` without an argument checks the shipped protocols"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{path}: cannot be read: {error}") from error


def _in_words(text: str, kind: Any, found: Place) -> str:
    """What msgspec says about a mismatch, with what was expected where it does not say it."""
    if len(found) != 1:  # deeper than the fields of `kind` itself
        return text.replace("Object", "the mapping")
    if text.startswith("Object contains unknown field"):
        return f"unknown key `{found[0]}`, expected one of: {', '.join(get_type_hints(kind))}"
    hint = get_type_hints(kind).get(str(found[0]))
    choices = [str(word) for part in (hint, *get_args(hint)) for word in get_args(part) if isinstance(word, str | int)]
    if text.startswith("Invalid enum value") and choices:
        return f"found {text.removeprefix('Invalid enum value ')}, expected one of: {', '.join(dict.fromkeys(choices))}"
    return text.replace("Object", "the mapping")


def _existing(data: Any, place: Place) -> Place:
    """The part of a place that exists in the data: msgspec names no mapping keys, it prints `...` for them."""
    found: Place = ()
    for part in place:
        if isinstance(data, dict) and part in data:
            data = data[str(part)]
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            break
        found = (*found, part)
    return found


def _kind(node: yaml.Node | None) -> str:
    return {yaml.SequenceNode: "a list", yaml.ScalarNode: "a single value"}.get(type(node), "nothing")
