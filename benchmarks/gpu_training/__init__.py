"""Training of the package's bundles within ten minutes of one GPU: photos as small packs, all of them in its memory."""
