"""Calls `install(module)` of one of our modules right after one of vLLM's was imported, or now if it has been."""

from __future__ import annotations

import importlib
import logging
import sys
from types import ModuleType
from typing import Any

log = logging.getLogger("vllm.elasticfsm")


def after_import(theirs: str, ours: str) -> None:
    """Imports `ours` and calls its `install` as soon as `theirs` is there."""
    module = sys.modules.get(theirs)
    if module is not None:
        _install(module, ours)
        return
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    for finder in sys.meta_path:
        if isinstance(finder, _Finder):
            finder.wanted[theirs] = ours


def _install(module: ModuleType, ours: str) -> None:
    try:
        importlib.import_module(ours).install(module)
    except Exception:  # whatever is wrong with us, vLLM has to start
        log.exception("elasticfsm could not be installed in %s: the observer stays off", module.__name__)


class _Finder:
    """Finds nothing itself: asks the finders behind it and adds a call to what they found."""

    def __init__(self) -> None:
        self.wanted: dict[str, str] = {}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        ours = self.wanted.pop(name, None)
        if ours is None:
            return None
        for finder in sys.meta_path:
            if finder is not self:
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    if spec.loader is not None:
                        spec.loader = _Loader(spec.loader, ours)  # type: ignore[assignment]
                    return spec
        return None


class _Loader:
    """The loader that was found; after the module has run, it hands the module over."""

    def __init__(self, loader: Any, ours: str) -> None:
        self._loader = loader
        self._ours = ours

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        _install(module, self._ours)
