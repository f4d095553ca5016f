"""Search and list what a gallery holds."""
