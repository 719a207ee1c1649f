"""What a running node does when a setting changes."""

from __future__ import annotations

from headrace.metadata.config_definitions import BROKER_SETTINGS, TOPIC_SETTINGS
from headrace.metadata.config_definitions.definition import Change, Standing
from headrace.metadata.configs import ResourceType, broker_values, log_settings, topic_defaults
from headrace.metadata.live_changes import (
    EFFECT_OF_BROKER_SETTING,
    EFFECT_OF_TOPIC_SETTING,
    Effect,
    broker_effects,
    changed_names,
)


def test_every_setting_that_can_change_live_says_what_it_does() -> None:
    assert set(EFFECT_OF_TOPIC_SETTING) == set(TOPIC_SETTINGS)
    for name, definition in BROKER_SETTINGS.items():
        assert (name in EFFECT_OF_BROKER_SETTING) == (definition.change is not Change.RESTART)


def test_what_is_honoured_does_something() -> None:
    restarted = {"listeners", "listener.security.protocol.map"}  # refused while running
    for table, effects in (
        (TOPIC_SETTINGS, EFFECT_OF_TOPIC_SETTING),
        (BROKER_SETTINGS, EFFECT_OF_BROKER_SETTING),
    ):
        for name, effect in effects.items():
            if name in table and table[name].standing is Standing.HONOURED:
                assert effect is not Effect.NOTHING or name in restarted, name


def test_what_changes_logs_is_among_their_settings() -> None:
    """A new value of such a setting gives another LogSettings."""
    broker = broker_values({}, {})
    before = log_settings(topic_defaults({}, {}), broker)
    for name, effect in EFFECT_OF_TOPIC_SETTING.items():
        changed = {**topic_defaults({}, {}), name: ("x",)}
        differs = log_settings(changed, broker) != before
        if effect is Effect.LOG_SETTINGS and not TOPIC_SETTINGS[name].internal:
            assert differs, name


def test_two_images_are_compared_by_value() -> None:
    broker = (int(ResourceType.BROKER), "1")
    before = broker_values({}, {broker: {"max.connections": "5", "num.io.threads": "8"}})
    after = broker_values({}, {broker: {"max.connections": " 6", "log.retention.ms": "9"}})
    assert changed_names(before, after) == {"max.connections", "log.retention.ms"}
    assert broker_effects(before, after) == {Effect.CONNECTION_LIMITS, Effect.ALL_TOPICS}
    assert broker_effects(before, before) == set()
