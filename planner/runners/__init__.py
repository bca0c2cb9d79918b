"""Where a probe can be run; every runner takes a Probe and answers with a Measurement or says why there is none."""

from planner import assets

assets.put_probes_on_path()  # the modules of this package share a few lines with those that run on a node
