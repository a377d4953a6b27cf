"""A private PCA before the model, fitted once in the folder of a run."""

from __future__ import annotations

import adaclip_tf


def project(config, plan, loaded, folder):
    """The inputs for training and test, through a private PCA if the config asks for one, and what it cost."""
    if not config.pca_components:
        return loaded.x_train, loaded.x_test, None
    if config.model == "cnn":
        raise ValueError("config.pca_components must be 0 for a cnn, which needs images.")
    flat, flat_test = (x.reshape(len(x), -1) for x in (loaded.x_train, loaded.x_test))
    path = folder / "pca.npz" if folder else None
    if path and path.exists():  # fitting again would be paid for again
        pca = adaclip_tf.PrivatePCA.load(path)
    else:
        pca = adaclip_tf.PrivatePCA(
            num_components=config.pca_components,
            noise_multiplier=plan.pca_noise_multiplier,
            seed=config.seed if config.reproducible else None,
        ).fit(flat)
        if path:
            pca.save(path)
    return pca.transform(flat), pca.transform(flat_test), pca.event
