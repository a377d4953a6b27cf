"""`release`: a trained model in a file that holds weights, architecture, the privacy statement, and nothing else.

What Keras saves holds more: the metrics' true totals and counts, the optimizer, the size of batches, vocabularies. A
release is not such a file with parts taken out. It is built from what may be in it: the configuration, the values of
the variables that the optimizer trained with noise, and what its user says is public. `adaclip_tf.check_release`
tells what any file holds that is not privatised.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from adaclip_tf._internal import files, keras, validate
from adaclip_tf.privacy import private_optimizer
from adaclip_tf.releasing import layer_state, release_files, release_statement, twins


def release(
    model: Any,
    path: str | os.PathLike[str],
    *,
    statement: Any = None,
    public: Sequence[str] = (),
    allow: Sequence[str] = (),
) -> dict[str, Any]:
    """Writes a model that may be published: weights, architecture, privacy statement, nothing else.

    >>> model = tf.keras.Sequential([tf.keras.layers.Dense(3, input_shape=(2,))])
    >>> model.compile(adaclip_tf.DPAdaClipSGD(0.1, noise_multiplier=1.1, expected_batch_size=4),
    ...               tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none"))
    >>> batches = adaclip_tf.poisson_batches((np.ones([8, 2], "float32"), np.zeros(8)), expected_batch_size=4)
    >>> budget = adaclip_tf.PrivacyBudget(num_examples=8, batch_size=4, delta=0.01)
    >>> history = model.fit(batches, verbose=0, callbacks=[budget])
    >>> contents = release(model, f"{folder}/model.keras", statement=budget)
    >>> contents["weights"]["layers/dense/vars/0"]
    'trained with noise'
    >>> sorted(contents["report"]["guarantee"])
    ['pld', 'rdp']
    >>> adaclip_tf.check_release(f"{folder}/model.keras").may_be_published
    True
    >>> again = tf.keras.models.load_model(f"{folder}/model.keras")    # plain Keras, anywhere

    Args:
      model: a Keras model that was trained by an optimizer of this library, which it still has.
      path: a name that ends in ".keras" takes the whole model, for `tf.keras.models.load_model`. One that ends in ".h5"
        takes the weights alone, for `load_weights` of a model that is built by the same code: for models that can't be
        rebuilt from a configuration. A file that is there is replaced, in one rename.
      statement: the `PrivacyBudget` that was in `fit`, a report of `privacy.statement.privacy_report`, or words of
        your own. It must not claim fewer steps or more noise than the optimizer had. Without one the file states
        the noise and the number of steps, but no epsilon.
      public: names of layers that hold something the optimizer did not train (frozen weights, vocabularies, means)
        which does not come from the private data, or whose cost the statement counts.
      allow: names of layers that hold something from the private data without noise, to be published all the
        same. The statement says that it does not cover them, and `check_release` goes on to name them.

    Returns:
      What `privacy_statement.json` in the file holds; "weights" says of every array what it is.

    Raises:
      ValueError: the model was not trained with noise that nobody can predict, something in it is neither trained by
        the optimizer nor named in `public` or `allow`, the statement does not fit, or the file can't be written.
    """
    path = _checked_path(path)
    optimizer = _checked_optimizer(model)
    training = release_statement.training_facts(optimizer)
    text, report = release_statement.read(statement, optimizer)
    _check_are_names("public", public)
    _check_are_names("allow", allow)
    twin = None if path.endswith(".h5") else _twin(model)
    held = _held(model, optimizer, twin)
    known = {names[-1] for names, _ in twins.tree(model)} | {each.names[-1] for each in held}
    public, allow = _checked_names("public", public, known), _checked_names("allow", allow, known)
    _check_all_named(held, {*public, *allow})
    contents: dict[str, Any] = {
        "format": release_statement.FORMAT,
        "training": training,
        "report": report,
        "public": public,
        "not_covered": allow,
    }
    if twin is None:
        data = release_files.weights_file(model, optimizer, text, contents)
    else:
        twins.fill(twin, model, optimizer, public, allow)
        data = release_files.model_file(model, twin, optimizer, text, contents)
    with files.replacing(path) as file:
        file.write(data)
    return contents


# ----------------------------------------------------------------------------------------------------------------
# What is refused.


def _checked_path(path: Any) -> str:
    path = validate.path("path", path)
    if "://" in path:
        raise ValueError(f"`path`={path!r} is not on this machine; write a local file and copy it.")
    if not path.endswith((".keras", ".h5")) or path.endswith(".weights.h5"):
        raise ValueError(
            "`path` must end in .keras (the whole model) or .h5 (weights alone; not .weights.h5, which Keras reads in "
            f"another layout); got {path!r}."
        )
    files.check_writable("path", path)
    return path


def _checked_optimizer(model: Any) -> private_optimizer.PrivateOptimizer:
    """The optimizer, if all that the weights have seen of the data is its noised sums."""
    if not isinstance(model, tf.keras.Model):
        raise ValueError(f"`model` must be a Keras model; got a {type(model).__name__}.")
    optimizer: Any = getattr(model, "optimizer", None)
    if not private_optimizer.is_private(optimizer):
        had = "no optimizer" if optimizer is None else f"the optimizer {type(optimizer).__name__}"
        raise ValueError(
            f"`model` has {had}, so nothing says that it was trained with noise. Release it with the "
            "optimizer that counted its noised steps, such as DPAdaClipSGD: right after `fit`, or loaded from a .keras "
            "file with its optimizer."
        )
    steps = private_optimizer.noised_steps(optimizer)
    if not steps:
        raise ValueError(
            "`model` has taken no noised steps, so there is nothing to state. Train it first; a SavedModel loses its "
            "optimizer's count, so load a .keras file or a checkpoint instead."
        )
    updates = int(tf.convert_to_tensor(optimizer.iterations))
    if updates > steps:
        raise ValueError(
            f"`model` had {updates} updates and {steps} noised steps: some were made by another "
            "optimizer, whose steps were not private or are not counted."
        )
    if not optimizer.noise_multiplier:
        raise ValueError("`model` was trained with noise_multiplier=0: without noise there is nothing private in it.")
    if optimizer.seed is not None:
        raise ValueError(
            f"`model` was trained with seed={optimizer.seed}: anybody who guesses it can remove the noise. Train "
            "with seed=None to release."
        )
    return optimizer


def _check_are_names(argument: str, names: Any) -> None:
    if not isinstance(names, (list, tuple, set)) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"`{argument}` must be a list of layer names; got {names!r}.")


def _checked_names(argument: str, names: Sequence[str], known: set[str]) -> list[str]:
    for name in names:
        if name not in known:
            raise ValueError(f"`{argument}` names {name!r}, but the layers are {', '.join(sorted(known))}.")
    return sorted(set(names))


def _twin(model: Any) -> Any:
    try:
        return twins.build(model)
    except Exception as error:  # whatever a layer's own `from_config` raises
        raise ValueError(
            f"`model` ({type(model).__name__}) can't be rebuilt from its configuration: {error}. Give its class and "
            "its own layers a `get_config`, and register functions by `tf.keras.saving.register_keras_serializable`; "
            "or release the weights alone, under a name that ends in .h5."
        ) from error


def _held(model: Any, optimizer: Any, twin: Any) -> list[layer_state.Held]:
    """What the optimizer did not train and is to be written. Keras 3 counts operations on arrays among no layers."""
    held = twins.held_by(model, optimizer)
    if twin is not None:
        held += layer_state.held_in(keras.saving.serialize_keras_object(twin))
    return held


def _check_all_named(held: Sequence[layer_state.Held], named: set[str]) -> None:
    open_questions: dict[tuple[str, ...], list[layer_state.Held]] = {}
    for each in held:
        if not set(each.names) & named:
            open_questions.setdefault(each.names, []).append(each)
    if not open_questions:
        return
    lines = [
        f"  {found[0].place} ({found[0].layer_class}): {'; '.join({each.what: 0 for each in found})}"
        for found in open_questions.values()
    ]
    example = json.dumps([names[-1] for names in open_questions])
    raise ValueError(
        "`model` holds something that was not trained with noise:\n"
        + "\n".join(lines)
        + "\nIf it does not come from the private data, or the statement counts what it cost, say so: "
        f"public={example}. To publish it all the same, without protection: allow={example}; the statement will say "
        "that it does not cover it."
    )
