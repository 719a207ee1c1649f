"""The checks of `headrace doctor`: the machine, the cluster, one topic. Each returns findings."""
