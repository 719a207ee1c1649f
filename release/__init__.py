"""How a version of Headrace is made: `make release VERSION=1.2.3`, with DRY=1 to see it only."""
