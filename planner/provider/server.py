"""How Terraform and the provider find each other: one line on stdout, then gRPC over TLS on a socket of their own.

Nothing else may reach stdout before that line, and nobody reads it after: so it is stderr, which goes to Terraform's
log, for everything but this module. The key lives in memory, and as long as the process.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import msgpack  # noqa: F401 - as protobuf: needed later, and missed while Terraform still shows a line
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from google.protobuf import __version__  # noqa: F401

from planner.errors import ScavError

_PROTOCOL = 6
# Terraform sets it for what it starts, so that nobody waits for an answer on a terminal.
COOKIE = ("TF_PLUGIN_MAGIC_COOKIE", "d602bf8f470bc67ca7faa0386276bbdd4330efaf76d1a219cb4d6991ca9872b2")
_AT_ONCE = 16
_MOST_BYTES = 64 << 20
_PARENT_SECONDS = 1.0
_LONGEST_FOLDER = 80  # the name of a socket may have about a hundred bytes


def serve() -> None:
    if os.environ.get(COOKIE[0]) != COOKIE[1]:
        raise ScavError("this is a provider for Terraform, which starts it by itself: `scav provider install`")
    said = _stdout_for_one_line()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches us too; Terraform asks us to stop when it is done
    parent, ended = os.getppid(), threading.Event()
    methods = SimpleNamespace(service=partial(_method, ended))
    options = [("grpc.max_receive_message_length", _MOST_BYTES), ("grpc.max_send_message_length", _MOST_BYTES)]
    with ThreadPoolExecutor(_AT_ONCE) as pool, _socket_folder() as folder:
        server = grpc.server(pool, handlers=[methods], options=options)
        certificate, credentials = _credentials()
        server.add_secure_port(f"unix:{folder}/provider", credentials)
        server.start()
        known = base64.b64encode(certificate).decode().rstrip("=")
        os.write(said, f"1|{_PROTOCOL}|unix|{folder}/provider|grpc|{known}\n".encode())
        os.close(said)
        import planner.provider.servicer  # noqa: F401 - while Terraform connects

        # A Terraform that was killed says nothing.
        while not ended.wait(_PARENT_SECONDS) and os.getppid() == parent:
            pass
        server.stop(grace=None)


def _stdout_for_one_line() -> int:
    said = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return said


@contextlib.contextmanager
def _socket_folder() -> Iterator[str]:
    """Of this user alone, which is who may ask: Terraform's own certificate has a curve that gRPC does not check."""
    try:
        folder = tempfile.mkdtemp(prefix="scav-")
        if len(folder) > _LONGEST_FOLDER:
            Path(folder).rmdir()
            folder = tempfile.mkdtemp(prefix="scav-", dir="/tmp")
    except OSError as error:
        raise ScavError(f"no temporary folder for a socket: {error}; set TMPDIR to one") from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _method(ended: threading.Event, call: Any) -> Any:
    """As gRPC asks for each call; None: there is none. What answers is imported here, not before the handshake."""
    from planner.provider.servicer import answer
    from planner.provider.wire import CONTROLLER, MESSAGES, METHODS, SERVICE, SHUTDOWN

    def shut_down(request: Any) -> Any:
        ended.set()
        return request

    service, _, name = call.method.strip("/").partition("/")
    if service == SERVICE and name in METHODS:
        return _handler(partial(answer, name), MESSAGES[METHODS[name][0]])
    if (service, name) == (CONTROLLER, SHUTDOWN):
        return _handler(shut_down, MESSAGES["Empty"])
    return None


def _handler(function: Any, takes: Any) -> Any:
    return grpc.unary_unary_rpc_method_handler(
        lambda request, _context: function(request),
        request_deserializer=takes.FromString,
        response_serializer=lambda reply: reply.SerializeToString(),
    )


def _credentials() -> tuple[bytes, Any]:
    """A certificate of our own, whose bytes Terraform is told and trusts for this process alone."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + 30 * day)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    pairs = [(private, certificate.public_bytes(pem))]
    return certificate.public_bytes(serialization.Encoding.DER), grpc.ssl_server_credentials(pairs)
