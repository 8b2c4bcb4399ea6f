"""The fault suite: faults really injected into a running deployment, for each role in each state of each protocol.

Read it in this order: `fault` (what is injected, and where), `trigger` (the hook in engine and coordinator), `cells`
(every cell of the table, from the compiled spec), `rules` (which outcomes the protocol allows), `zygote` (engines that
start in a fraction of a second), `rig` (one deployment and what must hold after a cell), `suite`, `table`.
"""
