"""The public names: the same at run time, for editors, and for type checkers."""

import ast
import inspect
import pathlib
import subprocess
import sys

import adaclip_tf

SOURCE = pathlib.Path(adaclip_tf.__file__)


def test_what_type_checkers_see_is_what_is_imported():
    tree = ast.parse(SOURCE.read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {alias.name: node.module for node in block.body for alias in node.names}
    assert seen == {name: f"adaclip_tf.{home}" for name, home in adaclip_tf._HOME.items()}
    assert adaclip_tf.__all__ == sorted(adaclip_tf._HOME)


def test_every_public_name_is_there_with_a_docstring():
    for name in adaclip_tf.__all__:
        assert getattr(adaclip_tf, name).__doc__, name


def test_signatures_name_the_arguments():
    """For `help`, editors and notebooks, on both generations of Keras."""
    for name in adaclip_tf.__all__:
        public = getattr(adaclip_tf, name)
        if isinstance(public, type) and issubclass(public, Exception):
            continue
        names = list(inspect.signature(public).parameters)
        assert "args" not in names and "kwargs" not in names and names[:1] != ["arguments"], name
        if name.startswith("DP"):
            assert {"noise_multiplier", "expected_batch_size", "seed", "name"} <= set(names), name
    assert list(inspect.signature(adaclip_tf.DPAdaClipSGD).parameters)[:3] == ["learning_rate", "momentum", "nesterov"]
    assert "noise_multiplier" in inspect.signature(adaclip_tf.privacy_statement).parameters

    class Own(adaclip_tf.DPFixedClipSGD):
        """A user's subclass."""

        def __init__(self, flavour, **arguments):
            super().__init__(l2_norm_clip=1.0, **arguments)

    assert next(iter(inspect.signature(Own).parameters)) == "flavour"


def test_a_type_checker_knows_the_signatures(tmp_path):
    """Not `Any`: a wrong argument of `epsilon` is an error, and a right one is not."""
    program = tmp_path / "program.py"
    program.write_text(
        "import adaclip_tf\n"
        "reveal_type(adaclip_tf.epsilon)\n"
        "reveal_type(adaclip_tf.DPAdaClipSGD)\n"
        "adaclip_tf.epsilon(noise_multiplier='much', delta=1e-5, num_examples=9, batch_size=3, epochs=1)\n"
    )
    command = [sys.executable, "-m", "mypy", "--config-file=", "--ignore-missing-imports", "--follow-imports=silent"]
    done = subprocess.run(
        [*command, f"--cache-dir={tmp_path}", "--python-version=3.11", str(program)],
        capture_output=True,
        text=True,
        cwd=SOURCE.parent.parent,
        check=False,
    )
    assert "noise_multiplier: float" in done.stdout.replace("builtins.", ""), done.stdout
    assert "-> DPAdaClipSGD" in done.stdout.replace("adaclip_tf.optimizers.adaclip.", ""), done.stdout
    assert 'Argument "noise_multiplier" to "epsilon" has incompatible type "str"' in done.stdout
