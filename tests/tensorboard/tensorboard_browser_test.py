"""`PrivacyTensorBoard` as a person sees it: the real TensorBoard on loopback, in headless Chromium.

Screenshots are kept where ADACLIP_TF_SCREENSHOTS says; those of docs/tensorboard.md are made by

    ADACLIP_TF_SCREENSHOTS=docs/figures python -m pytest -m slow tests/tensorboard/tensorboard_browser_test.py
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import urllib.request

import numpy as np
import pytest
import tensorflow as tf
from sklearn import datasets

import adaclip_tf
from adaclip_tf.data import sampling
from adaclip_tf.privacy import budget
from adaclip_tf.tensorboard import PrivacyTensorBoard

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
N, BATCH, EPOCHS = 1500, 500, 15
NEEDED = 120  # seconds that the server may take to start and to read the runs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed; `apt-get install chromium` does it"),
]

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--disable-3d-apis",  # TensorBoard then draws lines as SVG, for which headless Chromium's clock waits
    "--run-all-compositor-stages-before-draw",
)


def train(folder):
    """Softmax regression on scikit-learn's digits, 8 x 8 pixels: AdaCliP, and clipping at 1."""
    inputs, labels = datasets.load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(inputs))  # in the data they are ordered by writer
    inputs, labels = (inputs[order] / 16.0).astype(np.float32), labels[order]
    training, held_out = (inputs[:N], labels[:N]), (inputs[N:], labels[N:])
    options = {"noise_multiplier": 1.3, "expected_batch_size": BATCH, "seed": 1}
    optimizers = {
        "adaclip": adaclip_tf.DPAdaClipSGD(1.0, h2=4e-3, beta_2=0.98, initial_std=0.03, **options),
        "fixed_clip": adaclip_tf.DPFixedClipSGD(1.0, l2_norm_clip=1.0, **options),
    }
    for name, made in optimizers.items():
        tf.keras.utils.set_random_seed(0)  # the second model's layer is dense_1 to Keras, and dense to TensorBoard
        model = tf.keras.Sequential([tf.keras.Input((64,)), tf.keras.layers.Dense(10)])
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
        model.compile(made, loss, metrics=["accuracy"])
        counting = budget.PrivacyBudget(num_examples=N, batch_size=BATCH, delta=1e-4)
        board = PrivacyTensorBoard(folder / name, budget=counting, update_freq=5, hparams={"layers": 1}, image_freq=5)
        batches = sampling.poisson_batches(training, expected_batch_size=BATCH, steps=10, seed=2)
        model.fit(batches, epochs=EPOCHS, validation_data=held_out, callbacks=[counting, board], verbose=0)


def get(url, data=None):
    headers = {"Content-Type": "application/json"}
    body = None if data is None else json.dumps(data).encode()
    with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=30) as answer:
        return json.load(answer)


def wait_for(what, condition):
    """The first true value of `condition`, polled."""
    end = time.monotonic() + NEEDED
    while time.monotonic() < end:
        try:
            value = condition()
        except OSError:
            value = None
        if value:
            return value
        time.sleep(0.5)
    pytest.fail(f"waited {NEEDED} s for {what}")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of a TensorBoard that has read two runs."""
    folder = tmp_path_factory.mktemp("server")
    train(folder / "runs")
    log = folder / "tensorboard.log"
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", "runs"]
    with log.open("w") as out:
        process = subprocess.Popen([*command, "--host", "127.0.0.1", "--port", "0"], cwd=folder, stdout=out, stderr=out)
    try:
        found = wait_for("TensorBoard to start", lambda: re.search(r"http://127\.0\.0\.1:\d+", log.read_text()))
        address = found.group()
        wait_for("the runs", lambda: set(get(f"{address}/data/runs")) == {"adaclip", "fixed_clip"})
        wait_for("the statements", lambda: "privacy_statement" in str(get(f"{address}/data/plugin/text/tags")))
        wait_for("the images", lambda: "2_noise/image" in str(get(f"{address}/data/plugin/images/tags")))
        yield address
    finally:
        process.terminate()
        process.wait(timeout=30)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    kept = os.environ.get("ADACLIP_TF_SCREENSHOTS")
    chosen = pathlib.Path(kept).resolve() if kept else tmp_path_factory.mktemp("screenshots")
    chosen.mkdir(parents=True, exist_ok=True)
    return chosen


def browse(address, *flags):
    """Runs Chromium until the page has loaded and its charts are drawn; returns what it prints."""
    profile = pathlib.Path(os.environ.get("TMPDIR", "/tmp")) / f"adaclip_tf_chromium_{os.getpid()}"
    try:
        done = subprocess.run(
            [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "--virtual-time-budget=60000", *flags, address],
            capture_output=True,
            text=True,
            timeout=180,
            check=True,
        )
    finally:
        shutil.rmtree(profile, ignore_errors=True)
    return done.stdout


def screenshot(address, path, size):
    browse(address, f"--screenshot={path}", f"--window-size={size[0]},{size[1]}")
    return tf.io.decode_png(path.read_bytes(), channels=3).numpy().astype(int)


def coloured(pixels, box):
    """How many pixels of a box (left, top, right, bottom) are neither grey nor TensorBoard's orange."""
    left, top, right, bottom = box
    part = pixels[top:bottom, left:right].reshape(-1, 3)
    orange = (np.abs(part - [245, 124, 0]) < 30).all(axis=1)
    return int(np.sum((np.ptp(part, axis=1) > 60) & ~orange))


