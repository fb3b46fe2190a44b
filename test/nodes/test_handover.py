"""Work between the spinning thread and the control thread."""

import threading

import pytest

from vla_runtime.nodes.handover import Inbox, Outbox


class Guard:
    def __init__(self, callback):
        self.callback, self.triggered = callback, 0

    def trigger(self):
        self.triggered += 1


class Node:
    def create_guard_condition(self, callback):
        self.guard = Guard(callback)
        return self.guard


def test_what_is_posted_runs_in_order_when_delivered():
    node, done = Node(), []
    outbox = Outbox(node)
    for i in range(3):
        outbox.post(lambda i=i: done.append(i))
    assert (done, node.guard.triggered) == ([], 3)
    node.guard.callback()
    assert done == [0, 1, 2]
    node.guard.callback()
    assert done == [0, 1, 2]


def ask_in_thread(inbox, question, timeout_s=5.0):
    got = []

    def ask():
        try:
            got.append(inbox.ask(question, timeout_s))
        except Exception as error:
            got.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread, got


def test_a_question_is_answered_between_two_ticks():
    inbox = Inbox()
    thread, got = ask_in_thread(inbox, lambda now: f"asked at {now}")
    while thread.is_alive():
        inbox.answer(7.5)
        thread.join(0.005)
    assert got == ["asked at 7.5"]


def test_an_exception_belongs_to_the_one_who_asked():
    inbox = Inbox()
    thread, got = ask_in_thread(inbox, lambda now: 1 / 0)
    while thread.is_alive():
        inbox.answer(0.0)
        thread.join(0.005)
    assert isinstance(got[0], ZeroDivisionError)


def test_a_question_that_nobody_answers_is_withdrawn():
    inbox, asked = Inbox(), []
    with pytest.raises(TimeoutError, match="0.02 s"):
        inbox.ask(asked.append, 0.02)
    inbox.answer(1.0)
    assert asked == []
