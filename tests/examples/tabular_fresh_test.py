"""examples/tabular: how the problems are prepared that the default was not chosen on, on small stand-ins."""

import numpy as np
import pytest

from examples.tabular import fresh, fresher, further, problems


def many(rows, times=5):
    """Five of each: four fifths of all are for training."""
    return [dict(row) for row in rows for _ in range(times)]


def both(table):
    """Rows of both parts, without their order."""
    x, y = np.concatenate([table.x_train, table.x_test]), np.concatenate([table.y_train, table.y_test])
    assert len(table.x_train) == int(0.8 * len(x)) and x.dtype == np.float32
    return sorted({tuple(round(float(value), 5) for value in (*row, label)) for row, label in zip(x, y)})


def test_wives():
    """Full time is 35 hours; whi, which comes with the work, is no feature."""
    kinds = {"hhi": "no", "hhi2": "yes", "education": "12years", "race": "white", "hispanic": "no", "region": "west"}
    row = {"experience": "25", "kidslt6": "1", "kids618": "2", "husby": "20", "wght": "300000", "whi": "yes", **kinds}
    table = fresh.wives_of(many([{**row, "whrswk": "34"}, {**row, "whrswk": "35", "region": "south"}]))
    numbers = (0.5, 0.1, 0.2, 0.1, 0.2, 1.0, 1.0, 1.0, 1.0, 1.0)
    assert both(table) == [(*numbers, 0.0, 1.0, 0.0), (*numbers, 1.0, 0.0, 1.0)]


def test_pharmacy():
    row = {"lnhhexp": "3", "age": "2.5", "educ": "6", "illness": "1", "illdays": "6", "actdays": "3", "sex": "male"}
    row |= {"married": "1", "injury": "0", "insurance": "1", "commune": "1"}
    table = fresh.pharmacy_of(many([{**row, "pharvis": "0"}, {**row, "pharvis": "2", "commune": "9"}]))
    numbers = (0.5, 0.5, 0.5, 0.1, 0.1, 0.1, 1.0, 0.0, 1.0, 1.0)
    assert both(table) == [(*numbers, 0.0, 1.0, 1.0), (*numbers, 1.0, 0.0, 0.0)]


def test_lecturers():
    """The mark is 3 less; the student's number is no feature."""
    row = {"d": "1002", "dept": "2", "service": "0", "studage": "2", "lectage": "2"}
    table = fresh.lecturers_of(many([{**row, "s": "1", "y": "5"}, {**row, "s": "2", "y": "1", "d": "5"}]))
    assert both(table) == [(0.0, 1.0, 1.0, 1.0, 1.0, 1.0, -2.0), (1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 2.0)]


def test_food():
    """A share of 0 to 1 becomes -2 to 2; a missing sex is a level."""
    row = {"totexp": "1000000", "age": "50", "size": "4", "town": "2", "sex": "man"}
    table = fresh.food_of(many([{**row, "wfood": "0.75"}, {**row, "wfood": "0", "sex": "NA"}]))
    assert both(table) == [(0.1, 0.5, 0.1, 1.0, 0.0, 1.0, 1.0), (0.1, 0.5, 0.1, 1.0, 1.0, 0.0, -2.0)]


def test_doctor():
    """Numbers as they are; log(1 + visits) - 1."""
    row = dict(zip(fresh.RAW_DOCTOR, ["0", "6.9", "1", "13.7", "9.5", "1.4", "12", "42.9"]))
    row |= {"idp": "TRUE", "physlim": "FALSE", "health": "good", "sex": "male", "child": "FALSE", "black": "TRUE"}
    table = fresh.doctor_of(many([{**row, "mdu": "0"}, {**row, "mdu": "9", "health": "poor"}]))
    numbers = (0.0, 6.9, 1.0, 13.7, 9.5, 1.4, 12.0, 42.9, 1.0, 1.0)
    expected = [(*numbers, 0.0, 1.0, 1.0, 1.0, 1.0, np.log(10.0) - 1.0), (*numbers, 1.0, 0.0, 1.0, 1.0, 1.0, -1.0)]
    np.testing.assert_allclose(both(table), expected, atol=1e-5)


def test_computers():
    """Numbers as they are; 1,000 to 5,000 dollars are about -2 to 2."""
    row = dict(zip(fresh.RAW_COMPUTERS, ["25", "80", "4", "14", "94", "1"])) | {
        "cd": "no",
        "multi": "no",
        "premium": "yes",
    }
    table = fresh.computers_of(many([{**row, "price": "1000"}, {**row, "price": "5000", "cd": "yes"}]))
    first, second = both(table)
    assert first[:6] == second[:6] == (25.0, 80.0, 4.0, 14.0, 94.0, 1.0)
    assert first[6:10] == (0.0, 1.0, 1.0, 1.0) and second[6:10] == (1.0, 0.0, 1.0, 1.0)
    assert (first[-1], second[-1]) == (pytest.approx(2.04, abs=0.01), pytest.approx(-1.98, abs=0.01))


