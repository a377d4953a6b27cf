"""Models for tests that need new ones by the dozen: tracing a step takes a second, taking it back does not."""

from adaclip_tf.privacy import past_steps
from tests import models


class Pool:
    """Models that have taken no step, each a phase of its own. Call `begin` before each test."""

    def __init__(self, make):
        self._make, self._models, self._taken = make, [], 0

    def begin(self):
        """All may be taken again."""
        self._taken = 0

    def take(self):
        """One that this test does not have yet."""
        if self._taken == len(self._models):
            self._models.append(self._make())
        model = models.forget_steps(self._models[self._taken])
        self._taken += 1
        model.optimizer.start_phase(past_steps.new_phase())
        return model
