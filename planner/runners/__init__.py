"""Where a probe can be run; every runner takes a Probe and answers with a Measurement or says why there is none."""
