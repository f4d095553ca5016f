"""Search and list the faces, photos and identities of a gallery."""
