"""A broker's life: what it says to the controller, and what it makes of the answers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.node.broker.cluster.lifecycle import (
    FATAL,
    FIRST_LOOK_WHILE_LEAVING_MS,
    FIRST_RETRY_MS,
    FORGOTTEN,
    LONGEST_LEAVING_MS,
    LONGEST_RETRY_MS,
    NEXT_STATES,
    OTHER_REFUSAL,
    Admitted,
    Answered,
    Applied,
    ControllerMoved,
    Cordoned,
    DirectoryFailed,
    Failed,
    Left,
    Lifecycle,
    LifecycleSettings,
    LifecycleState,
    MayStop,
    Say,
    Send,
    Started,
    Tick,
    Unfenced,
)
from headrace.node.broker.cluster.refused_levels import RefusedLevels
from headrace.node.metadata.features import LevelRange
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from headrace.wire.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
)

EPOCH = 40


class Story:
    """A broker and a clock; the last request it sent can be answered."""

    def __init__(self, jitter: float = 0.0, earlier_epoch: int = -1, **settings: Any) -> None:
        self.levels: RefusedLevels | None = OTHER_REFUSAL
        request = BrokerRegistrationRequest(
            2, "cluster", b"incarnation".ljust(16), previous_broker_epoch=17
        )
        self.broker = Lifecycle(
            request,
            LifecycleSettings(**settings),
            lambda: jitter,
            earlier_epoch,
            lambda: self.levels,
        )
        self.now_ms = 1_000
        self.sent: list[Send] = []
        self.effects: list[Any] = []

    def does(self, event: Any) -> list[Any]:
        """What follows, requests aside."""
        effects = self.broker.step(event, self.now_ms)
        self.sent += [effect for effect in effects if isinstance(effect, Send)]
        other = [effect for effect in effects if not isinstance(effect, Send)]
        self.effects += other
        return other

    def passes(self, ms: int) -> list[Any]:
        self.now_ms += ms
        return self.does(Tick())

    def answered(self, response: Any) -> list[Any]:
        return self.does(Answered(self.sent[-1].number, response))

    def registered(self, epoch: int = EPOCH) -> list[Any]:
        return self.answered(BrokerRegistrationResponse(broker_epoch=epoch))

    def beaten(self, **fields: Any) -> list[Any]:
        return self.answered(BrokerHeartbeatResponse(**fields))

    @property
    def request(self) -> Any:
        return self.sent[-1].request

    def runs(self) -> Story:
        self.does(Started())
        self.registered()
        self.beaten()
        self.does(Applied(EPOCH))
        self.beaten(is_fenced=False)
        assert self.broker.state is LifecycleState.RUNNING
        return self


def test_a_broker_registers_catches_up_and_is_unfenced() -> None:
    story = Story()
    story.does(Started())
    assert isinstance(story.request, BrokerRegistrationRequest)
    assert story.request.previous_broker_epoch == 17, "as the file of the clean stop says"
    story.registered()
    heartbeat = story.request
    assert isinstance(heartbeat, BrokerHeartbeatRequest)
    assert (heartbeat.broker_epoch, heartbeat.want_fence) == (EPOCH, True), "not caught up yet"
    story.beaten()
    story.does(Applied(EPOCH - 1))
    assert len(story.sent) == 2, "the next heartbeat is not due"
    story.does(Applied(EPOCH))
    assert story.request.current_metadata_offset == EPOCH and not story.request.want_fence
    assert story.beaten(is_fenced=False) == [Unfenced()]


def test_a_broker_that_is_alive_says_so_at_every_interval() -> None:
    story = Story().runs()
    sent = len(story.sent)
    story.passes(1_999)
    assert len(story.sent) == sent
    story.does(Applied(50))
    story.passes(1)
    assert len(story.sent) == sent + 1 and story.request.current_metadata_offset == 50
    story.passes(0)
    assert len(story.sent) == sent + 1, "one at a time"


def test_it_stays_fenced_until_the_controller_says_otherwise() -> None:
    story = Story()
    story.does(Started())
    story.does(Applied(EPOCH + 5))
    story.registered()
    assert story.broker.state is LifecycleState.FENCED, (
        "what was committed meanwhile was applied already"
    )
    assert story.beaten(is_fenced=True) == []
    story.passes(2_000)
    assert story.beaten(is_fenced=False) == [Unfenced()]


def test_a_node_that_is_its_own_controller_asks_for_nothing() -> None:
    story = Story()
    story.does(Admitted(EPOCH))
    assert (story.broker.state, story.broker.epoch, story.sent) == (
        LifecycleState.RUNNING,
        EPOCH,
        [],
    )


def test_without_a_controller_it_tries_again_ever_less_often() -> None:
    story = Story()
    story.does(Started())
    waits = []
    for _ in range(6):
        story.answered(None)
        assert story.broker.next_ms is not None
        waits.append(story.broker.next_ms - story.now_ms)
        story.passes(waits[-1])
    assert waits == [FIRST_RETRY_MS, 200, 400, 800, LONGEST_RETRY_MS, LONGEST_RETRY_MS]
    assert story.effects == [], "an election is worth no sentence"


def test_brokers_do_not_come_back_at_the_same_moment() -> None:
    waits = set()
    for jitter in (0.0, 0.5, 1.0):
        story = Story(jitter)
        story.does(Started())
        story.answered(None)
        waits.add(story.broker.next_ms)
    assert len(waits) == 3


def test_another_controller_is_asked_at_once() -> None:
    story = Story()
    story.does(Started())
    late = story.sent[-1].number
    story.does(ControllerMoved())
    assert len(story.sent) == 2
    assert story.does(Answered(late, BrokerRegistrationResponse(broker_epoch=3))) == []
    assert story.broker.state is LifecycleState.REGISTERING, "the one before does not count"
    story.registered()
    assert story.broker.epoch == EPOCH


def test_a_new_controller_is_not_asked_more_than_is_due() -> None:
    story = Story().runs()
    sent = len(story.sent)
    story.does(ControllerMoved())
    assert len(story.sent) == sent


def test_a_clean_stop_is_said_of_this_start_alone() -> None:
    """Whoever stops before it has registered has written nothing since the stop before."""
    story = Story()
    story.does(Started())
    assert story.broker.epoch_of_clean_stop == 17, "as the stop before has said"
    story.registered()
    assert story.broker.epoch_of_clean_stop == EPOCH
    story.beaten(error_code=ErrorCode.STALE_BROKER_EPOCH)
    assert story.broker.epoch_of_clean_stop == -1, "another start has the id by now"


@pytest.mark.parametrize("code", FORGOTTEN)
def test_a_broker_that_was_forgotten_registers_again(code: ErrorCode) -> None:
    story = Story().runs()
    story.passes(2_000)
    (said,) = story.beaten(error_code=code)
    assert isinstance(said, Say) and "registers again" in said.sentence
    assert isinstance(story.request, BrokerRegistrationRequest)
    assert story.request.incarnation_id == b"incarnation".ljust(16), "it is the same start"
    assert story.request.previous_broker_epoch == -1, "this is not the restart of a clean stop"
    story.registered(90)
    heartbeat: Any = story.sent[-1].request
    assert heartbeat.want_fence, "the new epoch is not applied yet"
    story.beaten()
    story.does(Applied(90))
    assert story.beaten(is_fenced=False) == [Unfenced()]


def test_a_broker_whose_id_is_taken_waits_and_says_so_once() -> None:
    story = Story()
    story.does(Started())
    taken = BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
    (said,) = story.answered(taken)
    assert isinstance(said, Say) and "a broker of the same id is alive" in said.sentence
    story.passes(200)
    assert story.answered(taken) == []
    story.passes(400)
    story.registered()
    assert story.broker.state is LifecycleState.CATCHING_UP


def taken() -> BrokerRegistrationResponse:
    return BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)


def test_a_killed_broker_has_its_earlier_start_fenced_and_is_let_in_at_once() -> None:
    story = Story(earlier_epoch=33)
    story.does(Started())
    story.answered(taken())
    assert isinstance(story.request, BrokerHeartbeatRequest)
    assert (story.request.broker_epoch, story.request.want_fence) == (33, True)
    story.beaten()
    assert isinstance(story.request, BrokerRegistrationRequest)
    story.registered()
    assert story.broker.state is LifecycleState.CATCHING_UP


def test_it_is_asked_for_once_and_never_by_a_broker_that_was_replaced() -> None:
    story = Story(earlier_epoch=33)
    story.does(Started())
    story.answered(taken())
    story.beaten(error_code=ErrorCode.STALE_BROKER_EPOCH)
    story.answered(taken())
    assert isinstance(story.request, BrokerRegistrationRequest), "somebody else has the id"
    replaced = Story(earlier_epoch=33).runs()
    replaced.passes(2_000)
    replaced.beaten(error_code=ErrorCode.STALE_BROKER_EPOCH)
    replaced.answered(taken())
    assert isinstance(replaced.request, BrokerRegistrationRequest)


def test_a_controller_that_dies_meanwhile_is_asked_for_it_again() -> None:
    story = Story(earlier_epoch=33)
    story.does(Started())
    story.answered(taken())
    story.answered(None)
    story.passes(200)
    story.answered(taken())
    assert isinstance(story.request, BrokerHeartbeatRequest)


@pytest.mark.parametrize("code", FATAL)
def test_a_broker_of_another_cluster_or_release_ends_with_a_sentence(code: ErrorCode) -> None:
    story = Story()
    story.does(Started())
    (failed,) = story.answered(BrokerRegistrationResponse(error_code=code))
    assert isinstance(failed, Failed)
    assert failed.sentence == f"broker 2 cannot join the cluster: {FATAL[code]}."
    assert story.does(Tick()) == [] and story.broker.next_ms is None


def test_a_start_that_finds_no_controller_ends_and_says_what_it_waited_for() -> None:
    story = Story(initial_registration_timeout_ms=1_000)
    story.does(Started())
    story.answered(BrokerRegistrationResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    story.passes(500)
    story.answered(None)
    (failed,) = story.passes(500)
    assert isinstance(failed, Failed) and "does not allow ClusterAction" in failed.sentence
    assert "initial.broker.registration.timeout.ms" in failed.sentence


def test_a_broker_that_was_registered_once_waits_for_as_long_as_it_takes() -> None:
    story = Story(initial_registration_timeout_ms=1_000).runs()
    story.passes(2_000)
    story.beaten(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED)
    for _ in range(100):
        story.answered(None)
        story.passes(2_000)
    assert not any(isinstance(effect, Failed) for effect in story.effects)


def test_a_controlled_shutdown_asks_until_it_may_stop() -> None:
    story = Story().runs()
    assert story.does(Left()) == []
    assert story.request.want_shut_down and not story.request.want_fence
    story.beaten(is_fenced=False)
    sent = len(story.sent)
    story.passes(FIRST_LOOK_WHILE_LEAVING_MS)
    assert len(story.sent) == sent + 1, "sooner than at the usual interval"
    assert story.beaten(should_shut_down=True) == [MayStop()]
    assert story.broker.state is LifecycleState.GONE
    assert story.does(Left()) == [] and story.does(Tick()) == []


def test_an_answer_from_before_the_shutdown_does_not_end_it() -> None:
    story = Story().runs()
    story.passes(2_000)
    sent = len(story.sent)
    story.does(Left())
    assert len(story.sent) == sent, "it would overtake the heartbeat that is on its way"
    assert story.beaten(should_shut_down=True) == []
    assert story.broker.state is LifecycleState.LEAVING and story.request.want_shut_down


def test_a_heartbeat_never_overtakes_the_one_before() -> None:
    """Else one that wants to stay fenced could arrive last, and would fence again."""
    story = Story()
    story.does(Started())
    story.registered()
    story.does(Applied(EPOCH))
    assert story.request.want_fence and len(story.sent) == 2
    assert story.beaten(is_fenced=False) == [], "it is told of the time before"
    assert not story.request.want_fence and len(story.sent) == 3
    assert story.beaten(is_fenced=False) == [Unfenced()]


def test_a_broker_that_no_controller_answers_stops_all_the_same() -> None:
    story = Story().runs()
    story.does(Left())
    for _ in range(8):
        story.answered(None)
        assert story.passes(1_000) == []
    story.answered(None)
    said, may_stop = story.passes(1_000)
    assert isinstance(said, Say) and "no controller answers" in said.sentence
    assert may_stop == MayStop()


def test_a_controller_that_cannot_hand_over_is_given_five_minutes() -> None:
    story = Story().runs()
    story.does(Left())
    stopped: list[Any] = []
    until_ms = story.now_ms + LONGEST_LEAVING_MS
    while not stopped:
        story.beaten(is_fenced=False)
        stopped = story.passes(2_000)
    assert story.now_ms >= until_ms and stopped[-1] == MayStop()
    assert "does not let it go" in stopped[0].sentence


@pytest.mark.parametrize("code", [*FORGOTTEN, *FATAL])
def test_a_leaving_broker_that_is_not_known_may_stop(code: ErrorCode) -> None:
    story = Story().runs()
    story.does(Left())
    assert story.beaten(error_code=code) == [MayStop()]


def test_without_controlled_shutdown_it_stops_at_once() -> None:
    assert Story(controlled_shutdown=False).runs().does(Left()) == [MayStop()]
    unregistered = Story()
    unregistered.does(Started())
    assert unregistered.does(Left()) == [MayStop()]


def test_a_failed_data_folder_is_told_at_once_and_from_then_on() -> None:
    story = Story().runs()
    story.does(DirectoryFailed(b"folder".ljust(16)))
    assert story.request.offline_log_dirs == [b"folder".ljust(16)]
    story.beaten(is_fenced=False)
    story.passes(2_000)
    assert story.request.offline_log_dirs == [b"folder".ljust(16)]


RESPONSES = st.one_of(
    st.none(),
    st.builds(
        BrokerHeartbeatResponse,
        error_code=st.sampled_from([0, 0, 0, *(int(code) for code in ErrorCode)]),
        is_fenced=st.booleans(),
        should_shut_down=st.booleans(),
    ),
    st.builds(
        BrokerRegistrationResponse,
        error_code=st.sampled_from([0, 0, 0, *(int(code) for code in ErrorCode)]),
        broker_epoch=st.integers(0, 100),
    ),
)
STEPS = st.one_of(
    st.tuples(st.just("answer"), RESPONSES),
    st.tuples(st.just("tick"), st.integers(0, 3_000)),
    st.tuples(st.just("applied"), st.integers(0, 100)),
    st.tuples(st.sampled_from(["moved", "failed", "left"]), st.none()),
)


@given(st.lists(STEPS, max_size=60))
def test_whatever_is_answered_it_takes_only_steps_of_the_table(steps: list[Any]) -> None:
    story = Story()
    story.does(Started())
    states = [story.broker.state]
    events: dict[str, Any] = {
        "moved": ControllerMoved(),
        "failed": DirectoryFailed(bytes(16)),
        "cordoned": Cordoned([bytes(16)]),
        "left": Left(),
    }
    for kind, value in steps:
        if kind == "answer":
            asks_to_register = isinstance(story.request, BrokerRegistrationRequest)
            is_registration = isinstance(value, BrokerRegistrationResponse)
            if value is None or is_registration == asks_to_register:
                story.answered(value)
        elif kind == "tick":
            story.passes(value)
        else:
            story.does(Applied(value) if kind == "applied" else events[kind])
        states.append(story.broker.state)
        if story.broker.state is LifecycleState.GONE:
            assert story.broker.next_ms is None
        else:
            assert story.broker.next_ms is not None, "something is always due"
            assert story.broker.next_ms <= story.now_ms + 9_000
    ends = [effect for effect in story.effects if isinstance(effect, MayStop | Failed)]
    assert len(ends) == (states[-1] is LifecycleState.GONE)
    # A registration whose metadata is applied already passes through CATCHING_UP in one step.
    short_cuts = {(LifecycleState.REGISTERING, LifecycleState.FENCED)}
    for before, after in pairwise(states):
        assert before is after or after in NEXT_STATES[before] or (before, after) in short_cuts


def refused_for_its_levels(story: Story) -> list[Any]:
    refusal = BrokerRegistrationResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return story.answered(refusal)


def test_a_broker_that_lacks_a_level_ends_when_the_metadata_names_it() -> None:
    story = Story()
    story.does(Started())
    story.levels = None  # nothing was fetched yet
    assert isinstance(refused_for_its_levels(story)[0], Say)
    story.passes(2 * LONGEST_RETRY_MS)
    story.levels = RefusedLevels("lower it")
    [failed] = refused_for_its_levels(story)
    assert failed == Failed("broker 2 cannot join the cluster: lower it.")


def test_a_broker_that_had_the_level_before_registers_with_it_and_says_so() -> None:
    story = Story()
    story.does(Started())
    story.levels = RefusedLevels("lower it", {"streams.version": LevelRange(0, 1)})
    assert refused_for_its_levels(story) == [Say("lower it. It was a member before, and goes on")]
    request = story.sent[-1].request
    assert isinstance(request, BrokerRegistrationRequest)
    assert request.features == [Feature("streams.version", 0, 1)]
    [failed] = refused_for_its_levels(story)
    assert isinstance(failed, Failed), "only once"


def test_cordoned_folders_are_told_at_once_and_with_every_heartbeat() -> None:
    story = Story()
    story.does(Started())
    story.does(Cordoned([b"folder".ljust(16)]))
    assert len(story.sent) == 1, "the registration is under way"
    story.registered()
    story.does(Applied(EPOCH))
    heartbeat = story.sent[-1].request
    assert isinstance(heartbeat, BrokerHeartbeatRequest)
    assert heartbeat.cordoned_log_dirs == [b"folder".ljust(16)]
    for _ in range(2):  # the one that was overtaken, and the one after it
        story.answered(BrokerHeartbeatResponse(is_caught_up=True))
    sent = len(story.sent)
    story.does(Cordoned([]))
    assert len(story.sent) == sent + 1
    heartbeat = story.sent[-1].request
    assert isinstance(heartbeat, BrokerHeartbeatRequest) and heartbeat.cordoned_log_dirs == []
