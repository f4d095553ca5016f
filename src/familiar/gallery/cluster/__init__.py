"""Cluster the faces of a gallery into identities."""
