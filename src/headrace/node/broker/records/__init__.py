"""Records on their way in and out: what is acknowledged, what a fetch is answered."""
