"""`PrivateScales`: how large gradients are, row by row, asked of the data once, before training, and paid for.

The warm-up of the method (`scales.method`, docs/no_tuning.md), at the model's initial weights:

    h = 1, C = 1
    search the median of |g_k / h| with c noised counts                      -> C
    R times: noised sums of the norms of rows of clipped gradients           -> h, C
    search the median of |g_k / h| with c noised counts                      -> C

Formal guarantee. The data is looked at through 2 c counts and R vectors of sums (`scales.queries`), each of which gets
Gaussian noise before anything is computed from it, and nothing else of it is used: C, the span of the search and h are
functions of noised answers. A count moves by at most 1/2 and has noise sigma_c: one Gaussian mechanism of noise
multiplier 2 sigma_c. A vector of sums moves by at most 1 in L2 norm and has noise z_w in every entry: one of z_w. Each
query may depend on earlier answers, which composition allows. So one `fit` is

    R x Gaussian(z_w)  and  2 c x Gaussian(2 sigma_c)

of the whole data set, without sampling: `event`. The number of examples n is public, as everywhere in the library.
"""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

import numpy as np
from absl import logging

from adaclip_tf import core, gradients
from adaclip_tf._internal import files, keras, validate
from adaclip_tf.core import noise
from adaclip_tf.data.fits import Counted
from adaclip_tf.privacy import events
from adaclip_tf.privacy.epsilon import epsilon_of
from adaclip_tf.privacy.mechanism import Mechanism
from adaclip_tf.scales import estimate, method, queries

SLICE = 1000  # examples that are looked at together, by default


