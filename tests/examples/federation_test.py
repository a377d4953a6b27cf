"""Tests of the federated simulation: many processes are one, noise comes once, a user is the unit."""

import dataclasses
import math
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

import adaclip_tf
from adaclip_tf import core, query
from examples.common import data
from examples.federated import clients as federation_clients
from examples.federated import federation, report
from examples.federated import tree as federation_tree

STEPS, BATCH, RATE = 2, 3, 0.5
SHAPES = [(3, 2), (2,)]
SPECS = [tf.TensorSpec(shape) for shape in SHAPES]
CLIENTS, WORKERS = 20, 4
NAN, INFINITE, HUGE, LARGE = 5, 6, 7, 8  # clients with such rows; the last has a hundred times the others' rows
ALL = np.arange(CLIENTS)


def make_population():
    rng = np.random.default_rng(3)
    size = rng.integers(1, 6, CLIENTS)
    size[LARGE] = 100 * size[LARGE]
    first = np.cumsum(size) - size
    x = rng.normal(size=(size.sum(), 3)).astype(np.float32)
    for client, value in ((NAN, np.nan), (INFINITE, np.inf), (HUGE, 1e30), (LARGE, 50.0)):
        x[first[client] : first[client] + size[client]] *= value
    y = rng.integers(0, 2, size.sum()).astype(np.int32)
    return federation_clients.Population(ALL, first, size, x, y)


POPULATION = make_population()
WEIGHTS = [np.array([[0.1, -0.2], [0.3, 0.0], [-0.4, 0.2]], np.float32), np.array([0.05, -0.05], np.float32)]


@pytest.fixture(scope="module")
def tree():
    """Two aggregators with two workers each: six processes beside this one."""
    with federation_tree.Tree(
        POPULATION, SHAPES, aggregators=2, workers=WORKERS // 2, steps=STEPS, batch=BATCH, learning_rate=RATE
    ) as made:
        yield made


@pytest.fixture(scope="module")
def site():
    """All clients in this process."""
    return federation_clients.Site(POPULATION, SHAPES, STEPS, BATCH, RATE)


def broadcast(clients=ALL, round_number=0, center=0.0, scale=1.0, weights=WEIGHTS):
    a, b = ([np.full(shape, value, np.float32) for shape in SHAPES] for value in (center, scale))
    return federation_clients.Broadcast(weights, a, b, np.asarray(clients), round_number)


def flat(tensors):
    return np.concatenate([np.ravel(tensor) for tensor in tensors])


def numpy_record(client, round_number, population=POPULATION):
    """A client's softmax regression once more, row by row in NumPy."""
    (kernel, bias), start = (w.astype(np.float64) for w in WEIGHTS), round_number * STEPS * BATCH
    first, size = population.first[client], population.size[client]
    for step in range(STEPS):
        rows = [first + (start + step * BATCH + k) % size for k in range(BATCH)]
        slopes = []
        for row in rows:
            x, label = population.x[row].astype(np.float64), population.y[row]
            scores = np.exp(x @ kernel + bias - np.max(x @ kernel + bias))
            error = scores / scores.sum() - np.eye(2)[label]
            slopes.append((np.outer(x, error), error))
        kernel = kernel - RATE * np.mean([slope[0] for slope in slopes], axis=0)
        bias = bias - RATE * np.mean([slope[1] for slope in slopes], axis=0)
    return [(kernel - WEIGHTS[0]).astype(np.float32), (bias - WEIGHTS[1]).astype(np.float32)]


# ---------------------------------------------------------------------------------------------------
# Clients.


def test_dealing_gives_every_example_to_one_client():
    loaded = data.load("digits")
    tagged = np.arange(len(loaded.y_train), dtype=np.float32)[:, None]
    population = federation_clients.deal(tagged, loaded.y_train, 1000)
    assert sorted(population.x[:, 0]) == list(tagged[:, 0])
    np.testing.assert_array_equal(population.y, loaded.y_train[population.x[:, 0].astype(int)])
    assert population.size.min() >= 1 and population.size.max() >= 5 and population.size.sum() == len(population.y)
    many = np.flatnonzero(population.size > 1)
    labels = [set(population.y[population.first[k] :][: population.size[k]]) for k in many]
    assert np.mean([len(held) == 1 for held in labels]) > 0.9  # a random deal of 2 rows: 0.1


