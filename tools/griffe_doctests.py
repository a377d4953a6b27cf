"""For the documentation site (mkdocs.yml): examples in docstrings are shown as code.

Docstrings have `>>>` examples as plain text, for `help` and for doctest. Markdown would take them for quotations.
"""

from __future__ import annotations

import griffe


class Fenced(griffe.Extension):
    """Puts every run of `>>>` lines, with what they print, into a fence."""

    def on_object(self, *, obj: griffe.Object, **_) -> None:
        if obj.docstring and ">>>" in obj.docstring.value:
            obj.docstring.value = fence(obj.docstring.value)


def fence(text: str) -> str:
    """The same text with fences around its examples; an example ends at an empty line.

    >>> print(fence("Adds.\\n>>> 1 + 1\\n2\\n\\nThat is all."))
    Adds.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    <BLANKLINE>
    That is all.
    """
    lines, inside = [], False
    for line in text.splitlines():
        if not inside and line.lstrip().startswith(">>> "):
            indent = line[: len(line) - len(line.lstrip())]
            lines += ["", f"{indent}```pycon"]
            inside = True
        elif inside and not line.strip():
            lines.append(f"{indent}```")
            inside = False
        lines.append(line)
    return "\n".join([*lines, f"{indent}```"] if inside else lines)
