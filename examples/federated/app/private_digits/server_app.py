"""The server: FedAvg, made private."""

import json
import os

from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from adaclip_tf.flower import PrivateStrategy
from examples.federated import clients
from private_digits import settings

app = ServerApp()


@app.main()
def main(grid, context):
    """Trains, and writes what came out into `folder`."""
    config = context.run_config
    folder = str(config["folder"])
    loaded, _ = clients.digits(int(config["num-clients"]))
    strategy = PrivateStrategy(
        FedAvg(),
        settings.RULE,
        noise_multiplier=float(config["noise-multiplier"]),
        num_clients=int(config["num-clients"]),
        clients_per_round=int(config["clients-per-round"]),
        delta=float(config["delta"]),
        target_epsilon=float(config["target-epsilon"]) or None,
        clipping=str(config["clipping"]),
        ledger=os.path.join(folder, "ledger.json"),
        state=os.path.join(folder, "server.npz"),
        min_clients=int(config["wait-for"]),
    )
    initial = clients.initial_weights(loaded.x_train[0].size, 10)
    result = strategy.start(
        grid=grid,
        initial_arrays=clients.record_of(initial),
        num_rounds=int(config["num-rounds"]),
        timeout=float(config["timeout"]),
    )
    weights = {name: array.numpy() for name, array in result.arrays.items()}
    found = {
        "rounds": strategy.rounds_done,
        "epsilon": strategy.epsilon,
        "accuracy": clients.accuracy(weights, loaded.x_test, loaded.y_test),
    }
    with open(os.path.join(folder, "result.json"), "w", encoding="utf-8") as file:
        json.dump(found, file)
