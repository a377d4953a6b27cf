"""`PrivateTraining`: what `make_private` returns. Its `fit` trains within the target, and nothing is written twice.

Formal guarantee. The data is looked at by the queries of the scales and by the noised steps, both of which the budget
counts, and the budget stops training before the step that would pass the target (`PrivacyBudget`). Noise was calibrated
so that this is after the last step of the plan.
"""

from __future__ import annotations

import textwrap
from typing import Any

import tensorflow as tf

from adaclip_tf._internal import validate
from adaclip_tf.data.targets import PrivateTargetScaling
from adaclip_tf.privacy import private_optimizer, statement, wording
from adaclip_tf.privacy.budget import PrivacyBudget, PrivacyBudgetSpentError
from adaclip_tf.privacy.epsilon import epsilon_of
from adaclip_tf.scales.private_scales import PrivateScales
from adaclip_tf.training import scaled_data
from adaclip_tf.training.plan import Plan

_FAR_APART = 10.0  # of shapes: a factor of some 2,000 in gradients
_NO_GRADIENT = 1e-5  # a median gradient: Keras cuts probabilities off at 1e-7, and logits that it takes for such

_KNOWN = {
    "x": "the data was given to `make_private`",
    "y": "the data was given to `make_private`",
    "batch_size": "it was given to `make_private`",
    "sample_weight": "give weights to `make_private`, as the third part of the data: the scales must see them, too",
    "class_weight": "give each example its weight, as the third part of the data of `make_private`",
    "validation_split": "give other examples as `validation_data`; all of `data` is trained on",
    "shuffle": "batches are drawn by Poisson sampling",
    "steps_per_epoch": "an epoch is n / B batches",
    "initial_epoch": "`fit` goes on where it stopped",
}


