"""Members of the cluster: brokers and controllers that register, are heard of, and leave."""
