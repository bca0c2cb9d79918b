"""Logs that other tools wrote of a training run, and the measurement that follows from one."""
