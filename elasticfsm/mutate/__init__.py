"""Mutation of protocols: every one-edit change of a spec is judged; each that nothing refutes has to be explained."""
