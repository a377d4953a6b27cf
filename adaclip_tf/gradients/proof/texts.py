"""Texts that are split into words and padded to a fixed length, as `TextVectorization` does it.

In between there is no axis of examples: `StringSplitV2` gives the words of all texts in one vector, and says in
another which text each is of. So the ops there have no label. They are looked at together, from where the words are put
into rows again: row k of `RaggedTensorToTensor` holds the words whose row number is k, in their order, cut off or
padded to a length that is the same for all. If the row numbers and their count are those of one split, and the words
were looked at one by one, it depends on text k alone.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from adaclip_tf.gradients import graph
from adaclip_tf.gradients.proof.labels import Public, Rows
from adaclip_tf.gradients.proof.table import WHOLE
from adaclip_tf.gradients.proof.walk import Walk

_WORD_BY_WORD = graph.ENTRYWISE | {"LookupTableFindV2"}


def _padded(walk: Walk, op: tf.Operation) -> Rows | None:
    """The label of texts that are put into rows; None where it is not known that these are the texts'."""
    if op.get_attr("row_partition_types") != [b"FIRST_DIM_SIZE", b"VALUE_ROWIDS"]:
        return None
    shape, words, default, count, rows = op.inputs
    split = _split_of(rows)
    if split is None or not _is_first_column(rows, split) or not _is_count(count, split):
        return None
    extents = walk.sizes.integers(shape)
    if extents is None or len(extents) != 2 or extents[0] != -1 or extents[1] < 1:
        return None  # as long as the longest, perhaps
    if not _is_one_number(walk, default) or not _word_by_word(walk, words, split, set()):
        return None
    return _label_of_texts(walk, split)


def _counts(walk: Walk, op: tf.Operation) -> Rows | None:
    """The same where words are counted: row k says how often each one is among those between splits k and k + 1."""
    splits, words, size, weights = op.inputs
    joined = graph.behind(splits, ("Identity", "Cast")).op
    if joined.type != "ConcatV2" or len(joined.inputs) != 3 or graph.constant(joined.inputs[2]) != 0:
        return None
    start, ends = graph.constant(joined.inputs[0]), joined.inputs[1].op
    if start is None or list(start) != [0] or ends.type != "Cumsum" or graph.constant(ends.inputs[1]) != 0:
        return None
    lengths = ends.inputs[0].op
    if lengths.type != "DenseBincount" or lengths.get_attr("binary_output") or lengths.inputs[2].shape != [0]:
        return None
    if ends.get_attr("exclusive") or ends.get_attr("reverse") or weights.shape != [0]:
        return None
    rows = graph.behind(lengths.inputs[0], ("Identity", "Cast", "Reshape"))
    split = _split_of(rows)
    if split is None or not _is_first_column(rows, split) or not _is_clipped_count(lengths.inputs[1], split):
        return None
    if walk.sizes.integers(size) is None:
        return None
    return _label_of_texts(walk, split) if _word_by_word(walk, words, split, set()) else None


def _is_clipped_count(tensor: tf.Tensor, split: tf.Operation) -> bool:
    """Whether it is min(count, max(count, ...)): the count itself."""
    op = tensor.op
    if op.type != "Minimum" or op.inputs[1].op.type != "Maximum":
        return False
    return all(
        _is_count(graph.behind(one, ("Identity", "Cast")), split) for one in (op.inputs[0], op.inputs[1].op.inputs[0])
    )


WHOLE["RaggedTensorToTensor"], WHOLE["RaggedBincount"] = _padded, _counts


def _label_of_texts(walk: Walk, split: tf.Operation) -> Rows | None:
    """The label of what is split, a vector of texts."""
    texts, separator = split.inputs
    label = walk.label(texts)
    if not isinstance(label, Rows) or label.axis != 0 or label.outer != 1 or texts.shape.rank != 1:
        return None
    return label if _is_public(walk, separator) else None


def _split_of(rows: tf.Tensor) -> tf.Operation | None:
    source = graph.behind(rows, ("Identity",))
    split = source.op.inputs[0].op if source.op.type == "StridedSlice" else None
    return split if split is not None and split.type == "StringSplitV2" else None


def _is_first_column(tensor: tf.Tensor, split: tf.Operation) -> bool:
    """Whether it is `indices[:, 0]`: of which text each word is."""
    op = graph.behind(tensor, ("Identity",)).op
    if op.type != "StridedSlice" or op.inputs[0] is not split.outputs[0]:
        return False
    masks = {name: op.get_attr(f"{name}_mask") for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
    begin, strides = graph.constant(op.inputs[1]), graph.constant(op.inputs[3])
    if begin is None or strides is None or list(strides) != [1, 1] or masks["ellipsis"] or masks["new_axis"]:
        return False
    return masks["shrink_axis"] == 2 and bool(masks["begin"] & masks["end"] & 1) and int(begin[1]) == 0


def _is_count(tensor: tf.Tensor, split: tf.Operation) -> bool:
    """Whether it is `shape[0]`: how many texts there are."""
    op = graph.behind(tensor, ("Identity",)).op
    if op.type != "StridedSlice" or op.inputs[0] is not split.outputs[2]:
        return False
    begin = graph.constant(op.inputs[1])
    return op.get_attr("shrink_axis_mask") == 1 and begin is not None and list(begin) == [0]


def _word_by_word(walk: Walk, tensor: tf.Tensor, split: tf.Operation, seen: set[Any]) -> bool:
    """Whether a vector has an entry for each word of the split, made of this word and of public numbers alone."""
    if tensor is split.outputs[1] or tensor.ref() in seen:
        return True
    op = tensor.op
    if op.type not in _WORD_BY_WORD or tensor.shape.rank != 1:
        return False
    values = list(op.inputs)
    if op.type == "LookupTableFindV2":
        table, words, default = op.inputs
        if not _is_public(walk, table) or not _is_one_number(walk, default):
            return False
        values = [words]
    others = [value for value in values if not _word_by_word(walk, value, split, seen)]
    if len(others) == len(values) or not all(_is_one_number(walk, value) for value in others):
        return False
    seen.add(tensor.ref())
    return True


def _is_public(walk: Walk, tensor: tf.Tensor) -> bool:
    return isinstance(walk.label(tensor), Public)


def _is_one_number(walk: Walk, tensor: tf.Tensor) -> bool:
    return tensor.shape.rank == 0 and _is_public(walk, tensor)
