"""Random changes to crops, as real photos differ.

`settings` says what may happen and how often; `change` draws what happens to one photo, keyed by (seed, epoch, photo);
`photo` does it to one crop while loading, `batch` to many on the training device; `sheet` shows it to people.
"""
