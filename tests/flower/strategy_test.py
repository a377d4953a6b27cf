"""Tests of `PrivateStrategy`: the query's numbers, clients who move the sum by 1 at most, and nothing else gets out."""

import functools
import itertools
import logging

import numpy as np
import pytest
import scipy.stats

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'adaclip-tf[flower]'")

import tensorflow as tf
from flwr.app import ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp import strategy as strategies

from adaclip_tf import core, flower, query
from examples.federated.grid import InProcessGrid
from tests.flower import federation
from tests.flower.federation import ADACLIP, MODEL, RULES, SHAPES, flat, one_round, private

SPECS = [tf.TensorSpec(shape, tf.float32, name) for name, shape in zip(MODEL, SHAPES)]


# ---------------------------------------------------------------------------------------------------
# The same numbers as record by record.


QUICK = [
    ("adaclip", "server"),
    ("adaclip", "client"),
    ("quantile", "client"),
    ("learnt scales, preconditioned", "server"),
]
SLOW = [pair for pair in itertools.product(RULES, ("server", "client")) if pair not in QUICK]


@pytest.mark.parametrize("name,clipping", [*QUICK, *[pytest.param(*pair, marks=pytest.mark.slow) for pair in SLOW]])
def test_the_numbers_are_those_of_the_query_record_by_record(name, clipping):
    """Three rounds with the same draws of noise: messages, mods and strategies add nothing of their own."""
    rule, clients = RULES[name], 6
    strategy = private(rule, noise_multiplier=0.7, clients=clients, clipping=clipping, seed=3)
    dp_query = query.ClippedSumQuery(rule, SPECS, 0.7, float(clients), seed=3)
    state, model = dp_query.initial_global_state(), dict(MODEL)
    client = federation.trains
    if clipping == "client":
        client = _with_mod(flower.clipping_mod(rule))
    for _ in range(3):
        params, sample = dp_query.derive_sample_params(state), dp_query.initial_sample_state()
        for node in range(1, clients + 1):
            sample = dp_query.accumulate_record(params, sample, list(federation.change_of(node).values()))
        noised, state, _ = dp_query.get_noised_result(sample, state)
        direction = rule.direction(state.rule_state, [total / clients for total in noised])
        expected = {key: model[key] + step.numpy() for key, step in zip(model, direction)}
        model, metrics = one_round(strategy, client, clients, model)
        np.testing.assert_allclose(
            flat(model), flat(expected), rtol=1e-4, atol=1e-5 * (1 + np.max(np.abs(flat(expected))))
        )
        learnt = [np.ravel(leaf) for leaf in tf.nest.flatten(strategy.rule_state)]
        truth = [np.ravel(leaf) for leaf in tf.nest.flatten(state.rule_state)]
        for ours, theirs in zip(learnt, truth):
            np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-6)
    told = dp_query.derive_metrics(state)
    assert metrics["noise_norm"] == pytest.approx(float(told["noise_norm"]), rel=1e-3)


def _with_mod(mod, client=federation.trains):
    return lambda message, context: mod(message, context, client)


def test_the_servers_step_is_the_wrapped_strategys():
    """FedAdam on the private mean by hand: m = 0.1 g, v = 0.01 g^2, one bias-corrected step."""
    options = {"eta": 0.1, "beta_1": 0.9, "beta_2": 0.99, "tau": 1e-3}
    plain, _ = one_round(private())
    mean = {name: plain[name] - array for name, array in MODEL.items()}
    stepped, _ = one_round(private(strategy=strategies.FedAdam(**options)))
    rate = 0.1 * np.sqrt(1 - 0.99**2) / (1 - 0.9**2)  # Flower counts one round more
    for name, g in mean.items():
        expected = MODEL[name] + rate * 0.1 * g / (np.sqrt(0.01 * g**2) + 1e-3)
        np.testing.assert_allclose(stepped[name], expected, rtol=1e-4)
        assert stepped[name].dtype == np.float32


@pytest.mark.parametrize("make", [strategies.FedAvgM, strategies.FedYogi, strategies.FedMedian])
def test_other_strategies_can_be_wrapped(make):
    model, _ = one_round(private(strategy=make()))
    assert all(np.all(np.isfinite(array)) for array in model.values())
    assert any(np.any(model[name] != array) for name, array in MODEL.items())


