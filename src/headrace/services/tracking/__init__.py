"""WEB TRACKING: events of browsers, over HTTP, into one topic per kind."""
