"""Seconds of a training step whose model is spread over GPUs: sharded, in tensor parallel, in stages."""
