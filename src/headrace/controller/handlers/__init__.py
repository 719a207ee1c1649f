"""What the controller answers: one module per API, listed here by hand.

Forgetting a line fails a test that compares this list with the files beside it.
"""

from headrace.controller.handlers import (
    allocate_producer_ids,
    alter_client_quotas,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    assign_replicas_to_dirs,
    broker_heartbeat,
    broker_registration,
    controller_registration,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_topics,
    describe_quorum,
    elect_leaders,
    incremental_alter_configs,
    list_partition_reassignments,
    unregister_broker,
    update_features,
)

HANDLERS = (
    create_topics.API,
    delete_topics.API,
    create_partitions.API,
    incremental_alter_configs.API,
    alter_configs.API,
    alter_client_quotas.API,
    update_features.API,
    describe_quorum.API,
    allocate_producer_ids.API,
    create_acls.API,
    delete_acls.API,
    alter_user_scram_credentials.API,
    elect_leaders.API,
    alter_partition_reassignments.API,
    list_partition_reassignments.API,
    broker_registration.API,
    broker_heartbeat.API,
    alter_partition.API,
    assign_replicas_to_dirs.API,
    unregister_broker.API,
    controller_registration.API,
)
