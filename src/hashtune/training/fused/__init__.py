"""Parts of the model whose backward is written by hand (kernels: fused).

The same formulas as the plain modules, in plain torch operations: fewer passes over memory, and
less is kept between forward and backward. attach.py puts them into a model, where a trial shows
that a module computes what they do; check.py compares loss and gradients with those of the plain
model before training.
"""
