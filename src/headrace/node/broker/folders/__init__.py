"""The data folders of this broker: whose they are, what lies in which, what moves."""