def test_what_a_strategy_tells_its_clients_reaches_them():
    seen = []

    def client(message, context):
        seen.append(message.content["config"])
        return federation.trains(message, context)

    one_round(private(strategy=strategies.FedProx(proximal_mu=0.3)), client)
    assert len(seen) == 4 and all(config["proximal-mu"] == 0.3 and config["server-round"] == 1 for config in seen)


def test_a_strategy_with_an_aggregation_of_metrics_of_its_own_is_not_asked_for_it():
    def own(contents, key):
        raise AssertionError("there are no metrics")

    wrapped = strategies.FedAvg(train_metrics_aggr_fn=own)
    one_round(private(strategy=wrapped))
    assert wrapped.train_metrics_aggr_fn is own


# ---------------------------------------------------------------------------------------------------
# One client moves the sum by 1 at most, whatever it does, and no round is stopped.


def _sent(message):
    return federation.arrays_of(message.content["arrays"])


def _with(message, **changed):
    return federation.answer(message, {**_sent(message), **changed})


BAD = {
    "nothing": lambda message: [],
    "an error": lambda message: [Message(Error(code=2, reason="no memory"), reply_to=message)],
    "no records": lambda message: [Message(RecordDict(), reply_to=message)],
    "NaN": lambda message: [_with(message, bias=np.array([np.nan, 1.0], np.float32))],
    "infinity": lambda message: [_with(message, bias=np.array([np.inf, 1.0], np.float32))],
    "a huge change": lambda message: [_with(message, bias=np.array([1e12, 1.0], np.float32))],
    "a change beyond float32": lambda message: [_with(message, bias=np.array([1e300, 1.0]))],
    "other shapes": lambda message: [_with(message, bias=np.ones(3, np.float32))],
    "shapes that broadcast": lambda message: [_with(message, bias=np.ones(1, np.float32))],
    "whole numbers": lambda message: [_with(message, bias=np.ones(2, np.int64))],
    "words": lambda message: [_with(message, bias=np.array(["a", "b"]))],
    "one array more": lambda message: [_with(message, extra=np.ones(2, np.float32))],
    "one array less": lambda message: [federation.answer(message, {"bias": MODEL["bias"]})],
    "two records of arrays": lambda message: [
        Message(RecordDict({"a": federation.record(MODEL), "b": federation.record(MODEL)}), reply_to=message)
    ],
    "the same twice": lambda message: [federation.trains(message, _Context(5)) for _ in range(2)],
    "two answers": lambda message: [_with(message, bias=MODEL["bias"] + c) for c in (9.0, -9.0)],
    "a hundred answers": lambda message: [_with(message, bias=MODEL["bias"] + 9.0) for _ in range(100)],
    "all of its examples": lambda message: [
        federation.answer(message, {**_sent(message), "bias": MODEL["bias"] + 9.0}, {"num-examples": 10**9})
    ],
}


class _Context:
    def __init__(self, node_id):
        self.node_id = node_id


def _summed(rule, bad, clipping="server", spoil=lambda replies: replies):
    """What all clients add up to, in units of 1, with client 5 as `bad` has it; None leaves client 5 out."""
    strategy = private(rule, clients=5, clipping=clipping)
    grid = InProcessGrid(federation.trains, 5)
    messages = strategy.configure_train(1, federation.record(MODEL), ConfigRecord(), grid)
    replies = []
    for message in messages:
        node = message.metadata.dst_node_id
        client = federation.trains if clipping == "server" else _with_mod(flower.clipping_mod(rule))
        if node < 5:
            own = Message(
                RecordDict(message.content), dst_node_id=node, message_type="train", group_id=message.metadata.group_id
            )
            replies.append(client(own, _Context(node)))
        elif bad is not None:
            replies += bad(message)
    total = []
    strategy._progress.sum.publish, publish = (
        lambda t, s: (total.extend(t), publish(t, s))[1],
        (strategy._progress.sum.publish),
    )
    strategy.aggregate_train(1, spoil(replies))
    return flat(total)


@functools.cache
def _without_it(rule, clipping="server"):
    return _summed(RULES[rule], None, clipping)


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("rule", [pytest.param("adaclip", marks=pytest.mark.slow), "quantile"])
def test_a_client_moves_the_sum_by_one_at_most_and_stops_no_round(name, rule):
    # It answers before all others, and theirs count all the same.
    moved = np.linalg.norm(_summed(RULES[rule], BAD[name], spoil=lambda replies: replies[::-1]) - _without_it(rule))
    assert moved <= 1.0 + 1e-12
    counts = {"a huge change", "the same twice", "two answers", "a hundred answers", "all of its examples"}
    assert (moved > 0.1) == (name in counts), moved


