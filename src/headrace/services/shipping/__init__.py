"""SHIPPING: writes lines of log files and metrics of a host to topics."""
