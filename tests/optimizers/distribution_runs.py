"""What the tests of distribution run in processes of their own: devices and clusters are set up once per process.

    python -m tests.optimizers.distribution_runs mirrored RESULT.json RUN...        replicas on logical CPUs
    python -m tests.optimizers.distribution_runs multi_worker FOLDER RUN...         a worker, told by TF_CONFIG which

A RUN is `name` or `name:key=value,key=value`, a function of this module with JSON arguments. What each returns is
written as {RUN: result}; of several workers, worker i writes FOLDER/i.json.
"""

import contextlib
import functools
import hashlib
import json
import os
import pathlib
import signal
import sys
import tempfile

import numpy as np
import tensorflow as tf

import adaclip_tf
import adaclip_tf.optimizers.replicas
from adaclip_tf._internal import keras
from adaclip_tf.data import sampling
from examples import launch
from examples.common import workdirs
from tests import models

BATCH, EXAMPLES = 7, 70 + 2  # does not divide by 2, 3 or 4; the last batch has two examples
NOISE_SHAPE, NOISE_MULTIPLIER, NOISE_CLIP = (60, 50), 1.3, 0.7


@functools.cache  # a second one over the same devices would take the first one's collective keys
def strategy_over(replicas):
    """MirroredStrategy on so many logical CPUs, or no strategy for 1, or the cluster's for None."""
    if replicas is None:
        return tf.distribute.MultiWorkerMirroredStrategy()
    if replicas == "one_device":
        return tf.distribute.OneDeviceStrategy("CPU:1")
    return None if replicas == 1 else tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])


def scope(strategy):
    return strategy.scope() if strategy else contextlib.nullcontext()


class Digests(tf.keras.callbacks.Callback):
    """After every step, a hash of all weights and state, of each replica in this process."""

    def __init__(self):
        super().__init__()
        self.steps = []

    def on_train_batch_end(self, batch, logs=None):
        variables = [*self.model.weights, *self.model.optimizer.variables]
        replicas = zip(*[_local(variable) for variable in variables])
        self.steps.append([hashlib.sha256(b"".join(v.tobytes() for v in values)).hexdigest() for values in replicas])


def _local(variable):
    """The values of a variable on the replicas of this process."""
    variable = keras.native(variable)
    strategy = variable.distribute_strategy if hasattr(variable, "values") else None
    return [v.numpy() for v in (strategy.experimental_local_results(variable) if strategy else [variable])]


def batches(size=BATCH):
    return tf.data.Dataset.from_tensor_slices(models.data(EXAMPLES)).batch(size)


def dense_model():
    tf.keras.utils.set_random_seed(1)
    return models.mlp()


def embedding_model():
    """Has a variable without a ghost rule (a weight that is used twice)."""
    tf.keras.utils.set_random_seed(1)
    shared = tf.keras.layers.Dense(models.FEATURES, activation="tanh")
    inputs = tf.keras.Input((models.FEATURES,))
    return tf.keras.Model(inputs, tf.keras.layers.Dense(models.CLASSES)(shared(shared(inputs))))


