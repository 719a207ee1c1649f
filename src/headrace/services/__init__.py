"""Messaging services that run beside a cluster, one package per service, using the public protocol
only."""
