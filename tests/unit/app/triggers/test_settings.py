"""The file of triggers is read whole, and all that is wrong in it is said at once."""

import tomllib

import pytest

from headrace.app.triggers.settings import SettingsRefused, parse, read

GOOD = """
group = "hooks"

[trigger.refunds]
topic = "orders"
filter = 'value.kind == "refund"'
url = "https://crm.example.org/hook"
secret_env = "CRM_SECRET"
headers = { authorization = "Bearer abc" }
batch = { records = 100, bytes = 65536, wait = "500ms" }
retry = { attempts = 3, first = "2s", longest = "1h" }
concurrency = 4
rate = 50

[trigger.pictures]
pattern = "pictures-.*"
function = "shop.pictures:shrink"
memory_bytes = 268435456
timeout = "2m"
"""


def parsed(text, environment=None):
    return parse(tomllib.loads(text), environment or {"CRM_SECRET": "x"})


def test_a_good_file():
    file = parsed(GOOD)
    refunds, pictures = file.triggers
    assert file.group == "hooks"
    assert (refunds.topic, refunds.concurrency, refunds.rate) == ("orders", 4, 50.0)
    assert refunds.secret == b"x"
    assert (refunds.batch.records, refunds.batch.wait_ms) == (100, 500)
    assert (refunds.retry.attempts, refunds.retry.longest_ms) == (3, 3_600_000)
    assert refunds.filter.accepts({"value": {"kind": "refund"}})
    assert (pictures.pattern, pictures.timeout_ms) == ("pictures-.*", 120_000)
    assert pictures.memory_bytes == 268_435_456


def test_all_that_is_wrong_is_said_at_once():
    with pytest.raises(SettingsRefused) as refusal:
        parsed(
            """
            colour = "red"
            [trigger."no good"]
            topic = "orders"
            pattern = "["
            filter = "os.system('x')"
            function = "rm -rf"
            url = "http://169.254.169.254/"
            secret_env = "UNSET"
            batch = { records = 0, size = 3 }
            concurrency = true
            rate = -1
            timeout = "soon"
            speed = 9
            """
        )
    told = "\n".join(refusal.value.problems)
    for place in (
        "colour",
        "a name has letters",
        "either a topic or a pattern",
        "either a url or a function",
        "regular expression",
        "filter",
        "package.module:function",
        "allow_hosts",
        "UNSET",
        "batch.records",
        "batch.size",
        "concurrency",
        "rate",
        "timeout",
        "speed",
    ):
        assert place in told


@pytest.mark.parametrize("text", ["", "trigger = 3", "group = 1", "[trigger.x]"])
def test_a_file_without_a_whole_trigger_is_refused(text):
    with pytest.raises(SettingsRefused):
        parsed(text)


def test_a_missing_file_and_a_garbled_one(tmp_path):
    with pytest.raises(SettingsRefused, match="no file"):
        read(tmp_path / "absent.toml")
    (tmp_path / "garbled.toml").write_bytes(b"\xff\xfe = [")
    with pytest.raises(SettingsRefused, match="not TOML"):
        read(tmp_path / "garbled.toml")
