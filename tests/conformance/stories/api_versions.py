"""ApiVersions 0-4, and versions that do not exist."""

from __future__ import annotations

import struct

from headrace.wire.protocol.messages import api_versions
from headrace.wire.protocol.messages.api_versions import ApiVersionsRequest
from tests.conformance.stage import Stage
from tests.conformance.wire import encode_header


def every_version(stage: Stage) -> None:
    for version in api_versions.VERSIONS:
        answer = stage.ask(
            f"v{version}", api_versions, version, ApiVersionsRequest("conformance", "1.0")
        )
        # The epoch of the features is an offset of the metadata log: any number from 0 on.
        kept = stage.answers[f"v{version}"]
        kept["finalized_features_epoch"] = "known" if answer.finalized_features_epoch >= 0 else -1


def bad_names_of_clients(stage: Stage) -> None:
    names = [("", ""), ("spaces in it", "1.0"), ("fine", "!"), ("-dash", "1"), ("a" * 300, "1")]
    for version in (3, 4):
        for number, (name, software_version) in enumerate(names):
            request = ApiVersionsRequest(name, software_version)
            stage.ask(f"v{version} name {number}", api_versions, version, request)
            kept = stage.answers[f"v{version} name {number}"]
            kept["finalized_features_epoch"] = "not compared here"
            kept["api_keys"] = "some" if kept["api_keys"] else "none"


def versions_that_do_not_exist(stage: Stage) -> None:
    """Always answered in version 0, so that a newer client can step back."""
    for version in (5, 99, 32767, -1):
        frame = encode_header(18, version, 7, flexible=True) + b"\x02c\x021\0"
        stage.send_raw(f"v{version}", frame)


def nothing_behind_the_header(stage: Stage) -> None:
    for version in (0, 3):
        stage.send_raw(f"v{version}", struct.pack(">hhih", 18, version, 7, -1)[:9])


STORIES = (
    every_version,
    bad_names_of_clients,
    versions_that_do_not_exist,
    nothing_behind_the_header,
)
