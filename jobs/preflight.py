"""Step before any job: check what the job will need, and say in one sentence what is missing."""

import os
import re
import shutil
import socket
import ssl
import subprocess
from pathlib import Path

from jobs.errors import UserError
from streaming.settings import KafkaSettings

__all__ = ["jars_folder", "java_program", "require_broker", "require_jars", "require_topics"]

MIN_JAVA = 17
CONNECT_TIMEOUT_S = 3.0


def java_program() -> str:
    """Find a Java that can run Flink and Kafka.

    Returns
    -------
    str
        Path of the program: from ``JAVA_HOME`` if that is set, else the first one on ``PATH``.

    Raises
    ------
    UserError
        If there is none, or if it is older than Java 17.
    """
    home = os.environ.get("JAVA_HOME")
    program = shutil.which(str(Path(home) / "bin" / "java")) if home else None
    program = program or shutil.which("java")
    if program is None:
        raise UserError(f"Java is missing: install a Java {MIN_JAVA} runtime or newer.")
    shown = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "(?:1\.)?(\d+)', shown.stderr + shown.stdout)
    if version is None:
        raise UserError(f"`{program} -version` does not answer: install a Java {MIN_JAVA} runtime or newer.")
    if int(version[1]) < MIN_JAVA:
        raise UserError(f"Java {version[1]} is too old: install Java {MIN_JAVA} or newer, or point JAVA_HOME to one.")
    return program


def jars_folder() -> Path:
    """Give the folder that `make setup` fills with jars.

    Returns
    -------
    Path
        ``WAYVEIL_JARS`` if set, else ``deploy/jars`` beside the packages.
    """
    named = os.environ.get("WAYVEIL_JARS")
    return Path(named) if named else Path(__file__).resolve().parent.parent / "deploy" / "jars"


def require_jars(kind: str, *needed: str) -> list[Path]:
    """Give the jars of one kind.

    Parameters
    ----------
    kind : str
        ``flink`` or ``broker``: a folder of :func:`jars_folder`.
    *needed : str
        Beginnings of file names that must be there.

    Returns
    -------
    list of Path
        All jars of the folder, sorted by name.

    Raises
    ------
    UserError
        If there is no jar, or one that is needed is missing.
    """
    jars = sorted((jars_folder() / kind).glob("*.jar"))
    if not jars or any(not any(jar.name.startswith(name) for jar in jars) for name in needed):
        raise UserError(f"The {kind} jars are missing: run `make setup`.")
    return jars


def require_broker(broker: KafkaSettings) -> None:
    """Check that something listens at one of the addresses, and that it is who it should be.

    Parameters
    ----------
    broker : KafkaSettings
        Where the broker is, and how it is reached.

    Raises
    ------
    UserError
        If none of the addresses accepts a connection; or with TLS, if the one that does so is not trusted, or does not let the client in.
    """
    from jobs.kafka.security import require_login, tls_context

    context = tls_context(broker.security)
    for address in broker.bootstrap.split(","):
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S) as connection:
                if context is not None:
                    context.wrap_socket(connection, server_hostname=host).close()
        except ssl.SSLCertVerificationError as error:
            raise UserError(
                f"The certificate of the Kafka broker at {address} is not to be trusted ({error.verify_message}): correct "
                "kafka.security.ca_file or kafka.bootstrap in the settings."
            ) from error
        except ssl.SSLError as error:
            raise UserError(f"The Kafka broker at {address} and this client agree on no TLS: correct kafka.security.") from error
        except (OSError, OverflowError):
            continue
        if context is not None:
            require_login(broker)
        return
    raise UserError(
        f"No Kafka broker answers at {broker.bootstrap}: start one with `wayveil broker start`, or correct kafka.bootstrap in the settings."
    )


def require_topics(broker: KafkaSettings, *topics: str) -> None:
    """Check that the broker answers and knows every topic.

    Parameters
    ----------
    broker : KafkaSettings
        Where the broker is, and how it is reached.
    *topics : str
        Names of topics.

    Raises
    ------
    UserError
        If the broker cannot be reached, or topics are missing (all of them are named).
    """
    from jobs.kafka import topic_names

    known = topic_names(broker)
    missing = [topic for topic in topics if topic not in known]
    if missing:
        subject, verb = ("Topic", "does") if len(missing) == 1 else ("Topics", "do")
        name = broker.security.username
        hidden, ways = ("", "") if name is None else (f", or {name} may not see them", ", or have them allowed (deploy/kafka)")
        raise UserError(
            f"{subject} {', '.join(missing)} {verb} not exist at {broker.bootstrap}{hidden}: run `wayveil topics create`{ways}."
        )
