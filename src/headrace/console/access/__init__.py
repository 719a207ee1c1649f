"""Questions to the cluster, each bounded in count, bytes and time; the pages ask nothing else."""
