"""Requests and responses of the door as bytes and documents. Pure: no clock, no client, no HTTP."""
