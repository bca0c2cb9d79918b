"""What is predicted about a configuration: step time, memory, samples to the target, losses of spot nodes."""