def _clipped(statistics=True, **changed):
    def answers(message):
        records = {
            "adaclip.clipped": federation.record({**{name: np.zeros_like(a) for name, a in MODEL.items()}, **changed})
        }
        if statistics:
            records["adaclip.statistics"] = federation.record({"0": np.array([7.0], np.float32)})
        return [Message(RecordDict(records), reply_to=message)]

    return answers


def test_a_client_that_says_that_it_has_clipped_is_not_believed():
    rule = RULES["quantile"]
    without = _without_it("quantile", "client")
    for bad in (_clipped(), _clipped(bias=np.array([1e12, 0.0]))):
        assert np.linalg.norm(_summed(rule, bad, "client") - without) <= 1.0 + 1e-12
    assert np.linalg.norm(_summed(rule, _clipped(), "client") - without) > 0.99
    no_mod = BAD["all of its examples"]
    for bad in (no_mod, _clipped(False), _clipped(bias=np.array([np.nan, 0.0])), _clipped(bias=np.ones(3))):
        np.testing.assert_array_equal(_summed(rule, bad, "client"), without)


def test_answers_of_other_rounds_and_of_strangers_count_nothing():
    without = _summed(ADACLIP, None)

    def other_round(message):
        stale = Message(message.content, dst_node_id=5, message_type="train", group_id="another/1")
        return [federation.trains(stale, _Context(5))]

    def stranger(message):
        sent = Message(message.content, dst_node_id=77, message_type="train", group_id=message.metadata.group_id)
        return [federation.trains(sent, _Context(5))]

    for bad in (other_round, stranger):
        np.testing.assert_array_equal(_summed(ADACLIP, bad), without)


def test_the_divisor_is_the_expected_number_whoever_answers():
    """One client of the 4 that are expected, a change of norm 0.3 within the clip: 0.3 / 4, and so with none: 0."""

    def only(answering):
        def client(message, context):
            if context.node_id not in answering:
                raise RuntimeError("killed")
            return _with(message, bias=MODEL["bias"] + np.array([0.3, 0.0], np.float32))

        model, _ = one_round(private(core.FixedClip(0.5)), client)
        return model["bias"] - MODEL["bias"]

    np.testing.assert_allclose(only({2}), [0.075, 0.0], atol=1e-6)
    np.testing.assert_allclose(only({1, 2, 3}), [0.225, 0.0], atol=1e-6)
    np.testing.assert_allclose(only(set()), [0.0, 0.0], atol=1e-6)


# ---------------------------------------------------------------------------------------------------
# What comes out is noised.


def _p_value(draws):
    return scipy.stats.kstest(draws, "norm").pvalue


def test_noise_is_on_the_sum_once():
    """Two rounds: (model - what it is without noise) B / (z C) is N(0, 1); 2/3 and 3/2 of it are not."""
    z, clip, wide = 1.3, 0.5, {"kernel": np.zeros([40, 50], np.float32)}

    def client(message, context):
        return federation.answer(message, {"kernel": _sent(message)["kernel"] + 0.01 * context.node_id})

    plain, _ = one_round(private(core.FixedClip(clip)), client, arrays=wide)
    noisy = private(core.FixedClip(clip), noise_multiplier=z, seed=4)
    models = [one_round(noisy, client, arrays=wide)[0] for _ in range(2)]
    draws = np.array([(flat(model) - flat(plain)) * 4 / (z * clip) for model in models])
    assert _p_value(draws.ravel()) > 0.01
    for factor in (2 / 3, 3 / 2):
        assert _p_value(factor * draws.ravel()) < 1e-3
    assert abs(np.corrcoef(draws)[0, 1]) < 0.1


def test_an_empty_round_is_noised_and_counted():
    strategy = private(noise_multiplier=1.0, num_clients=10**6, clients_per_round=1, delta=1e-7)
    model, metrics = one_round(strategy)
    assert strategy.rounds_done == 1 and 0.0 < metrics["epsilon"] == strategy.epsilon
    assert np.all(flat(model) != flat(MODEL))


def test_without_a_seed_the_noise_is_the_operating_systems():
    np.random.seed(0)
    first, _ = one_round(private(noise_multiplier=1.0))
    np.random.seed(0)
    second, _ = one_round(private(noise_multiplier=1.0))
    assert np.all(flat(first) != flat(second))


