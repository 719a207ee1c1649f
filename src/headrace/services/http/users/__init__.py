"""Whose request it is: logins of HTTP become users of the cluster."""
