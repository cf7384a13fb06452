"""The rehearsal: a real training step on fake tensors, every storage followed from birth to death.

follow.py     the dispatch mode that writes down     events.py     what was born and died, in order
where.py      the line that made a tensor            pretend.py    what fake tensors cannot say
build.py      the model from its config alone        quantised.py  bitsandbytes' packed weights
assume.py     what CUDA's kernels do otherwise       live.py       steps by phase, fake or real
run.py        the rehearsal of a spec                report.py     its part of reports/plan.json
allocator.py  reserved as against allocated bytes    table.py      peaks and what is alive there
"""