class PrivateTraining:
    """A model with a private optimizer, batches and a budget that fit each other.

    Attributes:
      model: compiled, with `optimizer`.
      optimizer: a `DPAdaClipSGD` with learnt scales.
      batches: `poisson_batches` of the data.
      budget: the `PrivacyBudget` that `fit` adds to the callbacks.
      scales: the fitted `PrivateScales`.
      plan: all numbers.
      targets: the fitted `PrivateTargetScaling`; None without `scale_targets`.
    """

    def __init__(
        self,
        model: Any,
        batches: Any,
        budget: PrivacyBudget,
        scales: PrivateScales,
        plan: Plan,
        about: str,
        targets: PrivateTargetScaling | None = None,
    ):
        self.model, self.batches, self.budget = model, batches, budget
        self.scales, self.plan, self._about, self.targets = scales, plan, about, targets
        budget.set_model(model)

    @property
    def optimizer(self) -> Any:
        """The private optimizer."""
        return private_optimizer.require(getattr(self.model, "optimizer", None), "What `make_private` returned")

    @property
    def steps_taken(self) -> int:
        """Noised steps up to now."""
        return private_optimizer.noised_steps(self.optimizer)

    @property
    def epsilon(self) -> float:
        """What was spent up to now: scales and steps."""
        return self.budget.epsilon

    @property
    def _per_epoch(self) -> int:
        return self.plan.steps // self.plan.epochs

    @property
    def epochs_left(self) -> int:
        """Epochs of the plan that are left, one that was begun included."""
        return -(-(self.plan.steps - self.steps_taken) // self._per_epoch)

    def fit(self, epochs: int | None = None, callbacks: Any = None, **fit_arguments: Any) -> Any:
        """Trains; `model.fit` with the batches and the budget. Returns its `History`.

        Args:
          epochs: how many now; None for all that are left of the plan. A second call goes on where the first one
            stopped, with the learning rate of that place. More than are left is refused: they are not paid for.
          callbacks: one of Keras, or a list; the budget is added.
          **fit_arguments: `verbose`, `validation_data` and other arguments of `model.fit`. Targets of
            `validation_data` are in their own units, and scaled as those of training were.

        Raises:
          PrivacyBudgetSpentError: where all steps of the plan were taken.
        """
        for name in fit_arguments:
            if name in _KNOWN:
                raise ValueError(f"`{name}` is not for this `fit`: {_KNOWN[name]}.")
        epochs = validate.plain(epochs)
        if hasattr(epochs, "__iter__"):
            raise ValueError("`fit` takes no data: it was given to `make_private`. Call `fit()`, or `fit(epochs=1)`.")
        left = self.epochs_left
        if left <= 0:
            raise PrivacyBudgetSpentError(
                f"All {self.plan.steps:,} steps of the plan were taken: epsilon is {self.epsilon:.4g} of "
                f"{self.plan.target_epsilon:g}. A new `make_private` with more epochs, on a fresh model, costs "
                "privacy on top of that: give both one `ledger`."
            )
        if epochs is not None and validate.positive_integer("epochs", epochs) > left:
            raise ValueError(
                f"`epochs` must be at most {left}, which is what is left of the plan's {self.plan.epochs}; got "
                f"{epochs}. Give `make_private` the number of epochs that you want: noise and learning rate depend "
                "on it."
            )
        if self.targets is not None and fit_arguments.get("validation_data") is not None:
            shown = fit_arguments["validation_data"]
            if not isinstance(shown, (tuple, tf.data.Dataset)):
                raise ValueError(
                    "`validation_data` must be a tuple or a `tf.data.Dataset` where `scale_targets` is on; got "
                    f"{type(shown).__name__}."
                )
            fit_arguments["validation_data"] = scaled_data.scaled(shown, self.targets)
        done = self.plan.epochs - left
        return self.model.fit(
            self.batches,
            initial_epoch=done,
            epochs=done + (left if epochs is None else epochs),
            callbacks=[*([] if callbacks is None else tf.nest.flatten(callbacks)), self.budget],
            shuffle=False,  # Keras 3 warns of its own default where batches come as a dataset
            **fit_arguments,
        )

    def predict(self, x: Any, **predict_arguments: Any) -> Any:
        """`model.predict`; with `scale_targets`, in the targets' own units."""
        found = self.model.predict(x, **predict_arguments)
        return found if self.targets is None else self.targets.inverse_transform(found)

    def predictor(self) -> Any:
        """A model that predicts in the targets' own units: the one that is trained, with a fixed layer on top.

        They share their weights. It is for predicting and saving; without `scale_targets` it is `model` itself.
        """
        if self.targets is None:
            return self.model
        return scaled_data.predictor(self.model, self.targets, self.batches.element_spec[0])

    def statement(self) -> str:
        """The privacy statement: of what was trained up to now, or of the plan before the first step."""
        said: list[Any] = [self.scales, *([] if self.targets is None else [self.targets])]
        about = "".join("\n" + textwrap.fill(each.statement(delta=self.plan.delta), 88) + "\n" for each in said)
        if self.steps_taken:
            return wording.describe(self.budget.report()) + about
        text = wording.describe(
            statement.report_on(
                self.plan.mechanism, delta=self.plan.delta, steps=self.plan.steps, other_event=self._asked
            )
        )
        return f"No step was taken yet. The whole plan would be:\n\n{text}{about}"

    @property
    def _asked(self) -> Any:
        return scaled_data.asked_event(self.scales, self.targets)

    def summary(self) -> str:
        """What was chosen, why, what it cost and how to change it, as a table."""
        plan, scales = self.plan, self.scales
        mechanism, shapes = plan.mechanism, [h for shape in scales.shapes_ for h in shape.ravel()]
        multiplier, median = self.optimizer.rule.scales.multiplier, scales.clip_ or 0.0
        query = epsilon_of(scales.event, delta=plan.delta, accountant=plan.accountant)
        rows = [
            ("data", f"{plan.num_examples:,} examples", "all of `data`; their number is public"),
            ("batches", f"Poisson, {plan.batch_size:,} expected", "`batch_size`; larger ones have less noise each"),
            (
                "training",
                f"{plan.epochs} epochs, {plan.steps:,} steps",
                "`epochs`; more of them mean more noise in each",
            ),
            (
                "privacy",
                f"epsilon {plan.target_epsilon:g}, delta {plan.delta:g}",
                f"`target_epsilon`, `delta`; by {plan.accountant.upper()} (`accountant`), for one example",
            ),
            (
                "noise multiplier",
                f"{mechanism.noise_multiplier:.4g}",
                f"what the target allows; {plan.noise_alone:.4g} without the scales",
            ),
            (
                "scales",
                f"epsilon {query:.3g} by themselves",
                "asked before training, part of the target; `remember=` keeps them",
            ),
            (
                "clip",
                f"{multiplier * median:.3g}",
                f"the median gradient, {median:.3g}, times {multiplier:.3g} by the noise",
            ),
            (
                "shapes",
                f"{min(shapes):.3g} to {max(shapes):.3g}",
                f"of {len(shapes):,} rows; as far as noise shows them",
            ),
            (
                "learning rate",
                f"{plan.learning_rate:.3g}, falling to 0 as a root",
                f"by {plan.classes} classes (`classes`), noise, steps and depth; or `learning_rate`",
            ),
            ("loss", self._about, "the one that the scales were asked with"),
        ]
        if self.targets is not None:
            cost = epsilon_of(self.targets.event, delta=plan.delta, accountant=plan.accountant)
            rows.append(
                (
                    "targets",
                    f"epsilon {cost:.3g} by themselves",
                    f"{_units(self.targets)}; asked privately, part of the target",
                )
            )
        lines = ["Private training: what was chosen and why", ""]
        lines += [f"  {name:17s}{value:30s}{why}" for name, value, why in rows]
        for note in self._notes():
            lines += ["", textwrap.fill(note, 110, initial_indent="  ", subsequent_indent="  ")]
        return "\n".join(lines) + "\n"

    def _notes(self) -> list[str]:
        notes = []
        if self.scales.unseen_:
            notes.append(
                f"Noise hid all gradients of {', '.join(self.scales.unseen_)}: they get the others' typical scale. A "
                "layer below an output that starts at zero has none at first: start it at small random weights."
            )
        if (self.scales.clip_ or 0.0) < _NO_GRADIENT:
            notes.append(
                "Nearly all gradients are 0, so there is nothing to learn from. If the last layer has no activation, "
                "its outputs are logits, and the loss must know: `BinaryCrossentropy(from_logits=True)`, say."
            )
        shapes = [h for shape in self.scales.shapes_ for h in shape.ravel()]
        if max(shapes) > _FAR_APART * min(shapes):
            notes.append(
                "Inputs are very far apart in size, further than a few private questions can tell: divide columns by "
                "public ranges."
            )
        if self.targets is not None:
            notes.append(
                "The model itself, its losses and metrics are in deviations from the mean of the targets: `.predict` "
                "of this object and `.predictor()` give the targets' own units."
            )
        elif any(word in self._about.lower() for word in ("squared", "absolute", "mse", "mae", "huber", "logcosh")):
            notes.append(
                "The learning rate is for targets with a mean of about 0 and a variance of about 1: make them so by "
                "public numbers, such as the middle and a quarter of their range, or give `scale_targets=True`, which "
                "asks for mean and deviation with noise. Targets s times as large want s^2 times the rate, by squared "
                "error."
            )
        return notes


def _units(targets: PrivateTargetScaling) -> str:
    """Mean and deviation of the first few columns."""
    pairs = [f"{mean:.4g} ± {std:.4g}" for mean, std in list(zip(*targets.parameters))[:3]]
    return ", ".join(pairs) + (", ..." if len(targets.parameters[0]) > 3 else "")
