"""Writes and checks the BUILD files: one py_library per module, one py_test per test, deps from the imports.

    python tools/build_targets.py          # rewrite the BUILD files (also: make format)
    python tools/build_targets.py --check  # say what is missing or superfluous, exit 1 if anything is

In the manner of tensorflow/privacy, deps name this repository's own targets; third-party packages come from
an environment that requirements/ describes.
"""

from __future__ import annotations

import ast
import pathlib
import sys
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("adaclip_tf", "benchmarks", "configs", "examples", "tests", "tools")
RUNNER = "tests/bazel_main.py"  # what a py_test runs: pytest on its source
CONFTEST = "tests/conftest.py"  # pytest reads it without an import
HEADER = """# Written by tools/build_targets.py; `make format` rewrites it.
load("@rules_python//python:defs.bzl", {rules})

package(default_visibility = ["//visibility:public"])

licenses(["notice"])
"""


class Target(NamedTuple):
    """What a BUILD file says, or should say, about one source file."""

    rule: str
    name: str
    source: str  # the file's name inside its folder
    deps: tuple[str, ...]  # full labels, //folder:name


def sources(root: pathlib.Path = ROOT) -> list[pathlib.PurePosixPath]:
    """Every Python file that needs a target, relative to the root."""
    found = []
    for folder in FOLDERS:
        found += [path for path in (root / folder).rglob("*.py") if "__pycache__" not in path.parts]
    return sorted(pathlib.PurePosixPath(path.relative_to(root).as_posix()) for path in found)


def label(source: pathlib.PurePosixPath) -> str:
    """//folder:name of a source file; a package's __init__.py is named after its folder."""
    name = source.parent.name if source.name == "__init__.py" else source.stem
    return f"//{source.parent}:{name}"


