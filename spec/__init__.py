"""What each engine does and in which order: data, no code. Import it as `elasticfsm.spec`."""
