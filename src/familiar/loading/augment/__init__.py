"""Random augmentation of crops.

`settings` has probabilities and ranges; `pipeline` draws a change for one photo, keyed by (seed, epoch, photo);
`ops_numpy` applies it to one crop while loading, `ops_torch` to a batch on the training device; `custom` applies a
function of the user; `preview` draws a contact sheet of all.
"""
