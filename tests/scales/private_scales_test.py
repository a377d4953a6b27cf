"""`PrivateScales`: the whole warm-up against an oracle, its event, its noise, and that only noised answers decide."""

import copy

import dp_accounting
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

import adaclip_tf
from adaclip_tf.core import noise
from adaclip_tf.scales import private_scales, queries
from adaclip_tf.scales.method import Method
from adaclip_tf.scales.private_scales import PrivateScales
from tests import models
from tests.scales import oracle

layers = tf.keras.layers


def loss():
    return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def data(num_examples=300, seed=0):
    """Features whose sizes differ by a factor of 30."""
    inputs, labels = models.data(num_examples, seed=seed)
    return inputs * np.float32([0.1, 1.0, 3.0, 0.5]), labels


@pytest.fixture(scope="module")
def fitted():
    model = models.softmax_regression()
    scales = PrivateScales(noise_multiplier=8.0, count_noise=5.0, seed=3)
    return model, scales.fit(model, loss(), data())


class Fake:
    """Answers of one's own in the place of the data's."""

    num_examples = 100

    def __init__(self, counts, rows, row_shapes=((3, 1), (1,))):
        self.row_shapes, self.widths = [list(shape) for shape in row_shapes], [4, 4]
        self._counts, self._rows = iter(counts), iter(rows)

    def look_at_norms(self, shapes):
        pass

    def count(self, clip):
        return next(self._counts)

    def rows(self, clip, shapes):
        return next(self._rows)


@pytest.mark.parametrize("path", ["auto", "jacobian"])
def test_it_is_the_warm_up_of_the_oracle(path, fitted):
    """Noise in the order in which the queries are made: counts, rounds, counts."""
    inputs, labels = data()
    model, scales = fitted
    if path == "jacobian":
        scales = PrivateScales(noise_multiplier=8.0, count_noise=5.0, seed=3)
        scales.fit(model, loss(), (inputs, labels), gradient_path=path, slice_size=123)
    records = models.softmax_gradients(model.get_weights(), inputs, labels)
    flat = np.concatenate([record.reshape(len(inputs), -1) for record in records], axis=1)
    row_of = np.concatenate([np.repeat(np.arange(4), 3), np.full(3, 4)])
    source = noise.NoiseSource(3)

    def draw(number):
        if number == 1:
            return source.fresh_normals([[]])[0].numpy().reshape(1)
        drawn = source.fresh_normals([[4, 1], [1]])
        return np.concatenate([part.numpy().ravel() for part in drawn])

    clip, shape = oracle.warm_up(flat, row_of, np.array([0, 0, 0, 0, 1]), draw, zw=8.0, sigma_c=5.0)
    np.testing.assert_allclose(np.concatenate([h.ravel() for h in scales.shapes_]), shape, rtol=1e-3)
    np.testing.assert_allclose(scales.clip_, clip, rtol=1e-3)
    assert [h.shape for h in scales.shapes_] == [(4, 1), (1,)]


def test_it_finds_the_sizes_of_the_features(fitted):
    """Row i of the kernel has gradients in proportion to |x_i|, and h goes as a power of it, from the median up."""
    h = fitted[1].shapes_[0].ravel()
    assert h[0] == h[3] < h[1] < h[2]
    np.testing.assert_allclose(h[2] / h[1], 3.0 ** fitted[1].settings.power, rtol=0.3)


def test_the_event_is_the_composition_written_out():
    scales = PrivateScales(noise_multiplier=30.0, count_noise=40.0)
    by_hand = dp_accounting.rdp.RdpAccountant()
    for _ in range(3):
        by_hand.compose(dp_accounting.GaussianDpEvent(30.0))
    for _ in range(24):
        by_hand.compose(dp_accounting.GaussianDpEvent(40.0 / 0.5))  # noise over sensitivity
    assert adaclip_tf.epsilon_of(scales.event, delta=1e-5) == pytest.approx(by_hand.get_epsilon(1e-5), rel=1e-9)
    # Negative control: counts of sensitivity 1, or one round more, would cost more.
    more = by_hand.compose(dp_accounting.GaussianDpEvent(30.0))
    assert more.get_epsilon(1e-5) > 1.01 * adaclip_tf.epsilon_of(scales.event, delta=1e-5)


