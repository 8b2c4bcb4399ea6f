"""The hands: groups, weights, experts, coordinator and a reference engine. Import it as `elasticfsm.runtime`."""

if __name__ != "elasticfsm.runtime":
    # With the repository's root on sys.path, `runtime` and `elasticfsm.runtime` would be two modules with two states.
    raise ImportError("import this package as elasticfsm.runtime, not as " + __name__)
