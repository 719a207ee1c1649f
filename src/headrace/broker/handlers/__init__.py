"""The table of contents: every API a broker answers. One line per API, one file per line."""

from headrace.broker.handlers import (
    api_versions,
    delete_records,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    fetch,
    init_producer_id,
    list_config_resources,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)

HANDLERS = (
    produce.API,
    fetch.API,
    list_offsets.API,
    metadata.API,
    api_versions.API,
    delete_records.API,
    init_producer_id.API,
    offset_for_leader_epoch.API,
    describe_configs.API,
    describe_log_dirs.API,
    describe_cluster.API,
    describe_producers.API,
    list_config_resources.API,
    describe_topic_partitions.API,
)
