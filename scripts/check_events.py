#!/usr/bin/env python3
"""Reads TensorBoard event files back with TensorBoard's own loader: check_events.py FOLDER...

Needs tensorboard. Prints each tag with its number of values and the last one; a record whose checksum is wrong is an error.
"""
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

for folder in sys.argv[1:]:
    events = EventAccumulator(folder, size_guidance={"scalars": 0})
    events.Reload()
    tags = events.Tags()["scalars"]
    assert tags, f"{folder}: no scalars"
    for tag in tags:
        values = events.Scalars(tag)
        steps = [value.step for value in values]
        assert steps == sorted(steps), f"{tag}: steps are out of order"
        print(f"{tag}: {len(values)} values, the last at step {steps[-1]}: {values[-1].value:g}")
