"""How to observe a running app: its log, its metrics, its pages, its observers."""
