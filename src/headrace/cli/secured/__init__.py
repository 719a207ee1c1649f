"""What `headrace security init` makes: certificates, and the folder with all that a node needs."""
