"""Every field of a config, with its default. The other files here change some of them.

Each is a flag of examples/train.py, e.g. `--config.h2=1e-4`.
"""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
    """The defaults, which are those of the library where it has any."""
    config = ml_collections.ConfigDict()
    config.dataset = "digits"  # mnist, fashion_mnist, digits, breast_cancer, diabetes
    config.data_dir = ""  # a folder with data files, see examples/common/data.py
    config.model = "softmax"  # softmax, mlp, cnn, logistic, linear
    config.hidden = 1000  # units of the mlp
    config.pixel_mean, config.pixel_std = (
        0.0,
        1.0,
    )  # what the cnn takes from pixels and divides them by: public
    config.activation = "relu"  # of hidden layers; "tanh" keeps gradients small
    config.pca_components = 0  # dimensions of a PrivatePCA before the model; 0 for none
    config.pca_fraction = 0.1  # the part of epsilon that the PCA alone may cost

    # Privacy. The noise multiplier is worked out from these.
    config.target_epsilon = 1.0
    config.delta = 1e-5
    config.accountant = "rdp"  # or pld
    config.expected_batch_size = 600  # of Poisson-sampled batches
    config.epochs = 10

    config.optimizer = "adaclip"  # fixed_clip, norm_bound, per_layer, whitening, per_coordinate, quantile, scales, sgd
    config.learning_rate = 0.5  # 0 with scales: the one that make_private chooses
    config.learning_rate_end = 1.0  # the part of it that is left at the last step, on a straight line from 1 (not for
    # scales, where it falls to 0 as a root)
    config.momentum = 0.0

    # adaclip and whitening
    config.beta_1 = 0.99
    config.beta_2 = 0.9
    config.h1 = 1e-12
    config.h2 = 1e-3
    config.gamma = 1.0
    config.initial_std = 0.0  # s before the first step; 0 for the library's default, sqrt(h1 h2)
    config.variance_scaling = "per_example"
    config.clamp = "before_average"

    config.l2_norm_clip = 1.0  # fixed_clip, each layer of per_layer; where quantile starts
    config.largest_gradient_norm = 28.0  # norm_bound
    config.value_clip = 0.01  # per_coordinate
    config.target_quantile = 0.5  # quantile

    config.seed = 0  # of the initial weights
    config.reproducible = False  # True: the seed decides noise and sampling too, for tests only: NOT private
    return config
