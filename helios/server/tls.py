"""TLS for the listeners: a certificate and its key become an SSL context, or one line about what is wrong with them.

It knows files and the ssl module, no sockets. Nothing older than TLS 1.2 is spoken, a key that needs a password is refused
instead of asking for one, and where authorities are given, so is every client without a certificate of theirs.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from helios.errors import SettingError
from helios.settings import Settings


class _EncryptedKeyError(Exception):
    """Raised through the ssl module, which would ask the terminal otherwise."""


def server_context(settings: Settings) -> ssl.SSLContext | None:
    """The context of `--tls-cert`, `--tls-key` and `--tls-client-ca`, None without them. SettingError when they cannot be used."""
    if settings.tls_cert is None and settings.tls_key is None:
        if settings.tls_client_ca is not None:
            raise SettingError(
                "--tls-client-ca is given and --tls-cert is not", hint="TLS needs a certificate and a key"
            )
        return None
    if settings.tls_cert is None or settings.tls_key is None:
        given, missing = ("--tls-key", "--tls-cert") if settings.tls_cert is None else ("--tls-cert", "--tls-key")
        raise SettingError(f"{given} is given and {missing} is not", hint="TLS needs both")
    _check_readable("--tls-cert", settings.tls_cert)
    _check_readable("--tls-key", settings.tls_key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key, _refuse_password)
    except _EncryptedKeyError:
        raise SettingError(f"--tls-key {settings.tls_key} is encrypted", hint="give one without a password") from None
    except ssl.SSLError as error:
        raise SettingError(_fault(error, settings.tls_cert, settings.tls_key)) from error
    if settings.tls_client_ca is not None:
        _require_clients(context, settings.tls_client_ca)
    return context


def _require_clients(context: ssl.SSLContext, path: str) -> None:
    """Only clients with a certificate of these authorities."""
    _check_readable("--tls-client-ca", path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise SettingError(f"--tls-client-ca {path} holds no PEM certificate: {error.reason or error}") from error
    context.verify_mode = ssl.CERT_REQUIRED


def _check_readable(flag: str, path: str) -> None:
    try:
        with Path(path).open("rb"):
            return
    except OSError as error:
        raise SettingError(f"{flag} {path} cannot be read: {error.strerror}") from error


def _refuse_password() -> str:
    raise _EncryptedKeyError


def _fault(error: ssl.SSLError, certificate: str, key: str) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"--tls-key {key} is not the key of --tls-cert {certificate}"
    return f"--tls-cert {certificate} and --tls-key {key} are no PEM certificate and key: {error.reason or error}"
