"""Probes on AWS: one small cluster after the other, each destroyed before the next begins."""