def imported_modules(tree: ast.Module, source: pathlib.PurePosixPath) -> set[str]:
    """Dotted names that the file may import: `from a import b` gives a and a.b."""
    names = set()
    for node in _imports(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(source.parent.parts[: len(source.parent.parts) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            names |= {f"{module}.{alias.name}" for alias in node.names} | {module}
    if source.name == "__init__.py":
        names |= _lazy_modules(tree, ".".join(source.parent.parts))
    return names


def _imports(tree: ast.Module) -> list[ast.Import | ast.ImportFrom]:
    """All import statements. Only statements are looked into, a tenth of a file's nodes: nothing else holds any."""
    found: list[ast.Import | ast.ImportFrom] = []
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found.append(node)
        for field in ("body", "orelse", "handlers", "finalbody", "cases"):
            todo += getattr(node, field, [])
    return found


def _lazy_modules(tree: ast.Module, package: str) -> set[str]:
    """The modules that the package imports on first use: the values of its table _HOME."""
    for node in tree.body:
        if not isinstance(node, ast.Assign):
            continue
        if any(isinstance(target, ast.Name) and target.id == "_HOME" for target in node.targets):
            return {f"{package}.{module}" for module in ast.literal_eval(node.value).values()}
    return set()


def wanted(root: pathlib.Path = ROOT) -> dict[str, Target]:
    """The targets that the source files call for, by label."""
    files = sources(root)
    by_module = {}
    for file in files:
        parts = file.parent.parts if file.name == "__init__.py" else file.with_suffix("").parts
        by_module[".".join(parts)] = file
    targets = {}
    for file in files:
        is_test = file.parts[0] == "tests" and file.name.endswith("_test.py")
        tree = ast.parse((root / file).read_text())
        imported = imported_modules(tree, file)
        # `from package import module` needs the module, and the package itself only if a name is taken from it.
        deps = {by_module[name] for name in imported if name in by_module}
        for name in imported:
            parent = name.rpartition(".")[0]
            if name in by_module and by_module.get(parent) in deps and not _used_itself(tree, parent, by_module):
                deps.discard(by_module[parent])
        if is_test and pathlib.PurePosixPath(CONFTEST) in files:
            deps.add(pathlib.PurePosixPath(CONFTEST))
        deps.discard(file)
        own = label(file)
        rule = "py_test" if is_test else "py_library"
        targets[own] = Target(rule, own.rpartition(":")[2], file.name, tuple(sorted(map(label, deps))))
    return targets


def _used_itself(tree, package, by_module) -> bool:
    """Whether the file imports the package for its own names, not only for modules inside it."""
    for node in _imports(tree):
        if isinstance(node, ast.Import) and any(alias.name == package for alias in node.names):
            return True
        if isinstance(node, ast.ImportFrom) and node.module == package and not node.level:
            taken = [f"{package}.{alias.name}" for alias in node.names]
            if any(name not in by_module for name in taken):
                return True
    return False


def stanza(target: Target, folder: str) -> str:
    """The target as buildifier would write it."""
    lines = [f"{target.rule}(", f'    name = "{target.name}",']
    if target.rule == "py_test":
        runner = RUNNER.rpartition("/")[2] if folder == "tests" else "//tests:" + RUNNER.rpartition("/")[2]
        lines += _list("srcs", sorted([target.source, runner], key=lambda name: (name.startswith("//"), name)))
        lines += [f'    args = ["$(location {target.source})"],', f'    main = "{runner}",']
    else:
        if folder.split("/")[0] == "tests":
            lines.append("    testonly = True,")
        lines += _list("srcs", [target.source])
    lines += _list("deps", sorted([_short(dep, folder) for dep in target.deps], key=_buildifier_order))
    return "\n".join([*lines, ")"]) + "\n"


def _short(dep: str, folder: str) -> str:
    package, _, name = dep.rpartition(":")
    if package == f"//{folder}":
        return f":{name}"
    return package if package.rpartition("/")[2] == name else dep


def _buildifier_order(dep: str):
    """The folder's own targets first, then by package and name."""
    return (dep.startswith("//"), dep.split(":"))


def _list(attribute: str, values: list[str]) -> list[str]:
    if not values:
        return []
    if len(values) == 1:
        return [f'    {attribute} = ["{values[0]}"],']
    return [f"    {attribute} = [", *[f'        "{value}",' for value in values], "    ],"]


def build_files(root: pathlib.Path = ROOT) -> dict[str, str]:
    """The text of every BUILD file, by path."""
    by_folder: dict[str, list[Target]] = {}
    for own, target in wanted(root).items():
        by_folder.setdefault(own[2:].rpartition(":")[0], []).append(target)
    files = {}
    for folder, targets in by_folder.items():
        rules = ", ".join(f'"{rule}"' for rule in sorted({target.rule for target in targets}))
        parts = [HEADER.format(rules=rules)]
        if folder == "tests":
            parts.append(f'exports_files(["{RUNNER.rpartition("/")[2]}"])\n')
        parts += [stanza(target, folder) for target in sorted(targets, key=lambda target: target.name)]
        files[f"{folder}/BUILD"] = "\n".join(parts)
    return files


def declared(root: pathlib.Path = ROOT) -> dict[str, Target]:
    """The targets that the BUILD files have now, by label. BUILD files parse as Python."""
    targets = {}
    for folder in FOLDERS:
        for path in (root / folder).rglob("BUILD"):
            package = path.parent.relative_to(root).as_posix()
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                    continue
                if node.func.id in ("py_library", "py_test"):
                    said = {word.arg: ast.literal_eval(word.value) for word in node.keywords}
                    name = said["name"]
                    own = [s for s in said["srcs"] if not s.endswith(RUNNER.rpartition("/")[2]) or name in s]
                    deps = tuple(sorted(_full(dep, package) for dep in said.get("deps", [])))
                    targets[f"//{package}:{name}"] = Target(node.func.id, name, own[0], deps)
    return targets


def _full(dep: str, package: str) -> str:
    if dep.startswith(":"):
        return f"//{package}{dep}"
    return dep if ":" in dep else f"{dep}:{dep.rpartition('/')[2]}"


def complaints(root: pathlib.Path = ROOT) -> list[str]:
    """One text for each target that is missing, stale or has other deps than its imports."""
    want, have = wanted(root), declared(root)
    found = []
    for own in sorted(want.keys() | have.keys()):
        folder = own[2:].rpartition(":")[0]
        if own not in have:
            found.append(f"{folder}/BUILD has no target for {want[own].source}; add\n\n{stanza(want[own], folder)}")
        elif own not in want:
            found.append(f"{folder}/BUILD: remove {own}, whose source {have[own].source} is gone")
        elif want[own] != have[own]:
            missing = sorted(set(want[own].deps) - set(have[own].deps))
            extra = sorted(set(have[own].deps) - set(want[own].deps))
            found.append(
                f"{folder}/BUILD: {own} lacks {missing} and has {extra} too many; it should be\n\n"
                f"{stanza(want[own], folder)}"
            )
    return found


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    if arguments == ["--check"]:
        found = complaints()
        print("\n".join(found) or "BUILD files are complete")
        return 1 if found else 0
    files = build_files()
    for folder in FOLDERS:  # a folder whose last source is gone
        for path in (ROOT / folder).rglob("BUILD"):
            if path.relative_to(ROOT).as_posix() not in files:
                path.unlink()
    for name, text in files.items():
        (ROOT / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