def train(
    replicas=None,
    path="auto",
    parts=1,
    microbatches=None,
    z=0.0,
    model="dense",
    epochs=2,
    batch=BATCH,
    schedule=False,
    steps_per_execution=1,
    rule="adaclip",
    inner=False,
    **more,
):
    """Weights, state and metrics after training; a digest of all replicas after every step."""
    strategy = strategy_over(replicas)
    make, own = {
        "adaclip": (adaclip_tf.DPAdaClipSGD, {"initial_std": 0.1, "h2": 1.0, "gamma": 0.5}),
        "quantile": (adaclip_tf.DPQuantileClipSGD, {"expected_batch_size": BATCH}),
        "per_layer": (adaclip_tf.DPPerLayerClipSGD, {"l2_norm_clip": 0.3}),
    }[rule]
    with scope(strategy):
        net = {"dense": dense_model, "embedding": embedding_model}[model]()
        rate = tf.keras.optimizers.schedules.ExponentialDecay(0.5, 3, 0.9) if schedule else 0.5
        if inner:
            make = {"adaclip": adaclip_tf.DPAdaClip}[rule]
            extras = {"use_ema": True, "clipnorm": 0.1} if inner == "extras" else {}
            update, options = (tf.keras.optimizers.SGD(rate, momentum=0.5, weight_decay=0.01, **extras),), {}
        else:
            update, options = (rate,), {"momentum": 0.5, "weight_decay": 0.01}
        optimizer = make(
            *update,
            **options,
            noise_multiplier=z,
            gradient_path=path,
            accumulation_steps=parts,
            num_microbatches=microbatches,
            nonprivate_metrics=True,
            seed=3,
            **own,
            **more,
        )
        net.compile(optimizer, models.per_example_loss(), steps_per_execution=steps_per_execution)
    optimizer.build(net.trainable_variables)  # a step that makes variables is traced twice, on each replica
    dataset = batches(batch)
    digests = Digests()
    net.fit(dataset, epochs=epochs, verbose=0, callbacks=[digests])
    metrics = {**optimizer.private_metrics(), **optimizer.nonprivate_metrics()}
    return {
        "values": _values(net),
        "noised_steps": int(optimizer.noised_steps.numpy()),
        "metrics": {name: float(value) for name, value in metrics.items()},
        "names": sorted(optimizer.private_state()),
        "digests": digests.steps,
    }


def moves(replicas, to):
    """A checkpoint of so many replicas, restored on others: weights and state before and after one more epoch."""
    with tempfile.TemporaryDirectory() as folder:
        path, seen = f"{folder}/checkpoint", []
        for number in (replicas, to):
            with scope(strategy_over(number)):
                net = dense_model()
                optimizer = adaclip_tf.DPAdaClipSGD(0.5, momentum=0.5, noise_multiplier=0.0, initial_std=0.1, h2=1.0)
                net.compile(optimizer, models.per_example_loss())
            optimizer.build(net.trainable_variables)
            dataset = batches()
            if seen:
                tf.train.Checkpoint(model=net).restore(path)
                seen.append(_values(net))
            net.fit(dataset, verbose=0)
            if not seen:
                tf.train.Checkpoint(model=net).write(path)
                seen.append(_values(net))
                net.fit(dataset, verbose=0)
            seen.append(_values(net))
    names = ("saved", "went_on", "restored", "restored_and_went_on")
    return dict(zip(names, seen))


def _values(net):
    # But for the phase, which is another one in every run.
    state = [variable for variable in net.optimizer.variables if "phase" not in variable.name]
    return [variable.numpy().ravel().tolist() for variable in [*net.weights, *state]]


