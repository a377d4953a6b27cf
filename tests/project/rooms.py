"""Which room of `adaclip_tf` may import which, read from the source: no module is imported."""

from __future__ import annotations

import ast
import graphlib
import pathlib
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAX_LINES = 300

# A room is a folder of `adaclip_tf`, or a module right in it. It may import itself and what is named here.
MAY_IMPORT = {
    "_internal": set(),
    "core": {"_internal"},
    "gradients": {"core", "_internal"},
    "privacy": {"_internal"},
    "data": {"privacy", "_internal"},
    "optimizers": {"core", "gradients", "privacy", "_internal"},
    "scales": {"core", "gradients", "optimizers", "data", "privacy", "_internal"},
    "training": {"core", "scales", "optimizers", "data", "privacy", "_internal"},
    "query": {"core", "privacy", "_internal"},
    "flower": {"core", "privacy", "_internal"},
    "tensorboard": {"privacy", "_internal"},
    "releasing": {"optimizers", "privacy", "_internal"},
    "auditing": {"core", "optimizers", "data", "privacy", "_internal"},
    "__main__": set(),
}
OUTSIDE = {"benchmarks", "configs", "examples", "requirements", "tests"}
# The Keras callback and the two modules that look at the `fit` around it.
KERAS_IN_PRIVACY = {"budget", "fit_data", "formed", "run_checks"}
# Rooms whose questions to Keras's private names are asked in `_internal/keras2.py` and `keras3.py`, one for each
# generation.
ASK_KERAS = {"privacy", "data", "tensorboard", "releasing", "optimizers", "scales", "training", "auditing"}


def modules(root: pathlib.Path) -> dict[str, pathlib.Path]:
    """Dotted name -> file, of every module of the library."""
    found = {}
    for path in sorted((root / "adaclip_tf").rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def room_of(module: str) -> str:
    """The room of a module; "" for the package itself, which hands out the public names."""
    return module.split(".")[1] if "." in module else ""


def imports(path: pathlib.Path, known: dict[str, pathlib.Path], *, for_types: bool = True) -> Iterator[tuple[str, int]]:
    """(dotted name, line) of all that a file imports, late imports too; a module where the name is one.

    `for_types=False` leaves out what is below `if TYPE_CHECKING`, which is never run.
    """
    tree = ast.parse(path.read_text())
    checked = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)]
    never_run = set() if for_types else {inner for outer in checked for part in outer.body for inner in ast.walk(part)}
    for node in ast.walk(tree):
        if node in never_run:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield "." * node.level, node.lineno
                continue
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in known else str(node.module), node.lineno


def wrong_arrows(root: pathlib.Path = ROOT) -> list[str]:
    """Imports that point the wrong way."""
    known, found = modules(root), []
    for module, path in known.items():
        room = room_of(module)
        if room and room not in MAY_IMPORT:
            found.append(f"{path.relative_to(root)}: the room {room!r} is not in the table of who may import whom")
            continue
        for name, line in imports(path, known):
            where = f"{path.relative_to(root)}:{line}"
            if name.startswith("."):
                found.append(f"{where}: a relative import")
            elif name.split(".")[0] in OUTSIDE:
                found.append(f"{where}: the library imports {name}")
            elif name.split(".")[0] == "adaclip_tf" and room:  # the package itself may import any room
                other = room_of(name)
                if not other:
                    found.append(f"{where}: imports a public name from the package; take it from its own module")
                elif other != room and other not in MAY_IMPORT[room]:
                    found.append(f"{where}: {room} may not import {other}")
    return found


def cycle(root: pathlib.Path = ROOT) -> list[str]:
    """Modules that import each other in a circle, if there are any."""
    known = modules(root)
    graph = {
        module: {name for name, _ in imports(path, known, for_types=False) if name in known}
        for module, path in known.items()
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


def keras_in_privacy(root: pathlib.Path = ROOT) -> list[str]:
    """Modules of `privacy` that import TensorFlow or Keras, other than those that may."""
    known, found = modules(root), []
    for module, path in known.items():
        if room_of(module) == "privacy" and module.split(".")[-1] not in KERAS_IN_PRIVACY:
            names = [name for name, _ in imports(path, known) if name.split(".")[0] in ("tensorflow", "keras")]
            found += [f"{module} imports {name}" for name in names]
    return found


def without_tensorflow(root: pathlib.Path = ROOT) -> list[str]:
    """The modules of `privacy` that must work where there is no TensorFlow."""
    names = [module for module in modules(root) if room_of(module) == "privacy"]
    return [module for module in names if module.split(".")[-1] not in KERAS_IN_PRIVACY]


def private_names(root: pathlib.Path = ROOT) -> list[str]:
    """Private attributes of other objects (`model._steps`) in the rooms that are to ask `_internal.keras`."""
    found = []
    for module, path in modules(root).items():
        if room_of(module) not in ASK_KERAS:
            continue
        tree = ast.parse(path.read_text())
        own = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _is_self(node.value)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and not _is_self(node.value):
                name = node.attr
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("getattr", "setattr", "hasattr"):
                name = getattr(node.args[1], "value", "")
            else:
                continue
            ours = str(name).startswith("__") or name in own or name in ("_replace", "_asdict")  # NamedTuple's
            ours = ours or str(name).startswith("_adaclip")
            if str(name).startswith("_") and not ours:
                found.append(f"{path.relative_to(root)}:{node.lineno}: {name}")
    return found


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def long_files(root: pathlib.Path = ROOT) -> list[str]:
    """Files of the library and of the examples that are too long to be read at a sitting."""
    files = [path for folder in ("adaclip_tf", "examples") for path in sorted((root / folder).rglob("*.py"))]
    return [path.relative_to(root).as_posix() for path in files if len(path.read_text().splitlines()) > MAX_LINES]
