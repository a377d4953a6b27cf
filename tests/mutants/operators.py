"""Which changes the tool makes: those of cosmic-ray that a person might make, and four that it lacks.

cosmic-ray also turns `a + b` into `a << b` and the like. Any test kills those, so they would only flatter the rate.
"""

from __future__ import annotations

from cosmic_ray.operators import operator, provider
from parso.python import tree

_ARITHMETIC = (("Add", "Sub"), ("Sub", "Add"), ("Mul", "Div"), ("Div", "Mul"), ("FloorDiv", "Mul"), ("Mod", "FloorDiv"))
_ARITHMETIC += (("Pow", "Mul"), ("BitOr", "BitAnd"), ("BitAnd", "BitOr"))
_COMPARISONS = (("Eq", "NotEq"), ("NotEq", "Eq"), ("Lt", "LtE"), ("LtE", "Lt"), ("Gt", "GtE"), ("GtE", "Gt"))
_COMPARISONS += (("Lt", "Gt"), ("Gt", "Lt"), ("LtE", "GtE"), ("GtE", "LtE"), ("Eq", "GtE"), ("Eq", "LtE"))
_COMPARISONS += (("Is", "IsNot"), ("IsNot", "Is"))
_OTHERS = ("ReplaceUnaryOperator_Delete_Not", "ReplaceUnaryOperator_Delete_USub", "AddNot", "NumberReplacer")
_OTHERS += ("ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd")
_OTHERS += ("ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "ZeroIterationForLoop")

_PAIRS = (("minimum", "maximum"), ("min", "max"), ("floor", "ceil"), ("reduce_min", "reduce_max"))
_SWAPPED = {old: new for one, other in _PAIRS for old, new in ((one, other), (other, one))}


class _Own(operator.Operator):
    @classmethod
    def examples(cls):
        return ()


class RemoveCall(_Own):
    """`check(x)` as a statement of its own, left out."""

    def mutation_positions(self, node):
        if node.type == "simple_stmt" and _is_call(node.children[0]):
            yield node.start_pos, node.end_pos

    def mutate(self, node, index):
        del index
        node.children[0] = _passing(node.children[0])
        return node


class RemoveRaise(_Own):
    """A `raise` left out: what was refused is let through."""

    def mutation_positions(self, node):
        if node.type == "raise_stmt":
            yield node.start_pos, node.end_pos

    def mutate(self, node, index):
        del index
        return _passing(node)


class DropKeyword(_Own):
    """`f(x, axis=0)` without its `axis=0`."""

    def mutation_positions(self, node):
        if node.type in ("arglist", "trailer"):
            for child in node.children:
                if _is_keyword(child):
                    yield child.start_pos, child.end_pos

    def mutate(self, node, index):
        place = [i for i, child in enumerate(node.children) if _is_keyword(child)][index]
        end = place + 1
        if end < len(node.children) and node.children[end].get_code().strip() == ",":
            end += 1
        del node.children[place:end]
        return node


class SwapMinMax(_Own):
    """A bound from below made one from above, or a floor a ceiling."""

    def mutation_positions(self, node):
        if isinstance(node, tree.Name) and node.value in _SWAPPED and not _is_argument_name(node):
            yield node.start_pos, node.end_pos

    def mutate(self, node, index):
        del index
        return tree.Name(_SWAPPED[node.value], node.start_pos, node.prefix)


def _is_call(node) -> bool:
    """Whether the node is f(...) or a.b(...)."""
    return node.type == "atom_expr" and node.children[-1].type == "trailer" and node.children[-1].children[0] == "("


def _is_keyword(node) -> bool:
    return node.type == "argument" and node.children[1] == "="


def _is_argument_name(node) -> bool:
    return node.parent is not None and node.parent.type in ("param", "argument") and node.parent.children[0] is node


def _passing(statement):
    """`pass` in the place of a statement."""
    return tree.Name("pass", statement.start_pos, statement.get_first_leaf().prefix)


def chosen() -> dict[str, operator.Operator]:
    """Every operator that is applied, by name."""
    names = [f"ReplaceBinaryOperator_{old}_{new}" for old, new in _ARITHMETIC]
    names += [f"ReplaceComparisonOperator_{old}_{new}" for old, new in _COMPARISONS]
    theirs = {name: provider.OperatorProvider()[name]() for name in (*names, *_OTHERS)}
    return {**theirs, **{own.__name__: own() for own in (RemoveCall, RemoveRaise, DropKeyword, SwapMinMax)}}