def test_every_query_that_is_made_is_in_the_event(monkeypatch):
    """Each call of the noise source is one release: R vectors and 2 c counts."""
    settings = Method(rounds=2, counts=5)
    scales = PrivateScales(noise_multiplier=1.0, count_noise=2.0, settings=settings, seed=0)
    asked, normals = [], scales._normals
    monkeypatch.setattr(scales, "_normals", lambda shapes: asked.append(len(shapes)) or normals(shapes))
    scales._learn(Fake([0.0] * 10, [[np.ones([3, 1]), np.ones([1])]] * 2))
    assert asked == [1] * 5 + [2] * 2 + [1] * 5
    first, second = scales.event.events[0].events
    assert (first.event.noise_multiplier, first.count) == (1.0, 2)
    assert (second.event.noise_multiplier, second.count) == (4.0, 10)


def test_only_noised_answers_decide(monkeypatch):
    """Other answers with other noise, and the same sums of both: the same scales, bit by bit."""
    rng = np.random.default_rng(1)
    noised = [20.0 * rng.normal() for _ in range(24)]
    rounds = [[100.0 * rng.normal(size=(3, 1)), 100.0 * rng.normal(size=1)] for _ in range(3)]
    found = []
    for seed in range(3):
        own = np.random.default_rng(seed)
        counts = [float(own.integers(-50, 50)) for _ in noised]
        rows = [[own.integers(0, 90, part.shape).astype(float) for part in parts] for parts in rounds]
        needed = [[np.array((a - b) / 4.0)] for a, b in zip(noised[:12], counts)]
        needed += [[(a - b) / 8.0 for a, b in zip(*parts)] for parts in zip(rounds, rows)]
        needed += [[np.array((a - b) / 4.0)] for a, b in zip(noised[12:], counts[12:])]
        scales = PrivateScales(noise_multiplier=8.0, count_noise=4.0)
        answers = iter(needed)
        monkeypatch.setattr(scales, "_normals", lambda shapes, answers=answers: next(answers))
        scales._learn(Fake(counts, rows))
        found.append((scales.clip_, *[h.ravel().tolist() for h in scales.shapes_]))
    np.testing.assert_allclose(found[0][0], [clip for clip, *_ in found], rtol=1e-9)
    for other in found[1:]:
        np.testing.assert_allclose(np.concatenate(other[1:]), np.concatenate(found[0][1:]), rtol=1e-6)


def test_noise_of_the_queries_is_that_of_the_arguments():
    scales = PrivateScales(noise_multiplier=3.0, count_noise=5.0, seed=0)
    fake = Fake([], [[np.zeros([2000, 1]), np.zeros([1])]])
    rows = scales._noised_rows(fake, 1.0, [])[0].ravel() / 3.0
    assert scipy.stats.kstest(rows, "norm").pvalue > 0.01
    for wrong in (2 / 3, 3 / 2):
        assert scipy.stats.kstest(wrong * rows, "norm").pvalue < 1e-6


def test_counts_are_noised_by_their_own_noise(monkeypatch):
    """The noised fraction is (count + sigma_c N) / n + 1/2."""
    scales, fractions = PrivateScales(noise_multiplier=0.0, count_noise=7.0), []
    monkeypatch.setattr(scales, "_normals", lambda shapes: [np.array(2.0)])
    monkeypatch.setattr(private_scales.estimate.MedianSearch, "move", lambda self, f: fractions.append(f))
    scales._median(Fake([10.0] * 12, []), [], 1.0, 2.0)
    np.testing.assert_allclose(fractions, (10.0 + 14.0) / 100 + 0.5)


def test_noise_is_fresh_in_every_fit_and_deaf_to_ordinary_seeds():
    found = []
    for _ in range(2):
        tf.random.set_seed(0)
        scales = PrivateScales(noise_multiplier=50.0, count_noise=50.0)
        for _ in range(2):
            scales._learn(Fake([0.0] * 24, [[np.zeros([3, 1]), np.zeros([1])]] * 3))
            found.append(scales.clip_)
    assert len(set(found)) == 4


