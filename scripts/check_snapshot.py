#!/usr/bin/env python3
"""Opens memory snapshots with PyTorch's own tools, without a GPU: wgrad plan MODEL --snapshot FILE; this FILE...

Needs torch. Everything that torch.cuda._memory_viz makes of a snapshot is made, and its sums are compared with the file's.
"""
import pickle
import sys

from torch.cuda import _memory_viz as viz

for path in sys.argv[1:]:
    with open(path, "rb") as file:
        data = pickle.load(file)
    for segment in data["segments"]:
        tiled = sum(block["size"] for block in segment["blocks"])
        assert tiled == segment["total_size"], f"blocks of {tiled} bytes in a segment of {segment['total_size']}"
        assert segment["active_size"] == viz.calc_active(segment)
    print(viz.segsum(data).splitlines()[-1])
    told = viz.trace(data)
    assert "unknown" not in told.lower(), "the trace has events that the viewer does not know"
    for draw in (viz.trace_plot, viz.segment_plot):
        assert len(draw(data)) > 1000
    alive, peak, now = {}, 0, 0
    for event in data["device_traces"][0]:
        if event["action"] == "alloc":
            assert event["addr"] not in alive, f"{event} is allocated twice"
            alive[event["addr"]] = event["size"]
            now += event["size"]
            peak = max(peak, now)
        elif event["action"] == "free_completed":
            now -= alive.pop(event["addr"])
    blocks = {b["address"] for s in data["segments"] for b in s["blocks"] if b["state"] == "active_allocated"}
    assert blocks == set(alive), "what the history leaves alive is not what the segments hold"
    print(f"{path}: {len(data['device_traces'][0])} events, peak {peak} bytes, {len(blocks)} blocks alive at the end")
