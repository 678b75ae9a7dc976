"""Hosts are served in turn: one that is dead, slow or crowded keeps no other waiting."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from jobs.notifications import turns
from jobs.notifications.attempts import MAX_ATTEMPTS
from jobs.notifications.delivering import AT_ONCE, Deliverer
from jobs.notifications.post import Answer, NotSent
from jobs.notifications.turns import Turns, host_of
from jobs.records.evaluations import NotificationState
from jobs.settings import Settings
from jobs.storage import Storage
from jobs.store import notifications
from tests.support.job_store import StoreUnderTest

DEAD = "https://dead.example/hook"
LIVING = "https://living.example/hook"


class Network:
    """Hosts that take what is sent, and some that say nothing.

    Attributes:
        sent: how often to each host.
        most: requests that were under way at once: in all, and to each host.
    """

    def __init__(self, *silent: str) -> None:
        self.silent = {host_of(url) for url in silent}
        self.sent: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self._under_way: Counter[str] = Counter()
        self._lock = threading.Lock()

    def post(self, url: str, body: bytes, headers: Mapping[str, str], seconds: float) -> Answer:
        host = host_of(url)
        with self._lock:
            self.sent[host] += 1
            for key in (host, "in all"):
                self._under_way[key] += 1
                self.most[key] = max(self.most[key], self._under_way[key])
        time.sleep(0)  # so that others come in between
        with self._lock:
            self._under_way.subtract((host, "in all"))
        if host in self.silent:
            raise NotSent(f"no answer within {seconds:g} s")
        return Answer(204, None)


def due(back: StoreUnderTest, number: int, url: str, name: str = "eval") -> None:
    with back.database.begin() as connection:
        for ordinal in range(number):
            notifications.record(connection, f"{name}_{ordinal}", "evaluation.failed", url, {})


def deliverer(back: StoreUnderTest, network: Network, tmp_path: Path) -> Deliverer:
    return Deliverer(Settings.from_env({}), back.store, Storage(str(tmp_path)), network.post)


def states(back: StoreUnderTest, host: str) -> Counter[tuple[NotificationState, int]]:
    """How many notifications to a host are in which state, after so many attempts."""
    found = back.store.notifications(limit=10_000)
    return Counter((told.state, told.attempts) for told in found if told.url == host)


def test_two_thousand_to_a_dead_host_keep_no_other_waiting(
    back: StoreUnderTest, tmp_path: Path
) -> None:
    due(back, 2000, DEAD)
    due(back, 3, LIVING)
    network = Network(DEAD)
    sender = deliverer(back, network, tmp_path)
    sender.deliver_due()
    assert states(back, LIVING) == {(NotificationState.DELIVERED, 1): 3}
    assert network.sent == {host_of(DEAD): 1, host_of(LIVING): 3}
    # The attempt of one was that of all, so none of them is tried for longer than before.
    assert states(back, DEAD) == {(NotificationState.PENDING, 1): 2000}
    assert (sender.delivered, sender.failures, sender.given_up) == (3, 1, 0)
    told = [n for n in back.store.notifications(limit=10_000) if n.url == DEAD]
    assert Counter(n.error for n in told) == {
        "no answer within 10 s": 1,
        "no answer within 10 s, when another one was sent to its host": 1999,
    }


def test_what_was_put_off_is_sent_when_the_host_is_back(
    back: StoreUnderTest, tmp_path: Path
) -> None:
    due(back, 20, DEAD)
    network = Network(DEAD)
    sender = deliverer(back, network, tmp_path)
    sender.deliver_due()
    network.silent.clear()
    back.let_notifications_be_due()
    sender.deliver_due()
    assert states(back, DEAD) == {(NotificationState.DELIVERED, 2): 20}


def test_nothing_is_given_up_without_a_last_attempt_of_its_own(
    back: StoreUnderTest, tmp_path: Path
) -> None:
    due(back, 3, DEAD)
    network = Network(DEAD)
    sender = deliverer(back, network, tmp_path)
    for _ in range(MAX_ATTEMPTS - 1):
        sender.deliver_due()
        back.let_notifications_be_due()
    assert states(back, DEAD) == {(NotificationState.PENDING, MAX_ATTEMPTS - 1): 3}
    assert sum(network.sent.values()) == MAX_ATTEMPTS - 1
    for given_up in (1, 2, 3):
        sender.deliver_due()
        back.let_notifications_be_due()
        assert sender.given_up == given_up
    assert states(back, DEAD) == {(NotificationState.FAILED, MAX_ATTEMPTS): 3}
    assert sum(network.sent.values()) == MAX_ATTEMPTS + 2


def test_what_was_tried_least_is_sent_first(back: StoreUnderTest, tmp_path: Path) -> None:
    """One path of a host that hangs keeps none waiting that is new."""
    due(back, 1, DEAD, "old")
    network = Network(DEAD)
    sender = deliverer(back, network, tmp_path)
    sender.deliver_due()
    due(back, 1, DEAD, "new")
    back.let_notifications_be_due()
    order = [id for id, _ in back.store.due_notifications()]
    subjects = [back.store.notification(id).subject for id in order]
    assert subjects == ["new_0", "old_0"]


def test_a_subject_puts_off_nothing_of_others(back: StoreUnderTest, tmp_path: Path) -> None:
    due(back, 2, DEAD)
    due(back, 1, f"{DEAD}/two")
    network = Network(DEAD)
    deliverer(back, network, tmp_path).deliver_due("eval_0")
    tried = {(n.subject, n.url): n.attempts for n in back.store.notifications()}
    assert tried == {("eval_0", DEAD): 1, ("eval_0", f"{DEAD}/two"): 1, ("eval_1", DEAD): 0}
    assert sum(network.sent.values()) == 1


def test_the_requests_at_once_are_bounded(back: StoreUnderTest, tmp_path: Path) -> None:
    for host in range(6):
        due(back, 20, f"https://{host}.example/hook")
    network = Network()
    deliverer(back, network, tmp_path).deliver_due()
    assert sum(network.sent.values()) == 120
    assert network.most.pop("in all") <= AT_ONCE
    assert all(most <= turns.AT_ONCE for most in network.most.values())


def test_two_senders_of_many_send_each_once(back: StoreUnderTest, tmp_path: Path) -> None:
    for host in range(3):
        due(back, 30, f"https://{host}.example/hook")
    network = Network()
    threads = [
        threading.Thread(target=deliverer(back, network, tmp_path).deliver_due) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sum(network.sent.values()) == 90
    assert {n.state for n in back.store.notifications(limit=100)} == {NotificationState.DELIVERED}


# ---- turns alone


@pytest.mark.quick
def test_hosts_come_in_turn() -> None:
    due = [*((f"a{n}", "http://a/") for n in range(3)), ("b0", "http://b/"), ("c0", "http://c/")]
    served = Turns(due)
    order = []
    while (turn := served.take()) is not None:
        order.append(turn.id)
        assert not served.over(turn, silent=False)
    assert order == ["a0", "b0", "c0", "a1", "a2"]


@pytest.mark.quick
def test_a_host_that_has_said_nothing_yet_is_sent_one(monkeypatch: pytest.MonkeyPatch) -> None:
    served = Turns([(f"a{n}", "http://a/") for n in range(9)] + [("b0", "http://b/")])
    first, other = served.take(), served.take()
    assert first is not None
    assert other is not None
    assert (first.id, other.id) == ("a0", "b0")
    served.over(first, silent=False)
    more = [served.take() for _ in range(turns.AT_ONCE)]
    assert [turn.id for turn in more if turn is not None] == ["a1", "a2", "a3", "a4"]
    assert more[0] is not None
    assert served.over(more[0], silent=True)
    assert not served.over(other, silent=True)  # nothing else was due to it
    assert served.take() is None


@pytest.mark.quick
def test_whoever_waits_for_an_answer_goes_on_when_it_comes() -> None:
    served = Turns([("a0", "http://a/"), ("a1", "http://a/")])
    first = served.take()
    assert first is not None
    taken = []
    thread = threading.Thread(target=lambda: taken.append(served.take()))
    thread.start()
    served.over(first, silent=False)
    thread.join(30)
    assert [turn.id for turn in taken if turn is not None] == ["a1"]


@pytest.mark.quick
def test_after_a_while_it_is_time_to_look_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "LOOK_SECONDS", 0.0)
    assert Turns([("a0", "http://a/")]).take() is None


@pytest.mark.quick
@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://Hooks.Example:443/a?b", "https://hooks.example:443"),
        ("https://user:secret@hooks.example/c", "https://hooks.example:443"),
        ("http://hooks.example", "http://hooks.example:80"),
        ("http://[::1]:8000/", "http://::1:8000"),
        ("http://[broken/", "http://[broken/"),
        ("http://hooks.example:high/", "http://hooks.example:high/"),
    ],
)
def test_what_a_host_is(url: str, host: str) -> None:
    assert host_of(url) == host
