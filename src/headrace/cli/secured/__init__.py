"""The files of `headrace security init`: certificates, and the folder with everything that a node
needs."""
