"""What `headrace doctor` looks at: the machine, the cluster, one topic. Each returns findings."""