def test_dealing_two_pieces_where_there_is_enough(rng):
    y = np.sort(rng.integers(0, 10, 5000))
    population = federation_clients.deal(rng.normal(size=(5000, 4)), y, 100)
    labels = [len(set(population.y[first:][:size])) for first, size in zip(population.first, population.size)]
    assert 1.5 < np.mean(labels) < 3.0
    assert population.size.max() > 5 * population.size.min()


@pytest.mark.parametrize("clients", [0, 11])
def test_too_many_clients_are_refused(clients):
    with pytest.raises(ValueError, match="`num_clients` must be from 1 to the number of examples, 10"):
        federation_clients.deal(np.zeros([10, 2]), np.zeros(10), clients)


def test_a_part_holds_its_own_clients_rows_and_no_others():
    parts = [POPULATION.part(index, 3) for index in range(3)]
    assert sorted(np.concatenate([part.ids for part in parts])) == list(ALL)
    assert sum(len(part.y) for part in parts) == len(POPULATION.y)
    for part in parts:
        for client, first, size in zip(part.ids, part.first, part.size):
            rows = slice(POPULATION.first[client], POPULATION.first[client] + POPULATION.size[client])
            np.testing.assert_array_equal(part.x[first : first + size], POPULATION.x[rows])


@pytest.mark.parametrize("client", [0, 1, 12])
def test_a_record_is_numpys(client, site):
    for round_number in (0, 1, 7):
        total = site.collect(broadcast([client], round_number, scale=100.0))
        for ours, truth in zip(total, numpy_record(client, round_number)):
            np.testing.assert_allclose(100.0 * ours, truth, atol=1e-6)


def test_records_of_a_model_with_a_hidden_layer(rng):
    """One client after another, each with weights of its own: the stacked computation mixes nobody."""
    healthy = federation_clients.Population(*POPULATION).part(1, 10)
    weights = [w + 0.1 for w in federation_clients.initial_weights(3, [4], 2, seed=1)]
    shapes = [w.shape for w in weights]
    site = federation_clients.Site(healthy, shapes, STEPS, BATCH, RATE)
    one = [np.ones(shape, np.float32) for shape in shapes]
    total = site.collect(federation_clients.Broadcast(weights, [0 * b for b in one], [9 * b for b in one], ALL, 2))
    expected = [np.zeros(shape) for shape in shapes]
    for first, size in zip(healthy.first, healthy.size):
        local = [tf.Variable(w) for w in weights]
        for step in range(STEPS):
            rows = [first + (2 * STEPS * BATCH + step * BATCH + k) % size for k in range(BATCH)]
            with tf.GradientTape() as tape:
                hidden = tf.nn.relu(tf.matmul(healthy.x[rows], local[0]) + local[1])
                scores = tf.matmul(hidden, local[2]) + local[3]
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(healthy.y[rows], scores))
            for variable, gradient in zip(local, tape.gradient(loss, local)):
                variable.assign_sub(RATE * gradient)
        expected = [e + (v.numpy() - w) / 9 for e, v, w in zip(expected, local, weights)]
    assert len(healthy.ids) == 2
    for ours, truth in zip(total, expected):
        np.testing.assert_allclose(ours, truth, atol=1e-6)


# ---------------------------------------------------------------------------------------------------
# A user is the unit.


