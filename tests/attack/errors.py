"""Tells a refusal, which the library raises in words of its own, from an error that happens to it."""

from __future__ import annotations

import linecache
import pathlib
import re
import traceback

import tensorflow as tf

import adaclip_tf

_LIBRARY = pathlib.Path(adaclip_tf.__file__).parent
_LOOP_NOTE = "AutoGraph tried to define it automatically, but ran into"


def in_words(error: BaseException) -> bool:
    """Whether the library itself raised the error, or a check of it in the run did."""
    if isinstance(error, tf.errors.InvalidArgumentError):
        return "assertion failed" in str(error)
    if not isinstance(error, (ValueError, NotImplementedError)):
        return False
    if _LOOP_NOTE in str(error):  # in a loop AutoGraph quotes the error, without frames
        return re.search(f"{_LOOP_NOTE} a (ValueError|NotImplementedError): ", str(error)) is not None
    # AutoGraph puts the frames of the function it traced into the message.
    frames = re.findall(r'File "([^"]+)", line (\d+)', str(error))
    if not frames:
        frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    file, line = frames[-1]
    # TensorFlow leaves its own frames out, so what it raised seems to come from the line that called it.
    return _LIBRARY in pathlib.Path(file).parents and linecache.getline(file, int(line)).lstrip().startswith("raise ")


def xla_cannot(error: BaseException) -> bool:
    """Whether XLA does not compile the step: it knows fewer ops, fewer of them in loops, and no ragged gather."""
    words = ("XLA compilation requires", "Detected unsupported operations", "tf2xla conversion failed")
    return isinstance(error, tf.errors.InvalidArgumentError) and any(text in str(error) for text in words)


def summary(error) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = next((line for line in lines if re.match(r"\w*Error: ", line)), lines[0] if lines else "")
    text = next((line for line in lines if _LOOP_NOTE in line), text)
    if isinstance(error, tf.errors.OpError):  # between the frames of the traceback that TensorFlow prints
        said = [line for line in lines if not line.startswith(("File ", "Detected at", "Graph execution", "[[{{"))]
        text = next((line for line in said if "assertion" in line), " / ".join(said[:3]))
    return f"{type(error).__name__}: {text}"[:400]
