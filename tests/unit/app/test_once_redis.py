"""Keys of `once=Redis`; what it does with a server is in tests/services/test_once.py."""

from headrace.app.once.in_redis import Redis


def test_a_group_with_a_colon_in_its_name_is_not_another_group():
    once = Redis("redis://localhost:1")  # connects with its first use
    assert once._key("a", "b:c") != once._key("a:b", "c")
    assert once._key("a:b", "c") != once._key("a%3Ab", "c")
    assert once._key("billing", "x") == "headrace:once:billing:x", "as it always was"
    once.close()