def test_every_fit_is_paid_for_through_saving_and_loading(tmp_path, fitted):
    model, scales = fitted
    scales.save(tmp_path / "scales.npz")
    again = PrivateScales.load(tmp_path / "scales.npz")
    assert again.event == scales.event
    assert (again.clip_, again.names_, again.unseen_) == (scales.clip_, scales.names_, scales.unseen_)
    for one, other in zip(again.shapes_, scales.shapes_):
        np.testing.assert_array_equal(one, other)
    ours, theirs = scales.for_training(1.0, 64), again.for_training(1.0, 64)
    assert ours.get_config() == theirs.get_config()
    before = adaclip_tf.epsilon_of(again.event, delta=1e-5)
    again.fit(model, loss(), data(20))
    first, second = again.event.events[0].events
    assert (first.count, second.count) == (6, 48)
    assert adaclip_tf.epsilon_of(again.event, delta=1e-5) > before
    assert "learnt 2 times" in again.statement(delta=1e-5)


def test_a_fit_that_fails_after_it_has_looked_is_paid_for(fitted, monkeypatch):
    scales = PrivateScales(noise_multiplier=8.0, count_noise=5.0)
    monkeypatch.setattr(queries.Queries, "rows", lambda *_: 1 / 0)
    for fits in (1, 2):
        with pytest.raises(ZeroDivisionError):
            scales.fit(fitted[0], loss(), data(20))
        assert scales.event.events[0].events[0].count == 3 * fits


def test_a_copy_that_is_fitted_too_is_another_one(fitted):
    """A budget or a ledger takes the same name for the same fit, and counts it once."""
    unfitted, done = PrivateScales(noise_multiplier=8.0, count_noise=5.0), fitted[1]
    assert copy.deepcopy(unfitted).name != unfitted.name
    copied = copy.deepcopy(done)
    assert copied.name == done.name  # of the one fit that both have
    copied.fit(fitted[0], loss(), data(20))
    assert copied.name != done.name and copied.event.events[0].events[0].count == 6


@pytest.mark.parametrize("damage", [b"", b"not a file of ours", None])
def test_damaged_files_are_told(tmp_path, fitted, damage):
    path = tmp_path / "scales.npz"
    fitted[1].save(path)
    path.write_bytes(path.read_bytes()[:-200] if damage is None else damage)
    with pytest.raises(ValueError, match="is damaged, or not a file that PrivateScales"):
        PrivateScales.load(path)


def test_numbers_that_are_no_scales_are_told(tmp_path, fitted):
    scales = PrivateScales(noise_multiplier=8.0, count_noise=5.0)
    scales.clip_, scales.names_, scales._coordinates = 1.0, ["w"], 3
    scales._fits.begin()
    for bad in (np.nan, 0.0, -1.0, np.inf):
        scales.shapes_ = [np.float32([1.0, bad])]
        scales.save(tmp_path / "scales.npz")
        with pytest.raises(ValueError, match="is damaged"):
            PrivateScales.load(tmp_path / "scales.npz")


def test_bad_arguments_are_named(fitted):
    model, _ = fitted
    scales = PrivateScales(noise_multiplier=8.0, count_noise=5.0)
    for name, value in (("slice_size", 0), ("gradient_path", "fast")):
        with pytest.raises(ValueError, match=f"`{name}`"):
            scales.fit(model, loss(), data(20), **{name: value})
    for name in ("noise_multiplier", "count_noise"):
        with pytest.raises(ValueError, match=f"`{name}`"):
            PrivateScales(**{"noise_multiplier": 1.0, "count_noise": 1.0, name: -1.0})
    with pytest.raises(ValueError, match="`settings` must be a `Method`"):
        PrivateScales(noise_multiplier=1.0, count_noise=1.0, settings={"rounds": 2})
    with pytest.raises(ValueError, match="no scales yet"):
        scales.save("nowhere")
    with pytest.raises(ValueError, match="no scales yet"):
        scales.for_training(1.0, 10)
    assert scales._fits.count == 0  # nothing of this has looked at the data


@pytest.mark.parametrize("name", ["noise_multiplier", "count_noise", "settings"])
def test_what_was_asked_cannot_be_made_cheaper_afterwards(name):
    scales = PrivateScales(noise_multiplier=8.0, count_noise=5.0)
    with pytest.raises(AttributeError):
        setattr(scales, name, 1e6)
