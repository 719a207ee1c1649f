"""Messaging that runs beside a cluster, one package per service, by the public protocol alone."""
