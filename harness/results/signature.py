"""Ed25519 signatures of a run's manifest, detached, in ``manifest.sig`` (base64). Needs the extra ``sign``.

Keys are PEM files as OpenSSL writes them: PKCS 8 (private, not encrypted, mode 0600) and SubjectPublicKeyInfo (public).
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import importlib.util
import os
from pathlib import Path

from harness.errors import HostError, UserError
from harness.results.integrity import MANIFEST_NAME, SIGNATURE_NAME, Difference, read_manifest


def new_key(path: Path) -> Path:
    """Write a private key to ``path``, which must not exist, and its public key to ``path`` + ``.pub``."""
    _need_cryptography()
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    public = key.public_key().public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)
    target = path.with_name(f"{path.name}.pub")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(private)
        target.write_bytes(public)
    except FileExistsError as exc:
        raise UserError(f"{path} exists already", next_step="choose another name: a key is never overwritten") from exc
    except OSError as exc:
        with contextlib.suppress(OSError):
            target.unlink(missing_ok=True)
        raise HostError(f"{path} cannot be written", found=str(exc)) from exc
    return target


def sign(results: Path, private_key: Path) -> Path:
    """Sign the manifest of a results folder; returns the signature's path."""
    _need_cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    read_manifest(results)
    try:
        key = load_pem_private_key(_read(private_key), password=None)
    except (ValueError, TypeError) as exc:
        raise _not_a_key(private_key, "private", str(exc)) from exc
    if not isinstance(key, Ed25519PrivateKey):
        raise _not_a_key(private_key, "private", type(key).__name__)
    signature = results / SIGNATURE_NAME
    temporary = signature.with_name(f".{signature.name}.{os.getpid()}.tmp")
    temporary.write_bytes(base64.b64encode(key.sign((results / MANIFEST_NAME).read_bytes())) + b"\n")
    temporary.replace(signature)
    return signature


def signature_differences(results: Path, public_key: Path) -> list[Difference]:
    """Empty when the manifest is signed by that key's owner."""
    _need_cryptography()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(_read(public_key))
    except ValueError as exc:
        raise _not_a_key(public_key, "public", str(exc)) from exc
    if not isinstance(key, Ed25519PublicKey):
        raise _not_a_key(public_key, "public", type(key).__name__)
    path = results / SIGNATURE_NAME
    if not path.is_file():
        return [Difference(where="manifest", what=f"is not signed: there is no {SIGNATURE_NAME}")]
    try:
        signature = base64.b64decode(path.read_bytes().strip(), validate=True)
        key.verify(signature, (results / MANIFEST_NAME).read_bytes())
    except (InvalidSignature, binascii.Error):
        return [Difference(where="manifest", what=f"its signature is not that of {public_key}, or it was changed")]
    return []


def _need_cryptography() -> None:
    if importlib.util.find_spec("cryptography") is None:
        raise HostError(
            "signatures cannot be made or checked here",
            found="no Python package cryptography",
            next_step="pip install 'snapgate[sign]'",
        )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as exc:
        raise UserError(f"the key {path} cannot be read", found=str(exc), next_step="check the path") from exc


def _not_a_key(path: Path, kind: str, found: str) -> UserError:
    return UserError(
        f"{path} is not a {kind} key",
        found=found,
        expected=f"an Ed25519 {kind} key in PEM",
        next_step="make a pair with: snapgate sign --new-key FILE",
    )
