"""What server and clients agree on."""

from adaclip_tf import core

RULE = core.AdaClip(core.MomentEstimator(h1=1e-4 / 30, h2=1e-4, initial_std=5e-3))
