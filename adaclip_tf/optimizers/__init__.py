"""Keras optimizers whose every step is private.

May import `core`, `gradients`, `privacy`, `_internal`.
"""