@pytest.mark.parametrize("scale", [1e-3, 0.1, 1.0])
def test_no_client_moves_the_sum_by_more_than_one(scale, site):
    """Whatever its rows: NaN, infinite, huge, or a hundred times as many as others have."""
    for round_number in (0, 3):
        everybody = flat(site.collect(broadcast(ALL, round_number, 0.01, scale)))
        assert np.isfinite(everybody).all()
        for client in ALL:
            others = flat(site.collect(broadcast(np.setdiff1d(ALL, [client]), round_number, 0.01, scale)))
            moved = np.linalg.norm(everybody - others)
            assert moved <= 1 + 1e-5
            alone = flat(site.collect(broadcast([client], round_number, 0.01, scale)))
            np.testing.assert_allclose(everybody - others, alone, atol=1e-5)
            if client in (NAN, INFINITE):
                assert moved == 0.0
            if client == LARGE and scale < 1.0:
                assert moved > 0.9  # clipped, and counted


def test_a_user_with_more_rows_counts_no_more(site):
    """The same client with each of its rows a hundred times over: the same record, not a hundred of them."""
    part = POPULATION.part(2, CLIENTS)
    more = part._replace(size=100 * part.size, x=np.concatenate([part.x] * 100), y=np.concatenate([part.y] * 100))
    large = federation_clients.Site(more, SHAPES, STEPS, BATCH, RATE)
    alone = flat(site.collect(broadcast([2], 5, 0.0, 0.5)))
    np.testing.assert_allclose(flat(large.collect(broadcast(ALL, 5, 0.0, 0.5))), alone, atol=1e-6)


def test_a_site_without_clients_has_the_empty_state():
    nobody = federation_clients.Site(POPULATION.part(CLIENTS, CLIENTS + 1), SHAPES, STEPS, BATCH, RATE)
    assert not flat(nobody.collect(broadcast())).any()


# ---------------------------------------------------------------------------------------------------
# Many processes.


def test_arrays_survive_the_trip_and_programs_do_not():
    sent = {"weights": [np.arange(6, dtype=np.float32).reshape(2, 3), np.float64(2.5)], "clients": [np.zeros(0, int)]}
    got = federation_tree.unpack(federation_tree.pack(**sent))
    assert list(got) == ["weights", "clients"]
    for one, other in zip(tf.nest.flatten(sent), tf.nest.flatten(got)):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype
    with pytest.raises(ValueError, match="allow_pickle=False"):
        federation_tree.unpack(federation_tree.pack(weights=[np.array([print], object)]))


ROUNDS = {
    "everybody": ALL,
    "some": [0, 3, 4, 5, 9, 14],
    "one worker's": [1, 5, 9, 13],
    "only one that counts as zero": [NAN],
    "nobody": [],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ROUNDS)
def test_the_tree_adds_up_to_what_one_process_does(name, tree):
    """The whole round: NumPy's records through the query, one by one, against six processes."""
    choices = (core.AdaClip(core.MomentEstimator(h2=1.0, initial_std=0.2)), core.FixedClip(0.5))
    for choice in choices:
        one, many = (query.ClippedSumQuery(choice, SPECS, 0.0, 6.0) for _ in range(2))
        one_state, many_state = one.initial_global_state(), many.initial_global_state()
        for round_number in range(3):  # after the first, AdaCliP's a and b differ between coordinates
            params = one.derive_sample_params(one_state)
            sample = one.initial_sample_state()
            for client in ROUNDS[name]:
                with np.errstate(all="ignore"):
                    record = numpy_record(client, round_number)
                sample = one.accumulate_record(params, sample, record)
            result, one_state, _ = one.get_noised_result(sample, one_state)

            sent = many.derive_sample_params(many_state)
            message = federation_clients.Broadcast(
                WEIGHTS, sent.center, sent.scale, np.array(ROUNDS[name], int), round_number
            )
            collected = tree.collect(message)
            np.testing.assert_allclose(flat(collected), flat(sample), atol=1e-6 * max(1, len(ROUNDS[name])))
            merged, many_state, _ = many.get_noised_result(collected, many_state)
            np.testing.assert_allclose(flat(merged), flat(result), atol=1e-5)


