"""The client: softmax regression on its own digits. With `clipping_mod`, what leaves it is clipped."""

from flwr.clientapp import ClientApp

from examples.federated import clients

app = ClientApp()


@app.train()
def train(message, context):
    """Trains on what partition `partition-id` of `num-partitions` holds."""
    _, held = clients.digits(int(context.node_config["num-partitions"]))
    return clients.client_app(held, clients.LocalTraining(), _mods(context))(message, context)


def _mods(context):
    if context.run_config["clipping"] != "client":
        return []
    # Late: they need TensorFlow, which a client that only trains in NumPy need not wait for.
    from adaclip_tf.flower import clipping_mod
    from private_digits import settings

    return [clipping_mod(settings.RULE)]
