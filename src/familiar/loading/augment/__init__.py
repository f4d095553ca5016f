"""Random augmentation of crops.

`settings` has probabilities and ranges; `pipeline` draws a change for one photo, keyed by (seed, epoch, photo), and
applies it with `operations`; `custom` applies a function of the user; `preview` draws a contact sheet of all.
"""
