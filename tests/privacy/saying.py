"""A private optimizer that shares no code with the library's, and has no variables: its state is what a test says."""

from adaclip_tf.privacy.past_steps import PastSteps, phase_name


class Optimizer:
    """Says of itself what a test wants it to."""

    name, prior, seed = "optimizer", None, None

    def __init__(self, past=(), *, size=100, microbatches=None, parts=1, sensitivity=1.0, iterations=0):
        self.noise_multiplier, self.expected_batch_size = 2.0, size
        self.num_microbatches, self.accumulation_steps, self.microbatch_sensitivity = microbatches, parts, sensitivity
        self.iterations = iterations
        self.past, self.others, self.dropped = PastSteps(10, 2.0, 1.0, 100, "a")._replace(**dict(past)), [], 0

    @property
    def noised_steps(self):
        return self.past.steps

    def past_steps(self):
        return self.past

    def other_past_steps(self):
        return self.others

    def start_phase(self, phase):
        self.past = self.past._replace(phase=phase_name(phase))

    def drop_unfinished(self):
        self.dropped += 1

    def at(self, steps, phase="a"):
        """The same with another count, or another phase."""
        self.past = self.past._replace(steps=steps, phase=phase)
        return self