class PrivateScales:
    """Scales of a model's gradients, learnt by a private query before training.

    Example:
      >>> scales = PrivateScales.for_run(noise_multiplier=1.5, num_examples=60000, batch_size=600, epochs=5)
      >>> scales.fit(model, None, (x, y))                                               # doctest: +SKIP
      >>> optimizer = DPAdaClipSGD(10.0, scales=scales, precondition=True, ...)         # doctest: +SKIP
      >>> budget = PrivacyBudget.of(batches, delta=1e-5, other_event=scales.event)      # doctest: +SKIP

    `make_private` does all of that. Everything that it holds after `fit` is private, and may be published.

    Args:
      noise_multiplier: z_w, of the sums of row norms.
      count_noise: sigma_c, the standard deviation of the noise on the counts, whose sensitivity is 1/2. 0, of either,
        is not private.
      classes: K, where the loss is a categorical cross entropy; 2 for all others.
      settings: the constants of the method.
      seed: None, the right value: noise from the operating system's entropy. An integer makes it reproducible, for
        tests only: NOT private.

    Attributes:
      clip_: C.
      shapes_: h, an array for each trainable variable, with 1 along the axis that a row runs over.
      names_: the variables' names.
      unseen_: names of the variables whose gradients were hidden by noise while others were not.
      name: distinguishes this object, and what is loaded from its file, from all others: a ledger knows it by that.
        Another one from the second fit on, and at the first one of a copy (`data.fits`).
      notes: a dict of plain numbers and words, saved with it; nothing here reads them.
    """

    notes: dict[str, Any]

    def __init__(
        self,
        *,
        noise_multiplier: float,
        count_noise: float,
        classes: int = 2,
        settings: method.Method = method.DEFAULT,
        seed: int | None = None,
    ):
        self._noise_multiplier = validate.noise_multiplier("noise_multiplier", noise_multiplier)
        self._count_noise = validate.noise_multiplier("count_noise", count_noise)
        self.classes = validate.positive_integer("classes", classes)
        if not isinstance(settings, method.Method):
            raise ValueError(f"`settings` must be a `Method`; got {settings!r}.")
        self._settings = settings
        self._noise = noise.NoiseSource(validate.seed("seed", seed))
        if seed is not None:
            logging.warning("seed=%d makes the noise of PrivateScales predictable: for tests only, NOT private.", seed)
        self._fits, self.notes = Counted("scales"), {}
        self.clip_: float | None = None
        self.shapes_: list[np.ndarray] = []
        self.names_: list[str] = []
        self.unseen_: list[str] = []
        self._coordinates = 0

    @classmethod
    def for_run(
        cls,
        *,
        noise_multiplier: float,
        num_examples: int,
        batch_size: int,
        epochs: float | None = None,
        steps: int | None = None,
        classes: int = 2,
        settings: method.Method = method.DEFAULT,
        seed: int | None = None,
    ) -> PrivateScales:
        """Noise that takes the method's share (3 %) of the budget of a run with these arguments of `noise_multiplier`.

        Args:
          noise_multiplier: z0, what the run would need without the scales. The others: as for `epsilon`, and as above.
        """
        run = Mechanism(validate.positive("noise_multiplier", noise_multiplier), num_examples, batch_size)
        steps = run.count(epochs=epochs, steps=steps)
        asked = settings.noise(run.noise_multiplier, run.batch_size / run.num_examples, steps)
        return cls(noise_multiplier=asked.rows, count_noise=asked.counts, classes=classes, settings=settings, seed=seed)

    @property
    def noise_multiplier(self) -> float:
        """z_w. It can't be changed: what was asked had it."""
        return self._noise_multiplier

    @property
    def name(self) -> str:
        """See above."""
        return self._fits.name

    @property
    def settings(self) -> method.Method:
        """The method's constants, likewise."""
        return self._settings

    @property
    def count_noise(self) -> float:
        """sigma_c, likewise."""
        return self._count_noise

    @property
    def event(self) -> events.NamedEvent:
        """The `dp_accounting` event of all that was fitted so far; before the first `fit`, of one."""
        asked = self.settings.event(
            method.QueryNoise(self.noise_multiplier, self.count_noise), max(1, self._fits.count)
        )
        return events.named(asked, self.name)

    def statement(self, *, delta: float) -> str:
        """What was asked of the data and what it cost, in words."""
        fits, settings = max(1, self._fits.count), self.settings
        cost = epsilon_of(self.event, delta=delta)
        return (
            f"Scales of the gradients, learnt {'once' if fits == 1 else f'{fits} times'} before training: each time "
            f"{settings.rounds} vectors of sums of row norms (sensitivity 1, noise {self.noise_multiplier:.4g}) and "
            f"{2 * settings.counts} counts (sensitivity 1/2, noise {self.count_noise:.4g}) over the whole data. By "
            f"themselves they cost epsilon = {cost:.4g} at delta = {delta:g} (RDP); together with training less than "
            "the sum."
        )

    def fit(
        self,
        model: Any,
        loss: Any,
        data: Any,
        *,
        num_examples: int | None = None,
        slice_size: int = SLICE,
        gradient_path: str = "auto",
    ) -> PrivateScales:
        """Learns C and h from the gradients of all examples at the model's present weights. Every call costs privacy.

        The model's weights are not changed. Those of examples do here what they do in training: give them as there.

        Args:
          model: a Keras model with Keras's own `train_step`.
          loss: a `tf.keras.losses.Loss`, or None for the loss that the model was compiled with.
          data: `(x, y)` or `(x, y, sample_weight)`: as for `poisson_batches`. Every example once.
          num_examples: n, where `data` is a function of row numbers.
          slice_size: examples that are looked at together; memory is in proportion to it, the result is the same.
          gradient_path: as for `DPAdaClipSGD`.
        """
        validate.positive_integer("slice_size", slice_size)
        validate.one_of("gradient_path", gradient_path, gradients.PATHS)
        asked = queries.Queries(model, loss, data, num_examples, slice_size, gradient_path)
        before = self._fits.begin()  # from here on the data is looked at
        events.follow(before, self.event)
        try:
            self._learn(asked)
        finally:
            model.reset_metrics()  # Keras keeps the un-noised loss of what it was shown
        self.names_ = [keras.path_of(variable) for variable in model.trainable_variables]
        self._coordinates = sum(int(np.prod(variable.shape)) for variable in model.trainable_variables)
        self.unseen_ = [self.names_[index] for index in self._unseen]
        if self.unseen_:
            logging.warning(
                "PrivateScales saw no gradients of %s above the noise, though others are clear: they get the others' "
                "typical scale. A layer below an output that starts at zero has no gradient at first; start the "
                "output at small random weights instead.",
                ", ".join(self.unseen_),
            )
        return self

    def _learn(self, asked: queries.Queries) -> None:
        settings = self.settings
        shapes = [np.ones(shape) for shape in asked.row_shapes]
        clip = self._median(asked, shapes, 1.0, settings.first_span)
        self._unseen: tuple[int, ...] = ()
        for _ in range(settings.rounds):
            noised = self._noised_rows(asked, clip, shapes)
            shaped = estimate.next_shapes(clip, shapes, noised, asked.widths, self.noise_multiplier, settings.power)
            clip, shapes, self._unseen = shaped.clip, shaped.shapes, shaped.unseen
        self.clip_ = self._median(asked, shapes, clip, settings.last_span)
        self.shapes_ = [shape.astype(np.float32) for shape in shapes]

    def _median(self, asked: queries.Queries, shapes: list[np.ndarray], clip: float, span: float) -> float:
        """C after a search; all that it sees of the data are noised counts."""
        asked.look_at_norms(shapes)
        search = estimate.MedianSearch(clip, span, self.settings.least_span)
        for _ in range(self.settings.counts):
            noised = asked.count(search.clip) + self.count_noise * self._normals([[]])[0]
            search.move(float(noised) / asked.num_examples + 0.5)
        return search.clip

    def _noised_rows(self, asked: queries.Queries, clip: float, shapes: list[np.ndarray]) -> list[np.ndarray]:
        """M with noise."""
        sums = asked.rows(clip, shapes)
        normals = self._normals([part.shape for part in sums])
        return [part + self.noise_multiplier * normal for part, normal in zip(sums, normals)]

    def _normals(self, shapes: list[Any]) -> list[np.ndarray]:
        return [normal.numpy().astype(np.float64) for normal in self._noise.fresh_normals(shapes)]

    def for_training(self, noise_multiplier: float, expected_batch_size: float | None) -> core.Scales:
        """The scales as an optimizer takes them, with the multiplier mu for its z and B; 1 where B is not known."""
        self._check_fitted()
        multiplier = 1.0
        if expected_batch_size is not None:
            multiplier = self.settings.multiplier_for(
                noise_multiplier, self._coordinates, expected_batch_size, self.classes
            )
        damping, decay = self.settings.damping, self.settings.damping_decay
        noise = events.noise_of_gaussians(self.event)
        return core.Scales(self.clip_ or 0.0, self.shapes_, multiplier, damping, decay, noise, self.name)

    def _check_fitted(self) -> None:
        if self.clip_ is None:
            raise ValueError("PrivateScales has no scales yet; call `fit` first.")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the scales, and what they cost, to an `.npz` file. Safe to publish; no pickle."""
        self._check_fitted()
        arrays = {f"shape_{index}": shape for index, shape in enumerate(self.shapes_)}
        about = {
            "clip": self.clip_,
            "noise_multiplier": self.noise_multiplier,
            "count_noise": self.count_noise,
            "classes": self.classes,
            "settings": dataclasses.asdict(self.settings),
            "fits": self._fits.count,
            "names": self.names_,
            "unseen": self.unseen_,
            "coordinates": self._coordinates,
            "name": self.name,
            "notes": self.notes,
        }
        with files.replacing(path) as file:
            np.savez(file, about=np.array(json.dumps(about)), **arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PrivateScales:
        """Reads what `save` wrote. The noise of a further `fit` is fresh.

        Raises:
          ValueError: where the file is damaged, or something else.
          OSError: where it is not there.
        """
        with files.saved_arrays(path, "PrivateScales") as stored:
            about = json.loads(stored["about"].item())
            shapes = [stored[f"shape_{index}"] for index in range(len(about["names"]))]
            return cls._from_file(about, shapes)

    @classmethod
    def _from_file(cls, about: dict[str, Any], shapes: list[np.ndarray]) -> PrivateScales:
        scales = cls(
            noise_multiplier=about["noise_multiplier"],
            count_noise=about["count_noise"],
            classes=about["classes"],
            settings=method.Method(**about["settings"]),
        )
        checked = core.Scales(about["clip"], shapes)  # raises where the numbers can't be scales
        scales.clip_, scales.shapes_ = checked.clip, list(checked.shapes)
        scales._fits.restore(about["fits"], about["name"])
        scales._coordinates = validate.positive_integer("coordinates", about["coordinates"])
        scales.notes = dict(about["notes"])
        scales.names_ = [str(name) for name in about["names"]]
        scales.unseen_ = [str(name) for name in about["unseen"]]
        return scales