PAGES = {
    # page: (address below the server's, file, size, boxes that must hold coloured lines or pictures)
    "time series": (
        "?smoothing=0#timeseries",
        "tensorboard_overview.png",
        (1700, 1180),
        [(300, 270, 690, 580), (720, 270, 1110, 580), (300, 700, 690, 1100), (720, 700, 1110, 1100)],
    ),
    "custom scalars": (
        "#custom_scalars&_smoothingWeight=0",
        "tensorboard_scalars.png",
        (1500, 1240),
        [
            *[(left, 155, left + 330, 335) for left in (385, 735)],
            *[(left, 530, left + 330, 715) for left in (385, 735)],
        ],
    ),
    "images": ("#images", "tensorboard_images.png", (1500, 1000), [(375, 200, 730, 500), (740, 200, 1100, 500)]),
    "histograms": ("#histograms", "tensorboard_histograms.png", (1500, 600), [(375, 150, 1100, 500)]),
    "hparams": ("#hparams", "tensorboard_hparams.png", (1900, 420), []),
    "text": ("#text", "tensorboard_text.png", (1300, 760), []),
}


@pytest.mark.parametrize("page", PAGES)
def test_page_shows_charts(server, folder, page):
    address, name, size, boxes = PAGES[page]
    counts = []
    for _ in range(3):  # a busy machine may need a second look
        pixels = screenshot(f"{server}/{address}", folder / name, size)
        counts = [coloured(pixels, box) for box in boxes]
        if all(count > 60 for count in counts):
            break
    assert all(count > 60 for count in counts), counts
    assert pixels.shape[:2] == (size[1], size[0])
    assert np.std(pixels) > 10


def test_time_series_begins_with_what_matters(server):
    text = browse(f"{server}/#timeseries", "--dump-dom", "--window-size=1500,2500")
    places = [text.find(f"1_overview/{name}") for name in ("accuracy_by_epsilon", "epsilon", "noise_norm")]
    assert 0 < places[0] < places[1] < places[2]
    others = [text.find(group) for group in ("2_noise", "3_gradient", "4_variables", "5_histograms")]
    assert max(places) < min(place for place in others if place > 0)
    assert "adaclip" in text and "adaclip/" not in text  # one run for each training, called by its folder


def test_variables_of_both_runs_have_the_same_names(server):
    tags = get(f"{server}/data/plugin/scalars/tags")
    shares = [{tag for tag in tags[run] if tag.startswith("2_noise/share")} for run in ("adaclip", "fixed_clip")]
    assert shares[0] == shares[1] == {"2_noise/share/dense/kernel", "2_noise/share/dense/bias"}


def test_hparams_compare_the_runs(server):
    request = {
        "experimentName": "",
        "allowedStatuses": ["STATUS_UNKNOWN", "STATUS_SUCCESS", "STATUS_FAILURE", "STATUS_RUNNING"],
        "colParams": [{"metric": {"tag": "1_overview/epsilon", "group": ""}}],
        "startIndex": 0,
        "sliceSize": 10,
    }
    groups = get(f"{server}/data/plugin/hparams/session_groups", request)["sessionGroups"]
    assert {group["name"] for group in groups} == {"adaclip", "fixed_clip"}
    assert {group["hparams"]["optimizer"] for group in groups} == {"DPAdaClipSGD", "DPFixedClipSGD"}
    values = [{one["name"]["tag"]: one["value"] for one in group["metricValues"]} for group in groups]
    assert values[0]["1_overview/epsilon"] == values[1]["1_overview/epsilon"] > 0
    assert all(value["1_overview/validation_accuracy"] > 0.5 for value in values)
    assert all(session["status"] == "STATUS_SUCCESS" for group in groups for session in group["sessions"])
