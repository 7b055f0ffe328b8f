"""How Flink's tables reach the broker: the options of their Kafka clients, without any secret among them."""

from pathlib import Path

from streaming.settings import KafkaSecurity, KafkaSettings

__all__ = ["connection"]

# The connector's jar holds a Kafka client of its own under other names.
CLIENT = "org.apache.flink.kafka.shaded.org.apache.kafka.common"
PROVIDERS = f"{CLIENT}.config.provider"
LOGIN = {
    "PLAIN": f"{CLIENT}.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{CLIENT}.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{CLIENT}.security.scram.ScramLoginModule",
}


def connection(broker: KafkaSettings) -> str:
    """Return options of a table, as they stand in its SQL.

    Of the password they say only where it is: each client reads it when it starts, wherever that is, so that it is neither in the plan nor
    in the job graph.
    """
    options = {"bootstrap.servers": broker.bootstrap, **_security(broker.security)}
    return ", ".join(f"'properties.{name}' = '{_quoted(value)}'" for name, value in options.items())


def _security(security: KafkaSecurity) -> dict[str, str]:
    if security.protocol == "PLAINTEXT":
        return {}
    options = {"security.protocol": security.protocol, "ssl.endpoint.identification.algorithm": "https"}
    if security.ca_file is not None:
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": _absolute(security.ca_file)}
    if security.client_file is not None:
        options |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": _absolute(security.client_file)}
    if security.password_file is not None:
        path = Path(security.password_file).absolute()
        options |= _login(security, "DirectoryConfigProvider", f"{path.parent}:{path.name}")
    elif security.password_env is not None:
        options |= _login(security, "EnvVarConfigProvider", security.password_env)
    return options


def _login(security: KafkaSecurity, provider: str, place: str) -> dict[str, str]:
    return {
        "config.providers": "secret",
        "config.providers.secret.class": f"{PROVIDERS}.{provider}",
        "sasl.mechanism": security.mechanism,
        "sasl.jaas.config": f'{LOGIN[security.mechanism]} required username="{security.username}" password="${{secret:{place}}}";',
    }


def _absolute(path: str) -> str:
    return str(Path(path).absolute())


def _quoted(text: str) -> str:
    return text.replace("'", "''")
