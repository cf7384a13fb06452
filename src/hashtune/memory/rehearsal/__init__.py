"""The rehearsal: a real training step on fake tensors, every storage followed from birth to death.

events.py     what was born and died, in order         phases.py     names of the parts of a run
follow.py     the dispatch mode that writes it down    pretend.py    what fake tensors cannot say
allocator.py  reserved as against allocated bytes      table.py      peaks and what is alive there
build.py      the model from its config alone          live.py       steps by phase, fake or real
"""
