"""Long work in the background of the console, with progress that pages show."""
