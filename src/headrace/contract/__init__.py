"""What programs in any language agree on with Headrace: headers, topic names, durations."""
