"""The public names: the same at run time, for editors, and for type checkers."""

import ast
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
