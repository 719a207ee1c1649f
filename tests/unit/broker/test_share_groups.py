"""Share groups are not served, and clients hear so before they join one."""

from headrace.protocol.messages import api_versions
from tests.unit.broker.rig import Rig

SHARE_GROUP_HEARTBEAT, SHARE_GROUP_DESCRIBE, SHARE_FETCH, SHARE_ACKNOWLEDGE = 76, 77, 78, 79
OF_SHARE_GROUPS = {SHARE_GROUP_HEARTBEAT, SHARE_GROUP_DESCRIBE, SHARE_FETCH, SHARE_ACKNOWLEDGE}


def test_no_api_and_no_feature_of_share_groups_is_listed(tmp_path):
    """Java's share consumer fails with UnsupportedVersionException if the heartbeat is missing."""
    answer = Rig(tmp_path / "data").ask(
        api_versions, api_versions.ApiVersionsRequest("java", "4.3.1"), version=4
    )
    listed = {one.api_key for one in answer.api_keys}
    assert len(listed) > 40 and not listed & OF_SHARE_GROUPS
    assert "share.version" not in {one.name for one in answer.finalized_features}
