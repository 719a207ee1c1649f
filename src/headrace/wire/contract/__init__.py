"""The contract between Headrace and programs in any language: headers, topic names, durations."""
