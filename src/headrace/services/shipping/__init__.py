"""SHIPPING: lines of log files and numbers of a host, into topics."""
