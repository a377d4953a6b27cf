"""Tests of examples/launch.py, with programs that need no TensorFlow."""

import json
import socket

import pytest

from examples import launch

_REPORT = """
import os, sys, json
task = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
open(sys.argv[1] + f"/{task}.json", "w").write(os.environ["TF_CONFIG"])
"""
# Worker 1 fails the first time; worker 0 would sleep for ever then.
_FAILS_ONCE = """
import os, sys, json, time, signal
task = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
marker = sys.argv[1] + "/failed"
if task == 1 and not os.path.exists(marker):
    while not os.path.exists(sys.argv[1] + "/failed_before"):
        time.sleep(0.05)
    open(marker, "w").close()
    os.kill(os.getpid(), signal.SIGKILL)
if task == 0 and not os.path.exists(sys.argv[1] + "/failed_before"):
    open(sys.argv[1] + "/failed_before", "w").close()
    time.sleep(1000)
"""


def test_every_worker_knows_all_of_them(tmp_path):
    assert launch.launch(["-c", _REPORT, str(tmp_path)], 3) == 0
    configs = [json.loads((tmp_path / f"{i}.json").read_text()) for i in range(3)]
    assert [config["task"] for config in configs] == [{"type": "worker", "index": i} for i in range(3)]
    assert configs[0]["cluster"] == configs[1]["cluster"] == configs[2]["cluster"]
    assert len(set(configs[0]["cluster"]["worker"])) == 3


def test_one_that_fails_stops_the_others(tmp_path):
    processes = []
    assert launch.launch(["-c", _FAILS_ONCE, str(tmp_path)], 2, started=processes.extend) == -9
    assert all(process.poll() is not None for process in processes)


def test_all_are_started_anew(tmp_path):
    starts = []
    assert launch.launch(["-c", _FAILS_ONCE, str(tmp_path)], 2, restarts=1, started=starts.append) == 0
    assert len(starts) == 2


def test_restarts_end(tmp_path):
    starts = []
    assert launch.launch(["-c", "import sys; sys.exit(3)"], 2, restarts=2, started=starts.append) == 3
    assert len(starts) == 3


def test_one_that_does_not_listen_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "_GRACE_SECONDS", 0.5)
    deaf = f"""
import os, signal, sys, time, json
if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    open({str(tmp_path / "ready")!r}, "w").close()
    time.sleep(1000)
while not os.path.exists({str(tmp_path / "ready")!r}):
    time.sleep(0.05)
sys.exit(4)
"""
    processes = []
    assert launch.launch(["-c", deaf], 2, started=processes.extend) == 4
    assert processes[0].poll() == -9


def test_others_print_to_files(tmp_path):
    program = "import os, json; print('I am', json.loads(os.environ['TF_CONFIG'])['task']['index'])"
    assert launch.launch(["-c", program], 2, log_dir=tmp_path) == 0
    assert (tmp_path / "worker_1.log").read_text() == "I am 1\n"
    assert not (tmp_path / "worker_0.log").exists()


def test_ports_are_free_and_differ():
    ports = launch.free_ports(5)
    assert len(set(ports)) == 5
    for port in ports:
        with socket.socket() as taken:
            taken.bind(("localhost", port))


def test_a_command_is_needed():
    from absl import app

    with pytest.raises(app.UsageError, match="say what to run"):
        launch.main(["launch"])
