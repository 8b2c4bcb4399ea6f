"""What the core costs, measured; what the runtime costs is measured in `elasticfsm.runtime.bench`."""
