"""The private app on Flower's SuperLink and SuperNodes as processes: clients and the server are killed."""

import time

import dp_accounting
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'adaclip-tf[flower]'")

import adaclip_tf
from adaclip_tf.flower import saved
from examples.federated import processes

CONFIG = {"clients-per-round": 3, "noise-multiplier": 1.5, "timeout": 90.0}
CLIENTS = 4


def by_hand(rounds):
    """dp_accounting's epsilon of so many rounds of 3 of 4 clients, composed one by one."""
    accountant = dp_accounting.rdp.RdpAccountant()
    for _ in range(rounds):
        accountant.compose(dp_accounting.PoissonSampledDpEvent(0.75, dp_accounting.GaussianDpEvent(1.5)))
    return accountant.get_epsilon(1e-2)


def wait_for(what, seconds=300.0):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.slow
def test_a_run_with_clients_that_clip_ends_before_its_target(tmp_path):
    target = by_hand(2) + 0.01
    with processes.Federation(tmp_path, CLIENTS) as federation:
        found = federation.run({**CONFIG, "num-rounds": 5, "clipping": "client", "target-epsilon": target})
    assert found["rounds"] == 2
    assert found["epsilon"] == pytest.approx(by_hand(2), rel=1e-9)


@pytest.mark.slow
def test_a_client_is_killed_in_a_round_and_the_run_ends_with_the_right_count(tmp_path):
    with processes.Federation(tmp_path, CLIENTS) as federation:
        federation.submit({**CONFIG, "num-rounds": 3, "wait-for": CLIENTS})

        def asked():
            return [k for k in range(CLIENTS) if "train message" in federation.log(f"client-{k}")]

        wait_for(asked)
        killed = asked()[0]
        federation.kill(f"client-{killed}")
        assert "Sent successfully" not in federation.log(f"client-{killed}")  # it was in the middle of it
        time.sleep(1.0)
        federation.start_client(killed)  # a new node: the old one never answers
        wait_for((tmp_path / "result.json").exists)
    assert saved.read(str(tmp_path / "server.npz")).done == 3
    ledger = adaclip_tf.Ledger(tmp_path / "ledger.json")
    assert ledger.read()[0][0].steps == 3
    assert ledger.epsilon(delta=1e-2) == pytest.approx(by_hand(3), rel=1e-9)


@pytest.mark.slow
def test_the_server_is_killed_and_goes_on_with_the_right_epsilon(tmp_path):
    state = tmp_path / "server.npz"
    with processes.Federation(tmp_path, CLIENTS) as federation:
        federation.submit({**CONFIG, "num-rounds": 4, "wait-for": CLIENTS})
        wait_for(state.exists)
        federation.kill("superlink")
    done = saved.read(str(state)).done
    (phase,) = adaclip_tf.Ledger(tmp_path / "ledger.json").read()[0]
    assert 1 <= done < 4 and phase.steps in (done, done + 1) and phase.open
    assert not (tmp_path / "result.json").exists()
    with processes.Federation(tmp_path, CLIENTS) as federation:
        found = federation.run({**CONFIG, "num-rounds": 4})
    assert found["rounds"] == 4
    assert found["epsilon"] == pytest.approx(by_hand(phase.steps + 4 - done), rel=1e-9)
