"""`PrivacyTensorBoard`: training, its noise and its epsilon in TensorBoard.

A training is one run of TensorBoard's, called by its folder, `log_dir`. With `nonprivate=True` there is a second one
below it, `nonprivate`, which can be deleted: how the last batch was clipped, which is NOT private. Keras's own
TensorBoard callback writes to `train` and `validation`, so both fit into one `log_dir`.

Formal guarantee. Whatever is written apart from Keras's logs (scalars, the picture of them and `by_epsilon.json`) and
the run `nonprivate` is a function of `noised_steps`, `private_metrics()`, `private_state()`, the learning rate,
constructor arguments of the optimizer and what the accountant is told: post-processing of what was paid for. Keras's
training loss and metrics are computed from the data without noise; `keras_metrics=False` leaves them out, for a folder
that is to be published.

Steps are the optimizer's count of noised steps, which is saved with it: a resumed run goes on where it
stopped, and a logical batch of several accumulation steps counts once.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from absl import logging

from adaclip_tf._internal import keras, signatures, validate
from adaclip_tf.privacy import fit_data, private_optimizer, run_checks
from adaclip_tf.privacy.budget import PrivacyBudget
from adaclip_tf.privacy.meter import PrivacyMeter
from adaclip_tf.tensorboard import arguments, event_files, figures, hparams, names, protos, summaries
from adaclip_tf.tensorboard.by_epsilon import Curve


class PrivacyTensorBoard(tf.keras.callbacks.Callback):
    """Keras callback: epsilon, accuracy and noise first; AdaCliP's state, the privacy statement, HParams.

    Example:
      >>> board = PrivacyTensorBoard("runs/first", num_examples=60000, batch_size=600, delta=1e-5)
      >>> model.fit(batches, epochs=10, callbacks=[board])                              # doctest: +SKIP

    then `tensorboard --logdir runs`. docs/tensorboard.md lists the tags.

    Args:
      log_dir: the folder of this training, whose name is the run's. Several runs inside one folder can be compared.
      budget: the `PrivacyBudget` of the same `fit`, which then also says how epsilon is counted. With an accountant
        that is not quick, such as "pld", which takes tenths of a second, epsilon is written per epoch only. Or a
        `PrivacyMeter`, which counts and does not stop.
      num_examples, batch_size, delta: the same without a budget: epsilon by RDP for Poisson-sampled batches. All
        three or none; without them and without `budget`, epsilon is what a `PrivacyBudget` earlier in the list of
        callbacks put into the epoch's logs, if there is one.
      update_freq: scalars are written every so many noised steps, or "epoch" for the end of each epoch only.
      reference_l2_norm_clip: C, for the noise that DP-SGD (Abadi et al. 2016) would have added, z C sqrt(d) / B. None
        is the optimizer's own `l2_norm_clip` where it has one, otherwise 1.
      histogram_freq: histograms of s (or b) every so many epochs; 0 for none.
      image_freq: images every so many epochs and at the end; 0 for none.
      image_shape: the shape of one input of the first layer, (height, width) or (height, width, channels), to draw
        its b as a picture. None draws it where the number of inputs is a square number.
      keras_metrics: whether to write Keras's loss and metrics. The training ones are NOT private.
      hparams: whether to write the optimizer's arguments to the HPARAMS tab; a dict is added to them.
      nonprivate: also writes `nonprivate_metrics()` of the optimizer, which must record them. NOT private.
    """

    @signatures.other_names(
        epsilon="give `budget`, or `num_examples`, `batch_size` and `delta`",
        expected_batch_size="use `batch_size`",
    )
    def __init__(
        self,
        log_dir: str | os.PathLike[str],
        *,
        budget: PrivacyBudget | PrivacyMeter | None = None,
        num_examples: int | None = None,
        batch_size: int | None = None,
        delta: float | None = None,
        update_freq: int | str = 50,
        reference_l2_norm_clip: float | None = None,
        histogram_freq: int = 5,
        image_freq: int = 25,
        image_shape: tuple[int, ...] | None = None,
        keras_metrics: bool = True,
        hparams: bool | Mapping[str, Any] = True,
        nonprivate: bool = False,
    ):
        protos.require()
        super().__init__()
        keras.takes_tensors_as_logs(self)
        self.log_dir = validate.path("log_dir", log_dir)
        self._meter = arguments.meter_of(budget, num_examples, batch_size, delta)
        self._checks_run = not isinstance(budget, PrivacyBudget)  # which checks the run itself
        self._told = False
        self._update_freq = arguments.update_frequency(update_freq)
        if reference_l2_norm_clip is not None:
            validate.positive("reference_l2_norm_clip", reference_l2_norm_clip)
        self._reference_clip = reference_l2_norm_clip
        self._histogram_freq = arguments.frequency("histogram_freq", histogram_freq)
        self._image_freq = arguments.frequency("image_freq", image_freq)
        self._image_shape = figures.check_image_shape(image_shape)
        self._keras_metrics = validate.boolean("keras_metrics", keras_metrics)
        self._hparams = arguments.hparams(hparams)
        self._nonprivate = validate.boolean("nonprivate", nonprivate)
        if self._nonprivate:
            logging.warning(
                "PrivacyTensorBoard(nonprivate=True) writes un-noised quantities to %s: NOT private, for data that "
                "needs no protection.",
                os.path.join(self.log_dir, summaries.NONPRIVATE_RUN),
            )
        self._files = event_files.EventFiles(self.log_dir)
        self._measure: summaries.Measurement | None = None
        self._first_step = self._last_step = 0
        self._last_tags: set[str] = set()
        self._epoch = self._next_look = 0
        self._epoch_logs: dict[str, float] = {}
        self._curve = Curve(self.log_dir)

    # -----------------------------------------------------------------------------------------------
    # Keras's hooks.

    def on_train_begin(self, logs=None):
        self._files.close()
        optimizer = self._optimizer
        if self._nonprivate and not optimizer.nonprivate_metrics_recorded:
            raise ValueError(
                "PrivacyTensorBoard(nonprivate=True) has nothing to write: the optimizer records no un-noised "
                "quantities. Construct it with `nonprivate_metrics=True`, on data that needs no protection."
            )
        if self.model.built:
            optimizer.build(self.model.trainable_variables)
        if self._checks_run and not self._told:
            self._told = True
            run_checks.warn_of_releases(self.model)
        if self._meter is not None and self._checks_run:
            self._meter.check(optimizer, fit_data.given_to_fit(self.model))  # batch size and sampling
        if self._image_freq:
            figures.warm_up()
        self._measure = None
        self._first_step = self._last_step = self._step()
        self._last_tags, self._epoch, self._epoch_logs = set(), 0, {}
        if not keras.is_chief(self.model):
            return
        if not self._first_step and self._files.has_events(summaries.TRAINING):
            logging.warning(
                "`log_dir`=%r holds an earlier training, and TensorBoard will draw both as one line. Give each "
                "training a folder of its own.",
                self.log_dir,
            )
        self._files.open(summaries.TRAINING)
        if self._keras_metrics:
            self._curve.begin(self._epsilon(self._first_step) if self._first_step else None)
        if self._nonprivate:
            self._files.open(summaries.NONPRIVATE_RUN)
        if self._hparams is not False:
            self._files.write(summaries.TRAINING, hparams.session_start(self._all_hparams()))
        self._files.write(summaries.TRAINING, summaries.layout())
        if self.model.built:
            self._measurement()()  # traced now, not in the middle of training
            if self._image_freq:  # an `image_shape` that does not fit is told now
                figures.first_layer_scale(self._state(), self._image_shape)

    def on_epoch_begin(self, epoch, logs=None):
        self._next_look = 0 if self._update_freq is None else self._update_freq - self._step() % self._update_freq

    def on_train_batch_end(self, batch, logs=None):
        # A batch is at most one noised step: before this many there is nothing to write, and no need to ask.
        if self._update_freq is None or not self._files or batch + 1 < self._next_look:
            return
        step = self._step()
        self._next_look = batch + 1 + self._update_freq - step % self._update_freq
        if step // self._update_freq > self._last_step // self._update_freq:
            quick = self._meter is not None and self._meter.quick
            self._write_step(step, logs, self._epsilon(step) if quick else None)

    def on_epoch_end(self, epoch, logs=None):
        step = self._step()
        if not self._files or step == self._first_step:  # not one logical batch is complete
            return
        self._epoch += 1
        self._epoch_logs = logs = _numbers(logs)
        epsilon = self._epsilon(step)
        self._write_step(step, logs, epsilon)
        if self._epoch == 1 and self._hparams is not False:  # now it is known which metrics there are
            own = self._hparams if isinstance(self._hparams, Mapping) else ()
            metrics = summaries.keras_metrics(logs) if self._keras_metrics else {}
            self._files.write(summaries.TRAINING, hparams.columns(self._all_hparams(), own, metrics))
        if self._keras_metrics and epsilon is not None and math.isfinite(epsilon):
            self._curve.add(epsilon, summaries.keras_metrics(logs))
        if self._histogram_freq and self._epoch % self._histogram_freq == 0:
            self._files.write(summaries.TRAINING, summaries.histograms(self._state()), step)
        if self._image_freq and self._epoch % self._image_freq == 0:
            self._write_images(step)
        self._files.flush()

    def on_train_end(self, logs=None):
        if not self._files:
            return
        step = self._step()
        if self._epoch:
            if self._image_freq and self._epoch % self._image_freq:
                self._write_images(step)
            report = None if self._meter is None else self._meter.report(self._optimizer, (self._meter.accountant,))
            if report is not None:
                self._files.write(summaries.TRAINING, summaries.statement(report), step)
            if self._hparams is not False:
                self._files.write(summaries.TRAINING, hparams.session_end(), step)
        self._files.close()

    # -----------------------------------------------------------------------------------------------

    @property
    def _optimizer(self) -> Any:
        return private_optimizer.require(self.model.optimizer, "PrivacyTensorBoard")

    def _state(self) -> summaries.State:
        state = self._optimizer.private_state()
        return dict(zip(names.comparable(state, self.model), state.values()))

    def _step(self) -> int:
        """Noised steps up to now; 0 before the optimizer has state."""
        return private_optimizer.noised_steps(self._optimizer)

    def _epsilon(self, step: int) -> float | None:
        """The epsilon spent up to now; at the end of an epoch also if only another callback counts it."""
        if self._meter is None:
            return self._epoch_logs.get("epsilon")
        return self._meter.epsilon_at(self._optimizer, step)

    def _delta(self) -> float | None:
        return None if self._meter is None else self._meter.delta

    def _write_step(self, step: int, logs: Any, epsilon: float | None) -> None:
        """All that is known at a step. The last batch of an epoch and its end can be the same step: no tag twice."""
        measure = self._measurement()
        values: dict[str, float] = {} if epsilon is None else {summaries.EPSILON: epsilon}
        if self._keras_metrics:
            values.update(summaries.overview(summaries.keras_metrics(_numbers(logs))))
        if step != self._last_step:
            self._last_step, self._last_tags = step, set()
            values.update(measure())
            if self._nonprivate:
                unnoised = _numbers(self._optimizer.nonprivate_metrics())
                self._files.write(summaries.NONPRIVATE_RUN, summaries.scalars(unnoised), step)
        values = {tag: value for tag, value in values.items() if tag not in self._last_tags}
        self._last_tags |= values.keys()
        self._files.write(summaries.TRAINING, summaries.scalars(values, measure.descriptions), step)

    def _measurement(self) -> summaries.Measurement:
        if self._measure is None:
            self._measure = summaries.Measurement(self._optimizer, self._state, self._reference_clip, self._delta())
        return self._measure

    def _write_images(self, step: int) -> None:
        found = figures.first_layer_scale(self._state(), self._image_shape)
        images = {}
        if found is not None:
            name, picture = found
            images[f"{summaries.NOISE}/image/{name}"] = (figures.scale_picture(name, picture), summaries.NOISE_IMAGE)
        points = self._curve.points
        metric = figures.main_metric(points)
        if metric is not None:
            drawn = figures.metric_by_epsilon(metric, points, self._delta(), self._curve.others())
            images[f"{summaries.OVERVIEW}/{metric}_by_epsilon"] = (drawn, summaries.BY_EPSILON)
        self._files.write_images(summaries.TRAINING, images, step)

    def _all_hparams(self) -> dict[str, Any]:
        more: dict[str, Any] = {}
        if self._meter is not None:
            claimed = self._meter.claimed
            more = {name: getattr(claimed, name) for name in ("num_examples", "batch_size", "sampling")}
            more["delta"] = self._meter.delta
        if isinstance(self._hparams, Mapping):
            more.update(self._hparams)
        return hparams.of(self._optimizer, more)


def _numbers(logs: Mapping[str, Any] | None) -> dict[str, float]:
    return {name: float(value) for name, value in (logs or {}).items()}
