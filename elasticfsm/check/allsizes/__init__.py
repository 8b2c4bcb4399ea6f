"""Proofs for every number of engines, by what two engines can be at once.

A *place* is all that matters of one engine: its local state, and the messages of peers that are in flight to it. A
*view* is the coordinator's state and the places of two engines that stand in them at the same time (the same place
twice: two engines stand there). Of a configuration with any number of engines its views are kept, and nothing else; how
many stand in a place is forgotten. (View abstraction: Abdulla, Haziza, Holik, VMCAI 2013. To keep whole sets of
occupied places, without counting, is finer and does not end: the step loop lets engines stand in every mixture.)

That loses nothing which a guard asks, because without faults a guard asks one of these: a fact, message or entry of
every engine of a role or group, or that some engine has one. What holds for all engines holds for both of a view; what
some engine has, a third one has whose views with both are known. So every step of a system of any size is one step of
each of its views, or leaves it as it is. Nothing is claimed about order or number of engines: ranks, who computes what
for all, a pairing of two engines.
"""
