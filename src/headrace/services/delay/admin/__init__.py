"""What others see of a running instance, over HTTP."""
