"""`scale_targets`: targets in their own units in and out, composed into the target, whatever kind the data is of."""

import dp_accounting
import numpy as np
import pytest
import tensorflow as tf

import adaclip_tf
from adaclip_tf.data import sampling
from adaclip_tf.data.targets import PrivateTargetScaling
from adaclip_tf.privacy import accountants
from adaclip_tf.privacy.ledger import Ledger
from adaclip_tf.training import make_private as module
from adaclip_tf.training import scaled_data
from adaclip_tf.training.make_private import make_private

layers = tf.keras.layers
N = 2000
PLAN = {"target_epsilon": 3.0, "delta": 1e-4, "batch_size": 100, "epochs": 5, "seed": 1, "verbose": False}


def data(columns=1, num_examples=N):
    """Dollars: 4,000 and a line in four features with a deviation of 1,000."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=[num_examples, 4]).astype(np.float32)
    noise = 0.1 * rng.normal(size=[num_examples, columns])
    y = 4000.0 + 1000.0 * (x[:, :columns] + noise)
    return x, y[:, 0] if columns == 1 else y


def make(given=None, outputs=1, **options):
    model = tf.keras.Sequential([tf.keras.Input([4]), layers.Dense(outputs, kernel_initializer="zeros")])
    return make_private(
        model, data() if given is None else given, loss="mse", **{**PLAN, "scale_targets": True, **options}
    )


@pytest.fixture(autouse=True)
def _quickly(monkeypatch):
    """Statements by one accountant: the other takes seconds."""
    monkeypatch.setattr(accountants, "REGISTERED", {"rdp": accountants.RDP})


@pytest.fixture(scope="module")
def trained():
    made = make()
    x, y = data()
    return made, made.fit(validation_data=(x[:500], y[:500]), verbose=0)


def r2(found, y):
    return 1.0 - np.mean((np.ravel(found) - np.ravel(y)) ** 2) / np.var(y)


def test_it_learns_dollars_and_predicts_them(trained):
    made, history = trained
    x, y = data()
    found = made.predict(x, verbose=0)
    assert found.shape == (N, 1)
    assert r2(found, y) > 0.9
    np.testing.assert_allclose(made.targets.mean_, [4000.0], atol=300.0)
    assert 1e-4 < history.history["val_loss"][-1] < 0.5  # in deviations; in dollars it would be tens of thousands
    np.testing.assert_allclose(made.predictor().predict(x, verbose=0), found, rtol=1e-4)
    assert abs(made.model.predict(x, verbose=0).mean()) < 1.0
    dataset = tf.data.Dataset.from_tensor_slices((x[:500], y[:500])).batch(50)
    assert made.model.evaluate(scaled_data.scaled(dataset, made.targets), verbose=0) == pytest.approx(
        history.history["val_loss"][-1], rel=1e-4
    )
    with pytest.raises(adaclip_tf.PrivacyBudgetSpentError):
        made.fit()


class Line(tf.keras.Model):
    """A model without known inputs."""

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.dense = layers.Dense(1)

    def call(self, inputs):
        return self.dense(inputs)


def two_inputs():
    inputs = {name: tf.keras.Input([2], name=name) for name in "ab"}
    return tf.keras.Model(inputs, layers.Dense(1)(layers.Concatenate()([inputs["a"], inputs["b"]])))


@pytest.mark.parametrize("kind", ["sequential", "subclassed", "two inputs"])
def test_a_predictor_of_any_model_can_be_saved(kind, tmp_path):
    x, _ = data(num_examples=20)
    model = {"sequential": lambda: tf.keras.Sequential([layers.Dense(1)]), "subclassed": Line, "two inputs": two_inputs}
    made, x = model[kind](), {"a": x[:, :2], "b": x[:, 2:]} if kind == "two inputs" else x
    spec = tf.nest.map_structure(lambda part: tf.TensorSpec([None, *part.shape[1:]]), x)
    scaling = PrivateTargetScaling.from_notes(
        {"mean": [1990.0], "std": [5.0], "noise_multiplier": 9.0, "fits": 1, "name": "targets-x"}
    )
    made(x)
    predictor = scaled_data.predictor(made, scaling, spec)
    expected = 1990.0 + 5.0 * made.predict(x, verbose=0)
    np.testing.assert_allclose(predictor.predict(x, verbose=0), expected, rtol=1e-5)
    predictor.save(tmp_path / "years.keras")
    again = tf.keras.models.load_model(tmp_path / "years.keras", custom_objects={"Line": Line})
    np.testing.assert_allclose(again.predict(x, verbose=0), expected, rtol=1e-5)


def test_without_it_nothing_is_learnt():
    made = make(scale_targets=False)
    made.fit(verbose=0)
    x, y = data()
    assert not r2(made.predict(x, verbose=0), y) > 0.5
    assert made.targets is None
    assert made.predictor() is made.model
    assert "`scale_targets=True`" in made.summary()


def test_the_questions_are_part_of_the_target(trained):
    made, _ = trained
    event = [made.targets.event, made.scales.event, made.plan.mechanism.event(steps=made.plan.steps)]
    composed = sum_of_epsilon(event)
    assert 0.99 * 3.0 < composed <= 3.0
    assert made.epsilon == pytest.approx(composed, rel=1e-6)
    assert sum_of_epsilon(event[1:]) < made.epsilon
    assert made.targets.noise_multiplier == made.plan.targets_noise
    text = " ".join(made.statement().split())
    assert "Mean and deviation of the targets, learnt once" in text
    summary = " ".join(made.summary().split())
    assert "asked privately, part of the target" in summary
    assert "give the targets' own units" in summary


def sum_of_epsilon(events):
    accountant = dp_accounting.rdp.RdpAccountant()
    for event in events:
        accountant.compose(event)
    return accountant.get_epsilon(1e-4)


def test_before_the_first_step_the_statement_is_of_all():
    text = " ".join(make().statement().split())
    assert "No step was taken yet" in text
    assert "Mean and deviation of the targets" in text


def kinds():
    x, y = data()
    rows = [(x[i], y[i]) for i in range(N)]
    yield "arrays", (x, y), {}
    yield "column", (x, y[:, None]), {}
    yield "tensors", (tf.constant(x), tf.constant(y)), {}
    yield "weights", (x, y, np.ones(N, np.float32)), {}
    yield "function", lambda chosen: (x[chosen], y[chosen]), {"num_examples": N}
    yield "source", rows, {}
    yield "dataset", tf.data.Dataset.from_tensor_slices((x, y)), {}


@pytest.mark.parametrize("kind", ["arrays", "column", "tensors", "weights", "function", "source", "dataset"])
def test_every_kind_of_data(kind):
    given, options = next((given, options) for name, given, options in kinds() if name == kind)
    if kind == "source":
        given = Source(given)
    load, n = sampling.loader(given, options.get("num_examples"))
    y = scaled_data.targets(load, n, 700)
    np.testing.assert_allclose(np.ravel(y), data()[1], rtol=1e-6)
    scaling = PrivateTargetScaling.from_notes(
        {"mean": [4000.0], "std": [1000.0], "noise_multiplier": 9.0, "fits": 1, "name": "targets-x"}
    )
    batches = sampling.poisson_batches(scaled_data.scaled(given, scaling), expected_batch_size=N, seed=0, **options)
    batch = next(iter(batches))
    assert (len(batch[1]), batch[1].dtype) == (N, tf.float32)
    np.testing.assert_allclose(np.ravel(batch[1]), (data()[1] - 4000.0) / 1000.0, rtol=1e-4, atol=1e-5)
    for part, expected in zip(batch[::2], [data()[0], np.ones(N)]):  # all else is as it was
        np.testing.assert_array_equal(part, expected)


class Source:
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def test_each_column_of_a_dataset_has_its_own_mean():
    """Of two columns, as of any other number."""
    x, y = data(columns=2)
    scaling = PrivateTargetScaling.from_notes(
        {"mean": [4000.0, 3000.0], "std": [1000.0, 500.0], "noise_multiplier": 9.0, "fits": 1, "name": "targets-x"}
    )
    given = scaled_data.scaled(tf.data.Dataset.from_tensor_slices((x, y)).batch(N), scaling)
    np.testing.assert_allclose(next(iter(given))[1], (y - [4000.0, 3000.0]) / [1000.0, 500.0], rtol=1e-4, atol=1e-5)


def test_several_columns():
    made = make(data(columns=3), outputs=3)
    made.fit(verbose=0)
    x, y = data(columns=3)
    found = made.predict(x, verbose=0)
    assert r2(found, y) > 0.8
    np.testing.assert_allclose(made.predictor().predict(x, verbose=0), found, rtol=1e-4)


def test_a_ledger_holds_all_that_was_asked(tmp_path):
    path = tmp_path / "ledger.json"
    made = make(ledger=path)
    assert [release.name for release in Ledger(path).read()[1]] == [made.targets.name, made.scales.name]
    made.fit(verbose=0)
    assert Ledger(path).epsilon(delta=1e-4) == pytest.approx(made.epsilon)
    assert 2.9 < made.epsilon <= 3.0


def test_the_ledger_is_written_before_the_targets_are_asked(tmp_path, monkeypatch):
    path = tmp_path / "ledger.json"
    monkeypatch.setattr(PrivateTargetScaling, "fit", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        make(ledger=path)
    assert [release.name.partition("-")[0] for release in Ledger(path).read()[1]] == ["targets"]


def test_what_a_killed_program_asked_is_not_asked_again(tmp_path, monkeypatch):
    path = tmp_path / "plan.npz"
    first = make(remember=path)
    monkeypatch.setattr(module.PrivateScales, "fit", lambda *_, **__: pytest.fail("asked again"))
    monkeypatch.setattr(PrivateTargetScaling, "fit", lambda *_: pytest.fail("asked again"))
    again = make(remember=path, ledger=tmp_path / "ledger.json")
    assert again.plan == first.plan
    assert again.targets.notes() == first.targets.notes()
    assert len(Ledger(tmp_path / "ledger.json").read()[1]) == 2
    again.fit(verbose=0)
    assert again.epsilon <= 3.0
    assert r2(again.predict(data()[0], verbose=0), data()[1]) > 0.9
    for options in ({"scale_targets": False}, {"given": data(columns=2), "outputs": 2}):
        with pytest.raises(ValueError, match="does not fit: it is of a training with scale_targets=True"):
            make(remember=path, **options)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"scale_targets": 1}, "`scale_targets` must be True or False"),
        ({"loss": "binary_crossentropy"}, "`scale_targets` is for regression"),
        ({"loss": tf.keras.losses.SparseCategoricalCrossentropy()}, "`scale_targets` is for regression"),
        ({"given": (data()[0], {"y": data()[1]})}, "one array of numbers"),
        ({"given": (data()[0], np.zeros([N, 2, 2]))}, "one array of numbers"),
        ({"given": (data()[0][:60], data()[1][:60]), "batch_size": 10}, "squared budget"),
    ],
)
def test_bad_arguments_are_named_before_anything_is_asked(options, message, tmp_path):
    arguments = {**PLAN, "scale_targets": True, "loss": "mse", "ledger": tmp_path / "ledger.json", **options}
    model = tf.keras.Sequential([tf.keras.Input([4]), layers.Dense(1)])
    given = arguments.pop("given", data())
    with pytest.raises(ValueError, match=message):
        make_private(model, given, **arguments)
    assert not any(Ledger(tmp_path / "ledger.json").read())


def test_validation_data_of_another_kind_is_refused():
    made = make(epochs=1)
    with pytest.raises(ValueError, match="`validation_data` must be a tuple"):
        made.fit(validation_data=iter([data()]))
    assert made.steps_taken == 0
