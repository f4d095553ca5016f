"""Import and export identities, and migrate a gallery to another model."""
