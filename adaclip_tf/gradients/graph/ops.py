"""What types of ops do, as far as more than one module asks. What each does to labels is said where the labels are."""

from __future__ import annotations

import tensorflow as tf

# fmt: off
# Entry by entry, with broadcasting.
_UNARY = (
    "Identity", "Snapshot", "StopGradient", "PreventGradient", "CheckNumerics", "EnsureShape", "Cast",
    "Neg", "Abs", "Sign", "Square", "Sqrt", "Rsqrt", "Reciprocal", "Inv", "Exp", "Expm1", "Log", "Log1p", "Sin", "Cos",
    "Tan", "Sinh", "Cosh", "Tanh", "Asin", "Acos", "Atan", "Asinh", "Acosh", "Atanh", "Erf", "Erfc", "Erfinv", "Ndtri",
    "Lgamma", "Digamma", "Sigmoid", "Relu", "Relu6", "LeakyRelu", "Elu", "Selu", "Softplus", "Softsign", "Floor",
    "Ceil", "Round", "Rint", "IsNan", "IsInf", "IsFinite", "LogicalNot", "Invert", "Real", "Imag", "Conj", "Angle",
    "ComplexAbs",
    "BesselI0e", "BesselI1e", "BesselI0", "BesselI1", "ZerosLike", "OnesLike", "Bucketize", "AsString", "StringLower",
    "StringUpper", "StringStrip", "StringLength", "StringToNumber", "StaticRegexReplace", "RegexReplace",
    "StringToHashBucket",
    "StringToHashBucketFast", "StringToHashBucketStrong", "StaticRegexFullMatch",
    "FakeQuantWithMinMaxArgs", "PopulationCount", "EncodeBase64", "DecodeBase64",
)
_BINARY = (
    "Add", "AddV2", "AddN", "Sub", "Mul", "MulNoNan", "Div", "RealDiv", "DivNoNan", "FloorDiv", "TruncateDiv",
    "FloorMod",
    "Mod", "TruncateMod", "Pow", "Maximum", "Minimum", "SquaredDifference", "Xdivy", "Xlogy", "Xlog1py", "Atan2",
    "Complex",
    "NextAfter", "Igamma", "Igammac", "Zeta", "Polygamma", "Betainc", "Equal", "NotEqual", "Less", "LessEqual",
    "Greater",
    "GreaterEqual", "ApproximateEqual", "LogicalAnd", "LogicalOr", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "LeftShift",
    "RightShift", "SelectV2", "ClipByValue", "StringJoin",
    "ReluGrad", "Relu6Grad", "LeakyReluGrad", "EluGrad", "SeluGrad", "SoftplusGrad", "SoftsignGrad", "TanhGrad",
    "SigmoidGrad", "RsqrtGrad", "SqrtGrad", "ReciprocalGrad", "InvGrad", "IgammaGradA",
)
ENTRYWISE = frozenset(_UNARY) | frozenset(_BINARY)
# Independent draws of one distribution, of a shape that is the first input, or the third.
DRAWS = (
    "RandomUniform", "RandomUniformInt", "RandomStandardNormal", "TruncatedNormal", "StatelessRandomUniform",
    "StatelessRandomUniformV2", "StatelessRandomNormal", "StatelessRandomNormalV2", "StatelessTruncatedNormal",
    "StatelessTruncatedNormalV2", "StatelessRandomUniformInt", "StatelessRandomUniformIntV2",
    "StatelessRandomUniformFullInt", "StatelessRandomUniformFullIntV2",
)
# Those that get a key and a counter after the shape.
DRAWS_FROM_A_KEY = frozenset(name for name in DRAWS if name.startswith("Stateless") and name.endswith("V2"))
DRAWS_OF_A_STATE = (
    "StatefulUniform", "StatefulUniformInt", "StatefulUniformFullInt", "StatefulStandardNormalV2",
    "StatefulTruncatedNormal", "RngReadAndSkip",
)
RANDOM = frozenset({*DRAWS, *DRAWS_OF_A_STATE}) | {
    "RandomGamma", "RandomPoissonV2", "Multinomial", "RandomShuffle", "ParameterizedTruncatedNormal", "RngSkip",
}
# Stateful, but only read, whatever they are given.
READS = frozenset({
    "ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VarHandleOp", "VarIsInitializedOp", "VariableShape",
    "HashTableV2", "MutableHashTableV2", "MutableDenseHashTableV2", "LookupTableFindV2", "LookupTableSizeV2",
    "LookupTableExportV2", "IteratorGetNext", "IteratorGetNextSync", "IteratorGetNextAsOptional",
    "OptionalHasValue", "OptionalGetValue", "AnonymousHashTable",
})
# Stateful without a resource of the model's, with results that are not data: random draws, checks.
HARMLESS = RANDOM | {
    "Assert", "NoOp", "Placeholder", "PlaceholderV2", "CheckNumerics", "CheckNumericsV2", "Timestamp", "MergeSummary",
    "PrintV2", "Print", "CollectiveReduceV2", "CollectiveReduceV3", "CollectiveGatherV2",
}
# Stateful, without a resource, and known to forget what they are given: samplers whose tables are fixed, copies, what
# is made anew in every step.
FORGETFUL = frozenset({
    "AllCandidateSampler", "FixedUnigramCandidateSampler", "LogUniformCandidateSampler", "UniformCandidateSampler",
    "NonDeterministicInts", "RandomCrop", "RandomPoisson", "SampleDistortedBoundingBox", "SampleDistortedBoundingBoxV2",
    "CudnnRNN", "CudnnRNNV2", "CudnnRNNV3", "CudnnRNNBackprop", "CudnnRNNBackpropV2", "CudnnRNNBackpropV3",
    "DeepCopy", "Empty", "GuaranteeConst", "StackV2", "TensorArrayV3", "TensorArrayGradV3", "DatasetToSingleElement",
    "GeneratorDataset", "RandomDataset", "RangeDataset", "ReduceDataset", "SparseTensorSliceDataset", "TensorDataset",
    "TensorSliceDataset",
})
# Not stateful by their definition, but they write what they get to a file or send it away.
_TELLING = frozenset({"DebugIdentity", "DebugNanCount", "DebugNumericSummary"})
# fmt: on
# The attributes that name the functions which an op calls.
CALLS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("PartitionedCall", "StatefulPartitionedCall"), ("f",)),
    **dict.fromkeys(("If", "StatelessIf"), ("then_branch", "else_branch")),
    **dict.fromkeys(("Case", "StatelessCase"), ("branches",)),
    **dict.fromkeys(("While", "StatelessWhile"), ("body", "cond")),
}
# Join what several devices hold.
COLLECTIVE = frozenset({
    "CollectiveReduce", "CollectiveReduceV2", "CollectiveReduceV3", "CollectiveReduceScatterV2", "CollectiveGather",
    "CollectiveGatherV2", "CollectiveAllToAllV2", "CollectiveAllToAllV3", "CollectiveBcastSend",
    "CollectiveBcastSendV2", "NcclAllReduce", "NcclReduce", "NcclBroadcast", "CrossReplicaSum", "AllToAll",
    "CollectivePermute", "XlaAllReduce", "XlaReduceScatter",
})  # fmt: skip
PYTHON = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})
OLD_LOOPS = frozenset({"Enter", "Merge", "NextIteration"})
UNCHANGED = frozenset({"Identity", "Cast", "StopGradient", "EnsureShape"})  # hand their input on
SAME_ORDER = UNCHANGED | {"Reshape", "Squeeze", "ExpandDims"}  # the same entries, in the same order in memory
SHAPES = frozenset({"Shape", "ShapeN", "Size", "Rank", "BroadcastGradientArgs"})  # look at shapes only
# Which inputs these are linear in, one of them (a choice: where the other is 0) or, of a difference, both: what is done
# to a variable's gradient where something else was made of it.
LINEAR_MAPS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("Mul", "Sub", "MatMul"), (0, 1)),
    **dict.fromkeys(("RealDiv", "DivNoNan", "MulNoNan", "Sum", "Tile", "BroadcastTo"), (0,)),
    **dict.fromkeys(("ReluGrad", "LeakyReluGrad", "EluGrad", "SeluGrad", "SoftplusGrad", "SoftsignGrad"), (0,)),
    "SelectV2": (1, 2),
    **dict.fromkeys(("TanhGrad", "SigmoidGrad", "RsqrtGrad", "SqrtGrad", "ReciprocalGrad"), (1,)),
}
BATCH_PRODUCTS = ("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
BATCH_NORMS = ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
BATCH_NORM_GRADIENTS = ("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3")
_STATEFUL: dict[str, bool] = {}
_WITH_FUNCTIONS: dict[str, bool] = {}


def is_stateful(op: tf.Operation) -> bool:
    if op.type not in _STATEFUL:
        _STATEFUL[op.type] = bool(op.op_def.is_stateful)
    return _STATEFUL[op.type]


def has_functions(op: tf.Operation) -> bool:
    """Whether ops of this type have functions: calls, loops, datasets."""
    if op.type not in _WITH_FUNCTIONS:
        _WITH_FUNCTIONS[op.type] = any(attribute.type in ("func", "list(func)") for attribute in op.op_def.attr)
    return _WITH_FUNCTIONS[op.type]


def rounds(op: tf.Operation) -> bool:
    """Whether the op makes whole numbers of others: that is not linear."""
    return op.type == "Cast" and not (op.outputs[0].dtype.is_floating or op.outputs[0].dtype.is_complex)


def has_effects(op: tf.Operation) -> bool:
    """Whether the op, or a function that it calls, may change something that outlives it, or get at such a thing."""
    if op.type == "PrintV2" and op.get_attr("output_stream").startswith(b"file:"):
        return True
    if op.type in _TELLING:
        return True
    return is_stateful(op) and op.type not in READS and op.type not in HARMLESS


def may_write(op: tf.Operation) -> bool:
    """The same of the op itself, not of the functions that it calls."""
    return has_effects(op) and op.type not in CALLS


def may_remember(op: tf.Operation) -> bool:
    """Whether the op may keep what it is given, though no resource is handed to it.

    Kernels may have a state of their own, as that of `tf.random.learned_unigram_candidate_sampler`, which counts all
    classes that it ever got. No list of those is complete: what is not known to forget is taken to remember. (Python,
    which may remember anything, has a rule of its own.)
    """
    return may_write(op) and op.type not in PYTHON and (not op.outputs or op.type not in FORGETFUL)