@pytest.mark.slow
def test_the_processes_are_processes(tree):
    pids = tree.pids
    assert set(pids) == {"aggregator 0", "aggregator 1", "worker 0", "worker 1", "worker 2", "worker 3"}
    assert len({*pids.values(), os.getpid()}) == 7


def p_value(draws):
    return scipy.stats.kstest(draws, "norm").pvalue


@pytest.mark.slow
def test_noise_is_on_the_sum_once(tree):
    """80 rounds through the tree, a = 0 and b = 1: W minus the sum is N(0, z^2), not that of a worker or of each."""
    z = 1.3
    noisy = query.ClippedSumQuery(core.FixedClip(1.0), SPECS, z, 6.0, seed=8)
    total = flat(tree.collect(broadcast()))
    draws = []
    for _ in range(80):
        state = noisy.initial_global_state()
        params = noisy.derive_sample_params(state)
        sent = federation_clients.Broadcast(WEIGHTS, params.center, params.scale, ALL, 0)
        result, _, _ = noisy.get_noised_result(tree.collect(sent), state)
        draws.append((flat(result) - total) / z)
    draws = np.array(draws)
    assert p_value(draws.ravel()) > 0.01
    for factor in (math.sqrt(WORKERS), 1 / math.sqrt(WORKERS), math.sqrt(2), 1 / math.sqrt(2)):
        assert p_value(factor * draws.ravel()) < 1e-3
    assert abs(np.corrcoef(draws[:-1].ravel(), draws[1:].ravel())[0, 1]) < 0.1


@pytest.mark.slow
def test_a_worker_that_dies_is_told_and_nothing_is_published():
    with federation_tree.Tree(
        POPULATION, SHAPES, aggregators=1, workers=1, steps=STEPS, batch=BATCH, learning_rate=RATE
    ) as small:
        os.kill(small.pids["worker 0"], signal.SIGKILL)
        with pytest.raises(RuntimeError, match="Nothing of this round was published"):
            small.collect(broadcast())


# ---------------------------------------------------------------------------------------------------
# The server.

PLAN = federation.Plan(users=200, users_per_round=20, rounds=40, target_epsilon=3.0, delta=1e-3)


def zeros(message):
    del message
    return [np.zeros(shape, np.float32) for shape in SHAPES]


def test_users_are_sampled_each_with_probability_q():
    def samples(seed, plan=PLAN):
        seen = []
        quiet = query.AdaClipSumQuery(SPECS, 0.0, 20.0)
        federation.train(quiet, lambda sent: seen.append(sent) or zeros(sent), WEIGHTS, plan, 1.0, seed=seed)
        return seen

    seen = samples(seed=1)
    assert [sent.round_number for sent in seen] == list(range(40))
    counts = [len(sent.clients) for sent in seen]
    assert len(set(counts)) > 5  # not a fixed number
    assert all(len(set(sent.clients)) == len(sent.clients) for sent in seen)
    assert abs(sum(counts) - 800) < 4 * math.sqrt(8000 * 0.1 * 0.9)
    per_user = np.bincount(np.concatenate([sent.clients for sent in seen]), minlength=200)
    expected = scipy.stats.binom(40, 0.1)
    assert abs(np.var(per_user) / expected.var() - 1) < 0.5
    other = [list(samples(None, dataclasses.replace(PLAN, rounds=1))[0].clients) for _ in range(2)]
    assert other[0] != other[1]  # the operating system's entropy


def test_the_mean_is_over_the_expected_number_and_momentum_is_the_servers():
    """Three users where 20 are expected, each with a record of 0.5 in one coordinate: steps of 1.5 / 20."""
    plan = federation.Plan(users=200, users_per_round=20, rounds=3, momentum=0.5)
    quiet = query.ClippedSumQuery(core.FixedClip(1.0), SPECS, 0.0, 20.0)

    def collect(message):
        total = zeros(message)
        total[1][0] = 3 * 0.5
        return total

    weights, _ = federation.train(quiet, collect, WEIGHTS, plan, learning_rate=2.0)
    np.testing.assert_allclose(weights[1] - WEIGHTS[1], [2.0 * 0.075 * (1 + 1.5 + 1.75), 0.0], rtol=1e-5)
    np.testing.assert_array_equal(weights[0], WEIGHTS[0])


