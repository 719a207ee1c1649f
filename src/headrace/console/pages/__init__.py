"""One module per page: read the address, ask the cluster, hand the view to a template."""
