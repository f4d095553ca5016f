"""Find faces in a photo and align them into crops."""
