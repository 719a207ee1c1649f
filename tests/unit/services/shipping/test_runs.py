"""A run of records is written when its producer has let go of all of them, and only then."""

import json

from headrace.services.shipping.followed import Followed, Position
from headrace.services.shipping.runs import Ending, Run


class Holder:
    """Holds the callback of each record until it has ended, as librdkafka does."""

    def __init__(self):
        self.flying = []

    def takes(self, ending, count):
        self.flying += [ending] * count
        ending.run.taken += count

    def ends(self, count=1, error=None, message=None):
        for _ in range(count):
            ending = self.flying.pop()
            if error is not None:
                ending(error, message)


def a_run(records=3):
    followed = Followed(Position("f", "f", 0, 0), most=100, joins=False)
    values = [(json.dumps({"id": f"f:{n}", "message": "x" * 9000}).encode(), b"") for n in range(3)]
    return Run(followed, b"f", values[:records], 7)


def begun(run, ended, failed):
    return Ending(run, ended, lambda *what: failed.append(what[1:]))


def test_a_run_has_ended_when_the_last_record_is_let_go_of():
    holder, ended, run = Holder(), [], a_run()
    holder.takes(begun(run, ended, []), 3)
    holder.ends(2)
    assert ended == [] and run.unwritten == 3
    holder.ends(1)
    assert ended == [run] and run.is_written and run.unwritten == 0


def test_a_run_that_was_not_taken_as_a_whole_is_not_written():
    holder, ended, run = Holder(), [], a_run()
    holder.takes(begun(run, ended, []), 2)
    holder.ends(2)
    assert ended == [run] and not run.is_written and run.unwritten == 1


def test_a_run_of_which_a_record_failed_is_not_written_whatever_becomes_of_the_call():
    holder, ended, failed, run = Holder(), [], [], a_run()
    holder.takes(begun(run, ended, failed), 3)
    holder.ends(1, error="why", message="which")
    holder.ends(2)
    assert failed == [("why", "which")]
    assert ended == [run] and not run.is_written and run.unwritten == 1


def test_a_report_of_success_is_nothing():
    ended, failed, run = [], [], a_run()
    ending = begun(run, ended, failed)
    ending(None, "which")
    assert (run.failures, failed) == (0, [])


def test_a_run_that_begins_again_forgets_what_was():
    holder, ended, run = Holder(), [], a_run()
    holder.takes(begun(run, ended, []), 3)
    holder.ends(3, error="why")
    run.begin()
    assert run.unwritten == 3 and not run.is_written
    holder.takes(begun(run, ended, []), 3)
    holder.ends(3)
    assert run.is_written


def test_a_record_is_found_by_its_value_and_shortened_until_there_is_no_less():
    run = a_run()
    value = run.records[1][0]
    assert run.number_of(value) == 1 and run.number_of(b"other") is None
    assert run.shorten(1)
    assert len(run.records[1][0]) < len(value)
    while run.shorten(1):
        pass
    assert len(json.loads(run.records[1][0])["message"]) == 16
