"""scav inside Terraform: a provider (protocol 6) whose plan is a resource.

Its modules are its exports. What needs grpc, protobuf, cryptography and msgpack (the extra `provider`) is only imported
where Terraform has started the provider.
"""

__all__ = ["external", "installation", "package"]
