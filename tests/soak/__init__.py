"""Long runs: kill -9 under load. `make soak` runs them in full, `make interop` three rounds."""
