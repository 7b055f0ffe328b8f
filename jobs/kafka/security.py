"""How each kind of client reaches the broker, by the settings' section `[kafka]`: options, certificates, and a first login."""

import ssl
from typing import Any

from kafka import errors as kafka_errors
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector

from jobs.errors import UserError
from streaming.secret import SecretError, load_password
from streaming.settings import KafkaSecurity, KafkaSettings

__all__ = ["client_options", "librdkafka_options", "require_login", "tls_context"]

LOGIN_TIMEOUT_MS = 5_000


class _Hidden(str):
    """A password for a client that logs its options."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'**********'"


def client_options(broker: KafkaSettings) -> dict[str, Any]:
    """Return the options by which a client of kafka-python reaches the broker.

    Raises
    ------
    UserError
        If a certificate or the password cannot be read.
    """
    security = broker.security
    options = {"bootstrap_servers": broker.bootstrap, "security_protocol": security.protocol, "ssl_context": tls_context(security)}
    if security.username is not None:
        options |= {
            "sasl_mechanism": security.mechanism,
            "sasl_plain_username": security.username,
            "sasl_plain_password": _password(security),
        }
    return options


def librdkafka_options(broker: KafkaSettings) -> dict[str, Any]:
    """Return the options by which a client of confluent-kafka reaches the broker.

    Raises
    ------
    UserError
        If a certificate or the password cannot be read.
    """
    security = broker.security
    tls_context(security)
    options = {"bootstrap.servers": broker.bootstrap, "security.protocol": security.protocol}
    if security.ca_file is not None:
        options["ssl.ca.location"] = security.ca_file
    if security.client_file is not None:
        options |= {"ssl.certificate.location": security.client_file, "ssl.key.location": security.client_file}
    if security.username is not None:
        options |= {"sasl.mechanism": security.mechanism, "sasl.username": security.username, "sasl.password": _password(security)}
    return options


def tls_context(security: KafkaSecurity) -> ssl.SSLContext | None:
    """Return what decides whether a certificate is trusted, and which one the client shows; None without TLS.

    Raises
    ------
    UserError
        If a certificate cannot be read.
    """
    if security.protocol == "PLAINTEXT":
        return None
    try:
        context = ssl.create_default_context(cafile=security.ca_file)
    except OSError as error:
        raise UserError(f"kafka.security.ca_file {security.ca_file} cannot be used: let it hold certificates in PEM.") from error
    if security.client_file is not None:
        try:
            context.load_cert_chain(security.client_file, password="")  # with none, it would ask at the terminal
        except OSError as error:
            raise UserError(
                f"kafka.security.client_file {security.client_file} cannot be used: let it hold a private key without a password, and its "
                "certificate, in PEM."
            ) from error
    return context


def require_login(broker: KafkaSettings) -> None:
    """Check that the broker lets this client in; without this check, clients would try again and again until their time is up.

    Raises
    ------
    UserError
        If it does not.
    """
    options = client_options(broker)
    net = NetworkSelector()
    manager = KafkaConnectionManager(net, **options, request_timeout_ms=LOGIN_TIMEOUT_MS)

    async def ask() -> None:
        node = manager.cluster.bootstrap_brokers()[0].node_id
        await manager.get_connection(node, timeout_ms=LOGIN_TIMEOUT_MS, pop_on_close=False, refresh_metadata_on_err=False)
        await manager.cluster.refresh_metadata(node)

    try:
        net.run(ask)
    except (kafka_errors.KafkaTimeoutError, kafka_errors.RequestTimedOutError):
        return  # a broker that says nothing is another matter
    except kafka_errors.KafkaError as error:
        # Which of them is wrong is often lost with the connection, which the broker closes.
        name, wrong = broker.security.username, "protocol or client_file"
        if name is not None:
            wrong = "username, password or mechanism"
        raise UserError(
            f"The Kafka broker at {broker.bootstrap} does not let {name or 'this client'} in: correct {wrong} in kafka.security."
        ) from error
    finally:
        manager.close()
        net.close()


def _password(security: KafkaSecurity) -> str:
    try:
        return _Hidden(load_password(security).get_secret_value())
    except SecretError as error:
        raise UserError(f"kafka.security: {error}.") from error