def noise(replicas=None, seed=None, steps=4, parts=1, path="auto"):
    """The noise N on the global sum, step by step: all gradients are 0, so weights move by -lr C N / B."""
    strategy = strategy_over(replicas)
    learning_rate, size = 0.5, 8
    with scope(strategy):
        net = tf.keras.Sequential([tf.keras.layers.Dense(NOISE_SHAPE[1], use_bias=False, input_shape=NOISE_SHAPE[:1])])
        optimizer = adaclip_tf.DPFixedClipSGD(
            learning_rate,
            l2_norm_clip=NOISE_CLIP,
            noise_multiplier=NOISE_MULTIPLIER,
            expected_batch_size=size,
            accumulation_steps=parts,
            gradient_path=path,
            seed=seed,
        )
        net.compile(optimizer, tf.keras.losses.MeanSquaredError(reduction="none"))
    optimizer.build(net.trainable_variables)
    weights = [net.get_weights()[0]]
    note = tf.keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: weights.append(net.get_weights()[0])
    )
    examples = size // parts * steps * parts
    data = tf.zeros([examples, NOISE_SHAPE[0]]), tf.zeros([examples, NOISE_SHAPE[1]])
    net.fit(tf.data.Dataset.from_tensor_slices(data).batch(size // parts), verbose=0, callbacks=[note])
    moved = np.diff(np.array(weights, np.float64), axis=0) * -size / (learning_rate * NOISE_CLIP)
    keys = [source._state.numpy()[1:].tolist() for source in optimizer.private_step.noise_sources._made.values()]
    return {"noise": np.round(moved.reshape(len(moved), -1), 5).tolist(), "keys": keys}


def sent(replicas, steps=2):
    """The shapes of all that replicas send in a step, with and without a public batch size, and with accumulation."""
    strategy = strategy_over(replicas)
    shapes = {}
    add_up = adaclip_tf.optimizers.replicas.add_up
    for name, options in {
        "public size": {"expected_batch_size": 8},
        "unknown size": {},
        "accumulation": {"expected_batch_size": 16, "accumulation_steps": 2},
    }.items():
        noted = shapes.setdefault(name, [])

        def note(tensors, noted=noted):
            noted.append([tensor.shape.as_list() for tensor in tensors])
            return add_up(tensors)

        adaclip_tf.optimizers.replicas.add_up = note
        with strategy.scope():
            net = models.softmax_regression()
            net.compile(adaclip_tf.DPAdaClipSGD(noise_multiplier=1.0, **options), models.per_example_loss())
        net.optimizer.build(net.trainable_variables)  # as in `train`
        net.fit(tf.data.Dataset.from_tensor_slices(models.data(8 * steps)).batch(8), verbose=0)
    adaclip_tf.optimizers.replicas.add_up = add_up
    return shapes


def poisson(replicas=None, plain=False, steps=200, parts=1, n=24, q_n=6):
    """Who was drawn, by replica and step."""
    strategy = strategy_over(replicas)
    rows = np.arange(n)
    if plain:
        dataset = strategy.experimental_distribute_dataset(
            sampling.poisson_batches(rows, expected_batch_size=q_n, steps=steps, seed=5, accumulation_steps=parts)
        )
    else:
        dataset = sampling.distributed_poisson_batches(
            strategy, rows, expected_batch_size=q_n, seed=5, accumulation_steps=parts
        )
    iterator = iter(dataset)
    return [
        [part.numpy().tolist() for part in strategy.experimental_local_results(next(iterator))]
        for _ in range(steps * parts)
    ]


def plain_poisson_fails():
    """What a worker says to `poisson_batches`, which only one process may draw."""
    batches = sampling.poisson_batches(np.arange(24), expected_batch_size=6, steps=5)
    try:
        next(iter(strategy_over(None).experimental_distribute_dataset(batches)))
    except tf.errors.NotFoundError as error:
        return str(error)
    return None


def callbacks(replicas=None, folder=None):
    """`fit` on Poisson batches with both callbacks: epsilon, steps, and the files that this process wrote."""
    strategy = strategy_over(replicas)
    with scope(strategy):
        net = models.softmax_regression()
        net.compile(adaclip_tf.DPAdaClipSGD(noise_multiplier=1.0, expected_batch_size=6), models.per_example_loss())
    x, y = models.data(24)
    batches = sampling.distributed_poisson_batches(strategy, (x, y), expected_batch_size=6)
    with tempfile.TemporaryDirectory() as own:
        folder = pathlib.Path(own)  # of this process, to see who writes
        budget = adaclip_tf.PrivacyBudget.of(batches, delta=1e-3, target_epsilon=6.0, statement_path=folder / "privacy")
        board = adaclip_tf.PrivacyTensorBoard(folder / "board", budget=budget, update_freq=2)
        history = net.fit(batches, steps_per_epoch=4, epochs=50, verbose=0, callbacks=[budget, board]).history
        files = sorted({path.name.split(".")[0] for path in folder.rglob("*") if path.is_file()})
    event = adaclip_tf.optimizer_event(net.optimizer, num_examples=24, batch_size=6)
    return {
        "epsilon": budget.epsilon,
        "by_event": adaclip_tf.epsilon_of(event, delta=1e-3),
        "remaining": budget.remaining_steps,
        "history": history["epsilon"],
        "noised_steps": int(net.optimizer.noised_steps.numpy()),
        "files": files,
    }


def refusals(replicas):
    """What is said to what can't be done on several replicas."""
    strategy = strategy_over(replicas)
    x, y = models.data(8)
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)

    def fit(make_model=models.softmax_regression, made_outside=False, data=dataset, compiled=None, **options):
        outside = adaclip_tf.DPAdaClipSGD(noise_multiplier=1.0)
        with strategy.scope():
            net = make_model()
            optimizer = outside if made_outside else adaclip_tf.DPAdaClipSGD(noise_multiplier=1.0, **options)
            net.compile(optimizer, models.per_example_loss(), **(compiled or {}))
        net.fit(data, verbose=0)

    def batch_norm():
        layers = [tf.keras.layers.BatchNormalization(input_shape=(models.FEATURES,)), tf.keras.layers.Dense(3)]
        return tf.keras.Sequential(layers)

    def cross_replica():
        with strategy.scope():
            variable = tf.Variable(1.0)
            adaclip_tf.DPAdaClipSGD(noise_multiplier=1.0).minimize(lambda: variable * tf.ones([2]), [variable])

    class ByReplica(tf.keras.layers.Layer):
        def call(self, inputs):
            replica = tf.distribute.get_replica_context()
            return inputs if replica is None else inputs * (1.0 - 2.0 * tf.cast(_number(replica), tf.float32))

    def frozen(same):
        with strategy.scope():
            shape = (models.FEATURES,)
            net = tf.keras.Sequential([tf.keras.layers.BatchNormalization(input_shape=shape), tf.keras.layers.Dense(3)])
            net.layers[0].trainable = False
            mean = net.layers[0].moving_mean
            for number, copy in enumerate((mean.value if keras.GENERATION == 3 else mean).values):
                copy.assign(tf.fill([models.FEATURES], float(number)))
            if same:  # as the message says
                for variable in net.non_trainable_variables:
                    variable.assign(variable.numpy())
        return net

    cases = {
        "replica": lambda: fit(lambda: tf.keras.Sequential([ByReplica(), tf.keras.layers.Dense(3)])),
        "frozen": lambda: fit(lambda: frozen(same=False)),
        "frozen_alike": lambda: fit(lambda: frozen(same=True)),
        "microbatches": lambda: fit(num_microbatches=replicas + 1),
        "empty_with_microbatches": lambda: fit(num_microbatches=replicas, data=dataset.unbatch().take(1).batch(8)),
        "eager": lambda: fit(compiled={"run_eagerly": True}),
        "made_outside": lambda: fit(made_outside=True),
        "batch_norm": lambda: fit(batch_norm),
        "cross_replica": cross_replica,
    }
    said = {}
    for name, case in cases.items():
        try:
            case()
            said[name] = None
        except Exception as error:
            said[name] = f"{type(error).__name__}: {error}"
    return said


def _number(replica):
    return tf.get_static_value(replica.replica_id_in_sync_group)


def parameter_server():
    """What is said under a strategy whose workers do not wait for each other, and that Keras 2's own optimizer runs."""
    ports = launch.free_ports(2)
    cluster = tf.train.ClusterSpec({"worker": [f"localhost:{ports[0]}"], "ps": [f"localhost:{ports[1]}"]})
    servers = [tf.distribute.Server(cluster, job_name=job, task_index=0) for job in ("worker", "ps")]
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, rpc_layer="grpc")
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    said = None
    with strategy.scope():
        net = models.softmax_regression()
        net.compile("sgd", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        try:
            adaclip_tf.DPAdaClipSGD(noise_multiplier=1.0)
        except NotImplementedError as error:
            said = str(error)
    if keras.GENERATION == 2:  # `fit` of Keras 3 does not run there
        data = tf.data.Dataset.from_tensor_slices(models.data(8)).batch(4).repeat()
        net.fit(data, steps_per_epoch=3, verbose=0)
    del servers
    return {"said": said, "steps_of_sgd": int(net.optimizer.iterations.numpy())}


def own_loop(replicas, steps=3):
    """A training loop without `fit`: `strategy.run` of `minimize`; and how far the optimizer counted."""
    strategy = strategy_over(replicas)
    with strategy.scope():
        net = dense_model()
        optimizer = adaclip_tf.DPAdaClipSGD(0.5, noise_multiplier=0.0, initial_std=0.1, h2=1.0)
    loss = models.per_example_loss()

    def step(x, y):
        with tf.GradientTape() as tape:
            losses = loss(y, net(x, training=True))
        optimizer.minimize(losses, net.trainable_variables, tape)

    run = tf.function(lambda x, y: strategy.run(step, args=(x, y)))
    dataset = tf.data.Dataset.from_tensor_slices(models.data(8 * steps)).batch(8)
    for x, y in strategy.experimental_distribute_dataset(dataset):
        run(x, y)
    return {"noised_steps": int(optimizer.noised_steps.numpy()), "weights": [w.tolist() for w in net.get_weights()]}


def unknown_length(replicas):
    """A dataset whose end comes as a surprise must not count as a step."""
    strategy = strategy_over(replicas)
    with strategy.scope():
        net = models.softmax_regression()
        net.compile(adaclip_tf.DPAdaClipSGD(noise_multiplier=1.0, accumulation_steps=2), models.per_example_loss())
    dataset = tf.data.Dataset.from_tensor_slices(models.data(24)).filter(lambda *_: True).batch(4)
    net.fit(dataset, epochs=3, verbose=0)
    accumulators = net.optimizer.private_step._accumulators.all()
    return {
        "noised_steps": int(net.optimizer.noised_steps.numpy()),
        "iterations": int(net.optimizer.iterations.numpy()),
        "left_over": [int(accumulator._batches.numpy()) for accumulator in accumulators],
    }


def fault(folder, kill_at=None, z=0.0):
    """Trains with backups after every epoch; worker 1 kills itself before a batch of epoch 2, the first time."""
    folder = pathlib.Path(folder)
    strategy = strategy_over(None)
    with strategy.scope():
        net = dense_model()
        optimizer = adaclip_tf.DPAdaClipSGD(
            0.5, momentum=0.5, noise_multiplier=z, initial_std=0.1, h2=1.0, expected_batch_size=BATCH
        )
        net.compile(optimizer, models.per_example_loss())
    optimizer.build(net.trainable_variables)
    epoch, marker = [0], folder / "killed"

    def on_epoch_begin(number, logs):
        epoch[0] = number

    def on_train_batch_begin(batch, logs):
        if worker_number() == 1 and epoch[0] == 2 and batch == kill_at and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    first_step = []
    budget = adaclip_tf.PrivacyBudget(num_examples=EXAMPLES, batch_size=BATCH, delta=1e-4, sampling="shuffled")
    calls = [
        workdirs.backup_callback(folder, writes=worker_number() == 0),
        budget,
        tf.keras.callbacks.LambdaCallback(
            on_train_begin=lambda logs: first_step.append(int(optimizer.noised_steps.numpy())),
            on_epoch_begin=on_epoch_begin,
            on_train_batch_begin=on_train_batch_begin,
        ),
    ]
    dataset = batches()
    net.fit(dataset, epochs=4, verbose=0, callbacks=calls)
    return {
        "values": _values(net),
        "first_step": first_step[0],
        "noised_steps": int(optimizer.noised_steps.numpy()),
        "epsilon": budget.epsilon,
        "was_killed": marker.exists(),
    }


def worker_number():
    return json.loads(os.environ["TF_CONFIG"])["task"]["index"]


def _value(text):
    """JSON, or a word."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _call(run):
    name, _, arguments = run.partition(":")
    pairs = [pair.split("=") for pair in arguments.split(",") if pair]
    return globals()[name](**{key: _value(value) for key, value in pairs})


def main(kind, target, *runs):
    target = pathlib.Path(target)
    if kind == "mirrored":
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 4)
    else:
        strategy_over(None)  # must be made before anything else
        target = target / f"{worker_number()}.json"
    target.write_text(json.dumps({run: _call(run) for run in runs}))


if __name__ == "__main__":
    main(*sys.argv[1:])
