"""What others see of a running app: its log, its numbers, its pages, its observers."""
