"""Power cuts and failing system calls: record what an operation does to the disk, and replay it with losses.

`preload.c` sees the calls of a process, `recording.py` records an operation in such a process and reads the record,
`disk.py` computes what may be on the disk after a power cut, `cuts.py` checks operations after many cuts, and
`failing_calls.py` lets each call fail in turn. The operations are in `gallery_operations.py` and `file_operations.py`.
"""
