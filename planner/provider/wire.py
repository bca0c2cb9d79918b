"""Terraform's plugin protocol, version 6: the messages and methods that this provider uses.

On the wire a message is its field numbers; names are only for readers. So this table is all that is needed, and no
compiled description has to match the installed protobuf. What Terraform sends beyond it is skipped, as the format asks.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SERVICE = "tfplugin6.Provider"
ERROR, WARNING = 1, 2  # of a diagnostic

# A message, and its fields: number, type (* for several), name. A map is several messages of key and value.
_MESSAGES = """
Empty
Value            1 bytes msgpack, 2 bytes json
Step             1 string attribute_name, 2 string element_key_string, 3 int element_key_int
Path             1 *Step steps
Diagnostic       1 int severity, 2 string summary, 3 string detail, 4 Path attribute
Diagnostics      1 *Diagnostic diagnostics
Attribute        1 string name, 2 bytes type, 3 string description, 4 bool required, 5 bool optional, 6 bool computed
Block            1 int version, 2 *Attribute attributes, 4 string description
Schema           1 int version, 2 Block block
NamedSchema      1 string key, 2 Schema value
TypeName         1 string type_name
Metadata         2 *Diagnostic diagnostics, 3 *TypeName data_sources, 4 *TypeName resources
Schemas          1 Schema provider, 2 *NamedSchema resource_schemas, 3 *NamedSchema data_source_schemas, \
4 *Diagnostic diagnostics
ProviderConfig   1 Value config
ProviderChecked  2 *Diagnostic diagnostics
Config           1 string type_name, 2 Value config
RawState         1 bytes json
OldState         1 string type_name, 2 int version, 3 RawState raw_state
UpgradedState    1 Value upgraded_state, 2 *Diagnostic diagnostics
State            1 string type_name, 2 Value current_state, 3 bytes private
ReadState        1 Value new_state, 2 *Diagnostic diagnostics, 3 bytes private
Change           1 string type_name, 2 Value prior_state, 3 Value proposed_new_state, 4 Value config, \
5 bytes prior_private
PlannedChange    1 Value planned_state, 3 bytes planned_private, 4 *Diagnostic diagnostics
Apply            1 string type_name, 2 Value prior_state, 3 Value planned_state, 4 Value config, \
5 bytes planned_private
Applied          1 Value new_state, 2 bytes private, 3 *Diagnostic diagnostics
Import           1 string type_name, 2 string id
Imported         1 string type_name, 2 Value state, 3 bytes private
ImportedAll      1 *Imported imported_resources, 2 *Diagnostic diagnostics
DataState        1 Value state, 2 *Diagnostic diagnostics
Functions        2 *Diagnostic diagnostics
Stopped          1 string error
"""

# What Terraform calls: with which message, answered by which.
METHODS = {
    "GetMetadata": ("Empty", "Metadata"),
    "GetProviderSchema": ("Empty", "Schemas"),
    "ValidateProviderConfig": ("ProviderConfig", "ProviderChecked"),
    "ConfigureProvider": ("Config", "Diagnostics"),
    "ValidateResourceConfig": ("Config", "Diagnostics"),
    "UpgradeResourceState": ("OldState", "UpgradedState"),
    "ReadResource": ("State", "ReadState"),
    "PlanResourceChange": ("Change", "PlannedChange"),
    "ApplyResourceChange": ("Apply", "Applied"),
    "ImportResourceState": ("Import", "ImportedAll"),
    "ValidateDataResourceConfig": ("Config", "Diagnostics"),
    "ReadDataSource": ("Config", "DataState"),
    "GetFunctions": ("Empty", "Functions"),
    "StopProvider": ("Empty", "Stopped"),
}
# go-plugin's own service, by which Terraform says that it needs the provider no more.
CONTROLLER, SHUTDOWN = "plugin.GRPCController", "Shutdown"

_Field = descriptor_pb2.FieldDescriptorProto
_TYPES = {"bytes": _Field.TYPE_BYTES, "string": _Field.TYPE_STRING, "bool": _Field.TYPE_BOOL, "int": _Field.TYPE_INT64}


def _classes() -> dict[str, Any]:
    # proto2: a field that is set is sent, even where it is zero or empty.
    file = descriptor_pb2.FileDescriptorProto(name="scav_provider.proto", package="scav", syntax="proto2")
    for line in _MESSAGES.strip().splitlines():
        name, _, fields = line.partition(" ")
        message = file.message_type.add(name=name)
        for field in filter(None, fields.strip().split(", ")):
            _add(message, *field.split())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        message.name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"scav.{message.name}"))
        for message in file.message_type
    }


def _add(message: Any, number: str, kind: str, name: str) -> None:
    several, kind = kind.startswith("*"), kind.lstrip("*")
    field = message.field.add(name=name, number=int(number))
    field.label = _Field.LABEL_REPEATED if several else _Field.LABEL_OPTIONAL
    field.type = _TYPES.get(kind, _Field.TYPE_MESSAGE)
    if kind not in _TYPES:
        field.type_name = f".scav.{kind}"


MESSAGES = _classes()
