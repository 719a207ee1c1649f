"""Kafka's error codes, and the two exceptions of the wire.

`KafkaError` is a refusal that is sent to a peer: raised where it is discovered, turned into a
response in one place. `MalformedMessage` means that bytes do not follow the protocol; it is the
only exception that a decoder raises. Bugs of our own are neither. Names, numbers and retriability
are those of Apache Kafka 4.3; the sentences are ours. Inside the hot path codes are plain ints, see
`NONE`.
"""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """A number of the protocol, the sentence that explains it, and whether trying again helps."""

    retriable: bool
    description: str

    # With defaults, because type checkers read `ErrorCode(3)`, which looks a code up, as this call.
    def __new__(cls, number: int, retriable: bool = False, description: str = "") -> ErrorCode:
        code = int.__new__(cls, number)
        code._value_ = number
        code.retriable = retriable
        code.description = description
        return code

    UNKNOWN_SERVER_ERROR = -1, False, "The server failed in a way it did not foresee."
    NONE = 0, False, "There is no error."
    OFFSET_OUT_OF_RANGE = 1, False, "The log does not hold that offset."
    CORRUPT_MESSAGE = 2, True, "The records fail their checksum or are damaged in another way."
    UNKNOWN_TOPIC_OR_PARTITION = 3, True, "This server does not host that topic or partition."
    INVALID_FETCH_SIZE = 4, False, "That fetch size is not valid."
    LEADER_NOT_AVAILABLE = 5, True, "The partition has no leader at the moment."
    NOT_LEADER_OR_FOLLOWER = 6, True, "This broker does not lead or follow that partition."
    REQUEST_TIMED_OUT = 7, True, "The request ran out of time."
    BROKER_NOT_AVAILABLE = 8, False, "The broker is not available."
    REPLICA_NOT_AVAILABLE = 9, True, "The replica of that partition is not available."
    MESSAGE_TOO_LARGE = 10, False, "The records are larger than this server or topic accepts."
    STALE_CONTROLLER_EPOCH = 11, False, "The controller has moved to another node."
    OFFSET_METADATA_TOO_LARGE = 12, False, "The metadata of the committed offset is too large."
    NETWORK_EXCEPTION = 13, True, "The connection ended before an answer came."
    COORDINATOR_LOAD_IN_PROGRESS = 14, True, "The coordinator is still loading its state."
    COORDINATOR_NOT_AVAILABLE = 15, True, "The coordinator is not available."
    NOT_COORDINATOR = 16, True, "This broker is not the coordinator asked for."
    INVALID_TOPIC_EXCEPTION = 17, False, "That topic name or topic is not valid for this operation."
    RECORD_LIST_TOO_LARGE = 18, False, "The batch is larger than a log segment."
    NOT_ENOUGH_REPLICAS = 19, True, "Fewer replicas are in sync than the topic requires."
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        True,
        "The records are in the log, but on fewer in-sync replicas than the topic requires.",
    )
    INVALID_REQUIRED_ACKS = 21, False, "Acks must be 0, 1 or -1 (all)."
    ILLEGAL_GENERATION = 22, False, "That generation of the group is not the current one."
    INCONSISTENT_GROUP_PROTOCOL = 23, False, "The member's protocols do not fit those of the group."
    INVALID_GROUP_ID = 24, False, "The group id is not valid."
    UNKNOWN_MEMBER_ID = 25, False, "The coordinator does not know that member."
    INVALID_SESSION_TIMEOUT = 26, False, "The session timeout is outside the broker's bounds."
    REBALANCE_IN_PROGRESS = 27, False, "The group is rebalancing; the member must rejoin."
    INVALID_COMMIT_OFFSET_SIZE = 28, False, "The committed offset's data is too large."
    TOPIC_AUTHORIZATION_FAILED = 29, False, "Access to the topic is not allowed."
    GROUP_AUTHORIZATION_FAILED = 30, False, "Access to the group is not allowed."
    CLUSTER_AUTHORIZATION_FAILED = 31, False, "This operation on the cluster is not allowed."
    INVALID_TIMESTAMP = 32, False, "A record's timestamp is outside the topic's bounds."
    UNSUPPORTED_SASL_MECHANISM = 33, False, "The broker does not offer that SASL mechanism."
    ILLEGAL_SASL_STATE = 34, False, "That request does not fit the state of authentication."
    UNSUPPORTED_VERSION = 35, False, "That version of the API is not supported."
    TOPIC_ALREADY_EXISTS = 36, False, "A topic of that name exists already."
    INVALID_PARTITIONS = 37, False, "The number of partitions is not valid."
    INVALID_REPLICATION_FACTOR = 38, False, "The replication factor does not fit the brokers."
    INVALID_REPLICA_ASSIGNMENT = 39, False, "The assignment of replicas is not valid."
    INVALID_CONFIG = 40, False, "A configuration is not valid."
    NOT_CONTROLLER = 41, True, "This node is not the active controller."
    INVALID_REQUEST = 42, False, "The request contradicts itself or the protocol."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, False, "The records' format does not support that."
    POLICY_VIOLATION = 44, False, "The request violates a policy of the cluster."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, False, "The producer's sequence number leaves a gap."
    DUPLICATE_SEQUENCE_NUMBER = 46, False, "The producer's sequence number was used before."
    INVALID_PRODUCER_EPOCH = 47, False, "The producer's epoch is older than the current one."
    INVALID_TXN_STATE = 48, False, "The transaction's state does not allow that."
    INVALID_PRODUCER_ID_MAPPING = 49, False, "The producer id does not fit the transactional id."
    INVALID_TRANSACTION_TIMEOUT = (
        50,
        False,
        "The transaction timeout is above the broker's maximum.",
    )
    CONCURRENT_TRANSACTIONS = 51, True, "The previous transaction is still being completed."
    TRANSACTION_COORDINATOR_FENCED = 52, False, "The marker comes from an older coordinator."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, False, "The transactional id is not allowed."
    SECURITY_DISABLED = 54, False, "Security features are switched off."
    OPERATION_NOT_ATTEMPTED = 55, False, "Nothing was tried, because another part failed."
    KAFKA_STORAGE_ERROR = 56, True, "The disk failed while reading or writing the log."
    LOG_DIR_NOT_FOUND = 57, False, "The broker has no such log directory."
    SASL_AUTHENTICATION_FAILED = 58, False, "SASL authentication failed."
    UNKNOWN_PRODUCER_ID = 59, False, "The log holds no state of that producer id."
    REASSIGNMENT_IN_PROGRESS = 60, False, "A reassignment of the partition is under way."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, False, "Delegation tokens are switched off."
    DELEGATION_TOKEN_NOT_FOUND = 62, False, "There is no such delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, False, "The delegation token belongs to someone else."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, False, "This connection may not manage tokens."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, False, "Access to delegation tokens is not allowed."
    DELEGATION_TOKEN_EXPIRED = 66, False, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, False, "That type of principal is not supported."
    NON_EMPTY_GROUP = 68, False, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, False, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, True, "There is no such fetch session."
    INVALID_FETCH_SESSION_EPOCH = 71, True, "The fetch session's epoch is not the expected one."
    LISTENER_NOT_FOUND = 72, True, "The partition's leader has no listener of that name."
    TOPIC_DELETION_DISABLED = 73, False, "Deletion of topics is switched off."
    FENCED_LEADER_EPOCH = 74, True, "The request's leader epoch is older than the broker's."
    UNKNOWN_LEADER_EPOCH = 75, True, "The request's leader epoch is newer than the broker's."
    UNSUPPORTED_COMPRESSION_TYPE = (
        76,
        False,
        "The client does not support the records' compression.",
    )
    STALE_BROKER_EPOCH = 77, False, "The broker's epoch is not the current one."
    OFFSET_NOT_AVAILABLE = 78, True, "The new leader does not know its high watermark yet."
    MEMBER_ID_REQUIRED = 79, False, "The member must join again with the id it was given."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, True, "The preferred leader is not available."
    GROUP_MAX_SIZE_REACHED = 81, False, "The group has as many members as allowed."
    FENCED_INSTANCE_ID = 82, False, "Another member took over that group instance id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, True, "No replica that may lead is available."
    ELECTION_NOT_NEEDED = 84, True, "The partition needs no election."
    NO_REASSIGNMENT_IN_PROGRESS = 85, False, "No reassignment of the partition is under way."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, False, "The group is still subscribed to the topic."
    INVALID_RECORD = 87, False, "A record was refused by the broker's validation."
    UNSTABLE_OFFSET_COMMIT = 88, True, "Transactions with offsets of this group are still open."
    THROTTLING_QUOTA_EXCEEDED = 89, True, "A quota was exceeded; wait before trying again."
    PRODUCER_FENCED = 90, False, "A newer producer took over the transactional id."
    RESOURCE_NOT_FOUND = 91, False, "There is no such resource."
    DUPLICATE_RESOURCE = 92, False, "That resource is named more than once."
    UNACCEPTABLE_CREDENTIAL = 93, False, "The credential does not meet the requirements."
    INCONSISTENT_VOTER_SET = 94, False, "The voters named differ from those known."
    INVALID_UPDATE_VERSION = 95, False, "That version was not valid to update from."
    FEATURE_UPDATE_FAILED = 96, False, "The features could not be updated."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, False, "The forwarded principal could not be read."
    SNAPSHOT_NOT_FOUND = 98, False, "There is no such snapshot."
    POSITION_OUT_OF_RANGE = 99, False, "The position is not within the snapshot."
    UNKNOWN_TOPIC_ID = 100, True, "This server does not host a topic of that id."
    DUPLICATE_BROKER_REGISTRATION = 101, False, "That broker id is in use by another broker."
    BROKER_ID_NOT_REGISTERED = 102, False, "No broker of that id is registered."
    INCONSISTENT_TOPIC_ID = 103, True, "The log's topic id differs from the request's."
    INCONSISTENT_CLUSTER_ID = 104, False, "The request names another cluster."
    TRANSACTIONAL_ID_NOT_FOUND = 105, False, "There is no such transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, True, "The fetch session mixed topic ids and names."
    INELIGIBLE_REPLICA = 107, False, "A replica of the new in-sync set may not be in it."
    NEW_LEADER_ELECTED = 108, False, "The change went through, but another leader was elected."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, False, "The offset is only in remote storage."
    FENCED_MEMBER_EPOCH = 110, False, "The coordinator fenced the member; it must rejoin."
    UNRELEASED_INSTANCE_ID = 111, False, "The group instance id is still used by another member."
    UNSUPPORTED_ASSIGNOR = 112, False, "The group's assignor is not supported."
    STALE_MEMBER_EPOCH = 113, False, "The member's epoch is old; retry with the new one."
    MISMATCHED_ENDPOINT_TYPE = 114, False, "The request went to the wrong kind of endpoint."
    UNSUPPORTED_ENDPOINT_TYPE = 115, False, "That kind of endpoint is not supported yet."
    UNKNOWN_CONTROLLER_ID = 116, False, "There is no controller of that id."
    UNKNOWN_SUBSCRIPTION_ID = 117, False, "The telemetry subscription id is not current."
    TELEMETRY_TOO_LARGE = 118, False, "The telemetry is larger than this broker accepts."
    INVALID_REGISTRATION = 119, False, "The controller refused the broker's registration."
    TRANSACTION_ABORTABLE = 120, False, "The transaction failed; abort it to go on."
    INVALID_RECORD_STATE = 121, False, "The delivery could not be acknowledged in its state."
    SHARE_SESSION_NOT_FOUND = 122, True, "There is no such share session."
    INVALID_SHARE_SESSION_EPOCH = 123, True, "The share session's epoch is not the expected one."
    FENCED_STATE_EPOCH = 124, False, "The share group's state epoch does not match."
    INVALID_VOTER_KEY = 125, False, "The voter key is not that of the receiving replica."
    DUPLICATE_VOTER = 126, False, "That voter is in the set already."
    VOTER_NOT_FOUND = 127, False, "That voter is not in the set."
    INVALID_REGULAR_EXPRESSION = 128, False, "The regular expression is not valid."
    REBOOTSTRAP_REQUIRED = 129, False, "The client's metadata is stale; it must bootstrap again."
    STREAMS_INVALID_TOPOLOGY = 130, False, "The topology is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, False, "The topology's epoch is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, False, "The topology's epoch is outdated."
    SHARE_SESSION_LIMIT_REACHED = 133, True, "There are as many share sessions as allowed."


# Reading a member of an enum costs 85 ns, a module's constant 3: bind once where it is hot.
NONE = ErrorCode.NONE


# A name that a client made up may be 32 KB long, and so may an answer's text be, but not longer.
LONGEST_MESSAGE = 2_000


class KafkaError(Exception):
    """A refusal with the error code for the peer, and a message to add to it, if any."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        if message is not None and len(message) > LONGEST_MESSAGE:
            message = f"{message[:LONGEST_MESSAGE]}..."
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message or self.code.description}"


class MalformedMessage(Exception):
    """Bytes that do not follow the protocol; what a decoder raises, and nothing else."""