def test_what_is_collected_gets_noise_before_anything_is_made_of_it():
    """With nothing to learn from, the model still moves by the noise, whose size is z C / B."""
    noisy = query.ClippedSumQuery(core.FixedClip(0.5), [tf.TensorSpec([4000])], 2.0, 20.0, seed=1)
    plan = federation.Plan(users=200, users_per_round=20, rounds=1)
    start = [np.zeros(4000, np.float32)]
    weights, _ = federation.train(noisy, lambda sent: start, start, plan, learning_rate=1.0)
    assert p_value(weights[0] / (2.0 * 0.5 / 20.0)) > 0.01
    assert p_value(weights[0] / (2.0 * 0.5 / 20.0) * 1.5) < 1e-6


@pytest.fixture(scope="module")
def compared():
    """(plan, results, what was reported): all methods once, on digits, with real processes."""
    plan = federation.Plan(rounds=20, target_epsilon=4.0, aggregators=1, workers=1)
    reported = []

    def start_run(label, run):
        return lambda done, epsilon: reported.append((label, run, done, epsilon))

    return plan, federation.compare(data.load("digits"), plan, 1, seed=5, start_run=start_run), reported


def test_epsilon_is_the_accountants_for_users(compared):
    plan, results, reported = compared
    arguments = {"delta": 1e-4, "num_examples": 1000, "batch_size": 100}
    for done in (7, 20):
        truth = adaclip_tf.epsilon(noise_multiplier=plan.noise_multiplier, steps=done, **arguments)
        for label in ("AdaCliP", "fixed clip"):
            (told,) = [epsilon for *which, epsilon in reported if which == [label, 0, done]]
            assert told == pytest.approx(truth, rel=1e-9)
    assert results["adaclip"][0].epsilon == results["fixed_clip"][0].epsilon == pytest.approx(truth, rel=1e-9)
    assert 3.9 < truth <= 4.0
    assert results["not_private"][0].epsilon == math.inf


def test_it_learns(compared):
    _, results, _ = compared
    assert results["not_private"][0].accuracy > 0.85
    assert results["fixed_clip"][0].accuracy > 0.7
    assert results["adaclip"][0].accuracy > 0.7


def test_the_check_finds_what_is_wrong(compared):
    plan, results, _ = compared
    assert federation.check(results, plan, 0.5).startswith("ok: every run learnt")
    with pytest.raises(RuntimeError, match="expected more than 1"):
        federation.check(results, plan, 1.0)
    spent = {"adaclip": [results["adaclip"][0]._replace(epsilon=4.01)]}
    with pytest.raises(RuntimeError, match=r"adaclip spent epsilon 4\.0100 of 4"):
        federation.check(spent, plan, 0.5)


def test_the_report_is_written_whole(compared, tmp_path):
    plan, results, _ = compared
    paths = report.Paths.folder(str(tmp_path / "new"))
    report.write(results, plan, "digits", paths, "python -m examples.federated", dimension=650)
    page = paths.page.read_text()
    for name, method in federation.methods("digits").items():
        (row,) = [line for line in page.splitlines() if line.startswith(f"| {method.label} |")]
        assert f"| {results[name][0].accuracy:.3f} |" in row
    assert "Written by `python -m examples.federated`" in page and report.TRUST in page
    assert '"epsilon": null' in paths.results.read_text()


@pytest.mark.slow
def test_the_program_runs_and_checks_itself(tmp_path):
    command = [sys.executable, "-m", "examples.federated", "--seeds=1", f"--output={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    assert "ok: every run learnt, each private one within epsilon 2 per user" in done.stdout
    assert "round 50 of 100, epsilon per user" in done.stdout
    assert report.TRUST in done.stdout
    assert (tmp_path / "federated.json").exists()