def test_digits():
    table = fresh.digits(None)
    assert table.x_train.shape == (1437, 64) and table.x_train.max() == 1.0 and set(table.y_test) == set(range(10))


def test_batch_size_and_epochs_follow_from_the_number_of_rows():
    """As on the problems before them: nothing is chosen."""
    rows = {
        "wives": 17_817,
        "pharmacy": 22_212,
        "lecturers": 58_736,
        "food": 19_177,
        "doctor": 16_148,
        "computers": 5_007,
        "digits": 1_437,
    }
    assert set(rows) == {problem.name for problem in problems.FRESH}
    for problem in problems.FRESH:
        n = rows[problem.name]
        expected = (256, 15) if n < 10_000 else (512, 10) if n < 50_000 else (1024, 5)
        assert (problem.batch_size, problem.epochs) == expected and problem.epsilon == 1.0 and not problem.hidden


# ---------------------------------------------------------------------------------------------------
# Those that judged a change of the default, and those that judged it once more.


def test_star():
    """475 points are 0, 85 more are 1; a column for each school."""
    row = {"totexpk": "15", "classk": "regular", "sex": "girl", "freelunk": "no", "race": "white", "treadssk": "400"}
    table = fresher.star_of(
        many([{**row, "tmathssk": "475", "schidkn": "7"}, {**row, "tmathssk": "560", "schidkn": "8"}])
    )
    assert both(table) == [(0.5, 1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0), (0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0)]


def test_males():
    """The man's number is no feature."""
    names = ("year", "union", "ethn", "married", "health", "industry", "occupation", "residence")
    row = {"school": "10", "exper": "5", **dict.fromkeys(names, "a")}
    table = fresher.males_of(many([{**row, "nr": "1", "wage": "1.5"}, {**row, "nr": "2", "wage": "2", "union": "b"}]))
    assert both(table) == [
        (0.5, 0.1, *[1.0] * 1, 0.0, 1.0, *[1.0] * 6, 1.0),
        (0.5, 0.1, *[1.0] * 2, 0.0, *[1.0] * 6, 0.0),
    ]


def test_benefits():
    row = {"stateur": "5", "statemb": "250", "age": "50", "tenure": "5", "yrdispl": "5", "rr": "0.5", "bluecol": "yes"}
    names = ("state", "joblost", "nwhite", "school12", "sex", "smsa", "married", "dkids", "dykids", "head")
    row |= dict.fromkeys(names, "no")
    table = fresher.benefits_of(many([{**row, "ui": "no"}, {**row, "ui": "yes"}]))
    numbers = (0.2, 0.5, 0.5, 0.1, 0.5, 0.5, *[1.0] * 10)
    assert both(table) == [(*numbers, 0.0), (*numbers, 1.0)]


def test_movies():
    """A column for each decade; 5.5 stars are 0."""
    row = {"length": "60", "votes": "20000", "mpaa": "", "budget": "NA", **dict.fromkeys(fresher.GENRES, "1")}
    table = fresher.movies_of(many([{**row, "year": "1971", "rating": "5.5"}, {**row, "year": "1989", "rating": "10"}]))
    numbers = (0.1, 0.1, *[1.0] * 8)
    assert both(table) == [(*numbers, 0.0, 1.0, 2.0), (*numbers, 1.0, 0.0, 0.0)]


def test_football():
    row = {"HomeTeam": "A", "AwayTeam": "B", "Round": "19", "Year": "1990", "HomeGoals": "1"}
    table = further.football_of(many([{**row, "AwayGoals": "1"}, {**row, "AwayGoals": "0", "AwayTeam": "C"}]))
    assert both(table) == [(0.5, 1.0, 0.0, 1.0, 1.0, 1.0), (0.5, 1.0, 1.0, 0.0, 1.0, 0.0)]


def test_verbal():
    row = {"Anger": "20", **dict.fromkeys(("Gender", "item", "btype", "situ", "mode"), "a"), "resp": "no"}
    table = further.verbal_of(many([{**row, "id": "1", "r2": "N"}, {**row, "id": "2", "r2": "Y"}]))
    ones = (1.0, 1.0, 1.0)
    assert both(table) == [(0.5, 1.0, 1.0, 0.0, 1.0, *ones, 1.0), (0.5, 1.0, 1.0, 1.0, 0.0, *ones, 0.0)]


def test_relapse():
    """Age is in months; the child's number is no feature."""
    names = ("instit", "histol", "stage", "study", "in.subcohort")
    row = {"seqno": "1", "age": "24", **dict.fromkeys(names, "1")}
    table = further.relapse_of(many([{**row, "rel": "0"}, {**row, "rel": "1", "stage": "2"}]))
    assert both(table) == [(0.1, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0), (0.1, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 0.0)]


