"""Cluster the faces of a gallery into identities, and propose what to review."""