def test_nothing_of_the_clients_but_the_noised_sum_gets_out(caplog):
    """Not their metrics, nor how many they were, nor how many examples they have."""
    caplog.set_level(logging.INFO, logger="flwr")
    logging.getLogger("flwr").addHandler(caplog.handler)
    try:
        strategy = private(strategy=strategies.FedAvg(fraction_evaluate=1.0))
        result = strategy.start(InProcessGrid(federation.trains, 4), federation.record(MODEL), num_rounds=2)
    finally:
        logging.getLogger("flwr").removeHandler(caplog.handler)
    assert set(result.train_metrics_clientapp[2]) == {
        "epsilon", "noise_norm", "scale_norm", "std_mean", "std_min", "std_max", "mean_norm"
    }  # fmt: skip
    assert result.evaluate_metrics_clientapp == {}
    text = caplog.text
    assert "secret" not in text and "Sampled" not in text and "Received" not in text
    assert "Round 2 is published: epsilon" in text


def test_evaluation_on_clients_is_opt_in_and_marked():
    def client(message, context):
        if message.metadata.message_type == "train":
            return federation.trains(message, context)
        return Message(RecordDict({"metrics": MetricRecord({"loss": 2.0, "num-examples": 1})}), reply_to=message)

    strategy = private(nonprivate_evaluation=True)
    result = strategy.start(InProcessGrid(client, 4), federation.record(MODEL), num_rounds=1)
    assert dict(result.evaluate_metrics_clientapp[1]) == {"nonprivate/loss": 2.0}


# ---------------------------------------------------------------------------------------------------
# Arguments.


@pytest.mark.parametrize(
    "options,words",
    [
        ({"strategy": "FedAvg"}, "`strategy` must be a `flwr.serverapp.strategy.Strategy`"),
        ({"rule": 0.5}, "`rule` must be a `core.ClippingRule`"),
        (
            {"rule": core.ScaledClip(core.Scales(0.5, [np.ones([2, 1]), np.ones([2])], noise_multiplier=3.0))},
            "a client is the unit",
        ),
        ({"noise_multiplier": -1.0}, "`noise_multiplier`"),
        ({"num_clients": 0}, "`num_clients`"),
        ({"clients_per_round": 2.5}, "`clients_per_round`"),
        ({"clients_per_round": 5}, "at most"),
        ({"delta": 2.0}, "`delta`"),
        ({"target_epsilon": 0.0}, "`target_epsilon`"),
        ({"sampling": "shuffled"}, "`sampling` must be one of 'poisson', 'without_replacement'"),
        ({"clipping": "nobody"}, "`clipping` must be one of 'server', 'client'"),
        ({"accountant": "mine"}, "`accountant`"),
        ({"state": "here.npz"}, "`state` needs a `ledger`"),
        ({"min_clients": 0}, "`min_clients`"),
        ({"sampling": "without_replacement", "min_clients": 3}, "`min_clients` must be at least 4"),
        ({"nonprivate_evaluation": "no"}, "`nonprivate_evaluation`"),
        ({"seed": -1}, "`seed`"),
    ],
)
def test_bad_arguments_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        private(**options)


@pytest.mark.parametrize(
    "model,words",
    [
        ({}, "at least one array"),
        ({"count": np.array([1])}, "'count' is int64"),
        ({"bias": np.array([np.nan])}, "'bias' is not"),
    ],
)
def test_a_model_that_cannot_be_moved_is_refused(model, words):
    with pytest.raises(ValueError, match=words):
        private().start(InProcessGrid(federation.trains, 4), federation.record(model), num_rounds=1)


def test_a_round_is_published_once():
    strategy = private()
    grid = InProcessGrid(federation.trains, 4)
    messages = strategy.configure_train(1, federation.record(MODEL), ConfigRecord(), grid)
    replies = grid.send_and_receive(messages)
    strategy.aggregate_train(1, replies)
    assert strategy.aggregate_train(1, replies) == (None, None)
    assert strategy.rounds_done == 1


def test_a_strategy_that_tells_each_client_something_else_is_refused():
    class Own(strategies.FedAvg):
        def configure_train(self, server_round, arrays, config, grid):
            for message in super().configure_train(server_round, arrays, config, grid):
                content = RecordDict(message.content)
                content["config"] = ConfigRecord({"you": message.metadata.dst_node_id})
                message.content = content
                yield message

    with pytest.raises(ValueError, match="different things to different clients"):
        one_round(private(strategy=Own()))
