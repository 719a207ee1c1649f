"""Members of the cluster: registrations and sessions of brokers and controllers."""