def test_earners():
    """Those who earn nothing are left out, and those whose education is not known."""
    row = {"age": "50", "educatn": "10", "hours": "2500", "kids": "1", "married": "married"}
    table = further.earners_of(
        many([{**row, "earnings": "0"}, {**row, "earnings": "13359.73"}, {**row, "earnings": "1", "educatn": "NA"}], 10)
    )
    np.testing.assert_allclose(both(table), [(0.5, 0.5, 0.5, 0.1, 1.0, 0.0)], atol=1e-4)


def test_hours():
    """The man's number is no feature."""
    row = {"lnwg": "2.5", "kids": "1", "age": "50", "disab": "0", "id": "1"}
    table = further.hours_of(many([{**row, "lnhr": "7.5", "year": "1979"}, {**row, "lnhr": "7.8", "year": "1980"}]))
    np.testing.assert_allclose(
        both(table), [(0.5, 0.1, 0.5, 0.0, 0.0, 1.0, 1.0), (0.5, 0.1, 0.5, 0.0, 1.0, 0.0, 0.0)], atol=1e-4
    )


def test_ontario():
    """Rows with a missing field are left out."""
    row = {"education": "10", "age": "50", "sex": "Male", "language": "English"}
    rows = [{**row, "wages": "13.463738"}, {**row, "wages": "NA"}, {**row, "wages": "10", "language": "NA"}]
    np.testing.assert_allclose(both(further.ontario_of(many(rows, 10))), [(0.5, 0.5, 1.0, 1.0, 0.0)], atol=1e-4)


def check_numbers(prepare, ends, kinds, label, values, expected):
    """Two rows with labels `values`: numbers at half of their ends, one level for the rest, and the label."""
    row = {**{name: str(end / 2.0) for name, end in ends.items()}, **dict.fromkeys(kinds, "a")}
    table = prepare(many([{**row, label: value} for value in values]))
    rows = [(*[0.5] * len(ends), *[1.0] * len(kinds), value) for value in expected]
    np.testing.assert_allclose(both(table), sorted(rows), atol=1e-4)


def test_the_last_reserve():
    """Ends of ranges, levels and labels, table by table."""
    ends = {"income": 10_000.0, "age": 100.0, "education": 20.0, "child5": 10.0, "child13": 10.0, "child17": 10.0}
    ends |= {"nonwhite": 1.0, "owned": 1.0, "mortgage": 1.0, "unemp": 30.0}
    check_numbers(further.workers_of, ends, ["occupation"], "hours", ["0", "2000"], [-1.0, 1.0])
    ends = {"spell": 30.0, "age": 100.0, "reprate": 2.0, "disrate": 1.0, "logwage": 10.0, "tenure": 50.0}
    check_numbers(further.spells_of, ends, ["ui"], "censor1", ["0", "1"], [0.0, 1.0])
    ends = {"dir": 3.0, "hir": 3.0, "lvr": 2.0, "ccs": 6.0, "mcs": 4.0, "uria": 20.0, "comdominiom": 1.0}
    kinds = ["pbcr", "dmi", "self", "single", "black"]
    check_numbers(further.mortgages_of, ends, kinds, "deny", ["no", "yes"], [0.0, 1.0])
    ends = dict.fromkeys(("procedure", "sex", "age75", "admit"), 1.0)
    check_numbers(further.stays_of, ends, ["hospital"], "los", ["7.389056", "14.879731"], [0.0, 1.0])
    ends = {"IQ": 20.0, "GS": 40.0, "SES": 50.0, "COMB": 1.0}
    check_numbers(further.pupils_of, ends, ["class"], "lang", ["40", "50"], [0.0, 1.0])
    ends = {"age": 100.0, "educ": 20.0, "re74": 200_000.0, "re75": 200_000.0}
    kinds = ["treat", "ethn", "married", "u74", "u75"]
    check_numbers(further.trainees_of, ends, kinds, "re78", ["20000", "35000"], [0.0, 1.0])
    for problem in problems.RESERVED_LAST:  # all have fewer than 10,000 rows
        assert (problem.batch_size, problem.epochs, problem.epsilon, problem.hidden) == (256, 15, 1.0, 0)


def test_the_second_reserve_follows_the_rules_too():
    rows = {"football": 11_214, "verbal": 6_067, "relapse": 3_222, "earners": 2_921, "hours": 4_256, "ontario": 3_189}
    assert set(rows) == {problem.name for problem in problems.RESERVED_AGAIN}
    for problem in problems.RESERVED_AGAIN:
        expected = (256, 15) if rows[problem.name] < 10_000 else (512, 10)
        assert (problem.batch_size, problem.epochs) == expected and problem.epsilon == 1.0 and not problem.hidden


def test_reserved_problems_are_in_no_comparison():
    reserved = (*problems.RESERVED, *problems.RESERVED_AGAIN, *problems.RESERVED_LAST)
    assert not {problem.name for problem in reserved} & set(problems.PROBLEMS)
    assert all(problem.fresh for problem in reserved)
