"""`SumAggregationDPQuery`: tensorflow-privacy's class where that package is installed, and otherwise one of its shape.

tensorflow-privacy 0.9.0 needs TensorFlow's estimators, which 2.16 removed, only for what it imports at the top;
`sys.skip_tf_privacy_import` is its own switch for leaving that out. pip refuses the package on Python 3.12 and later.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from typing import Any

import tensorflow as tf


class _SumAggregationDPQuery:
    """What a query that sums up needs of tensorflow-privacy's base class: a sample is the sum of its records."""

    def accumulate_preprocessed_record(self, sample_state: Any, preprocessed_record: Any) -> Any:
        return tf.nest.map_structure(tf.add, sample_state, preprocessed_record)

    def accumulate_record(self, params: Any, sample_state: Any, record: Any) -> Any:
        record = self.preprocess_record(params, record)  # type: ignore[attr-defined]
        return self.accumulate_preprocessed_record(sample_state, record)

    def merge_sample_states(self, sample_state_1: Any, sample_state_2: Any) -> Any:
        return tf.nest.map_structure(tf.add, sample_state_1, sample_state_2)


def _base() -> Any:
    try:
        importlib.metadata.version("tensorflow-privacy")
    except importlib.metadata.PackageNotFoundError:
        return _SumAggregationDPQuery
    if not tf.__version__.startswith("2.15.") and "tensorflow_privacy" not in sys.modules:
        sys.skip_tf_privacy_import = True  # type: ignore[attr-defined]
    return importlib.import_module("tensorflow_privacy.privacy.dp_query.dp_query").SumAggregationDPQuery


SumAggregationDPQuery = _base()
