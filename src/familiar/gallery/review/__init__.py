"""Questions to the user whose answers correct the most."""
