"""The same exploration over whole levels at a time, with numpy.

The semantics stay those of `successors`: a function of a state is run once by the plain code on a state of which every
look is noted (`views`), and what it said holds for all states that look alike there (`memo`). All else is arithmetic on
columns of numbers: one for the coordinator, one for each engine, one for the messages between them.
"""
