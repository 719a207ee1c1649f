"""Requests and responses of the HTTP API as bytes and documents. Pure: no clock, client, or
HTTP."""
