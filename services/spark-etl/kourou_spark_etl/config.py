"""The settings of the Spark service.

State: none; settings are read once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kourou.client.session.client_keys import KEY_FILE, SERVER_KEY
from kourou.errors import ConfigError
from kourou.eventstore.database import sqlite_url
from kourou.model.ports import SPARK_ETL_ADMIN_PORT
from kourou.service.process_keys import ProcessKeys
from kourou.settings.declaration import setting


@dataclass(frozen=True, kw_only=True)
class EtlSettings(ProcessKeys):
    """All keys of `spark-etl.conf`."""

    name_servers: str | None = setting(
        None,
        "namesrvAddr",
        "Name servers, host:port;host:port; a query may have others",
        environment="NAMESRV_ADDR",
    )
    job_file: Path | None = setting(None, "jobFile", "The queries, in TOML")
    root: Path = setting(
        lambda: Path.home() / "spark-etl",
        "etlPath",
        "The folder of checkpoints, lakes, and of databases without a URL; on a "
        "cluster every machine must have access to it",
        default_text="$HOME/spark-etl",
    )
    master: str = setting(
        "local[2]",
        "sparkMaster",
        "Where Spark runs: local[N], or spark://host:7077 of a standalone cluster",
        pattern=r"local(\[(\*|[0-9]+)(,[0-9]+)?\])?|spark://.+",
    )
    driver_memory: str = setting(
        "1g", "sparkDriverMemory", "Java's heap in the driver, like 1g", pattern=r"[1-9][0-9]*[mg]"
    )
    spark_options: str = setting(
        "", "sparkOptions", "More settings of Spark's, name=value;name=value"
    )
    class_archive: Path | None = setting(
        None, "sparkClassArchive", "Java keeps its classes there, which halves later starts"
    )
    read_model_url: str | None = setting(
        None, "readModelUrl", "Database of the tables (SQLAlchemy URL); empty is SQLite in etlPath"
    )
    read_model_password_file: Path | None = setting(
        None,
        "readModelPasswordFile",
        "A file with that database's password alone",
        secret_file=True,
    )
    event_store_url: str | None = setting(
        None, "eventStoreUrl", "Database of the service's events; empty is SQLite in etlPath"
    )
    event_store_password_file: Path | None = setting(
        None,
        "eventStorePasswordFile",
        "A file with that database's password alone",
        secret_file=True,
    )
    trace_otlp_endpoint: str | None = setting(
        None,
        "traceOtlpEndpoint",
        "Where spans of batches go, as http://host:4318; OTEL_… variables win",
    )

    def __post_init__(self) -> None:
        """Check the combinations of settings. Raises ConfigError."""
        self.check_process()
        if self.curve_key_file is not None and self.curve_server_key is None:
            raise ConfigError(
                "curveKeyFile is set, but curveServerKey is not",
                hint="set it to the file or folder with the public keys of name servers and "
                "brokers",
            )
        self.session_settings  # noqa: B018 - raises for an invalid list of settings
        for key, file, url in (
            ("readModel", self.read_model_password_file, self.read_model_url),
            ("eventStore", self.event_store_password_file, self.event_store_url),
        ):
            if file is not None and url is None:
                raise ConfigError(f"{key}PasswordFile is set, but {key}Url is not")

    @property
    def admin_port(self) -> int:
        """The port to bind for the admin pages and the tables."""
        return SPARK_ETL_ADMIN_PORT if self.admin_port_wanted is None else self.admin_port_wanted

    @property
    def wanted_job_file(self) -> Path:
        """The path of the job file. Raises ConfigError if it is not set."""
        if self.job_file is None:
            raise ConfigError(
                "jobFile is not set", hint="use --jobs FILE, for example deploy/spark-etl.toml"
            )
        return self.job_file

    @property
    def folder(self) -> Path:
        """The service's folder as an absolute path."""
        return self.root.expanduser().absolute()

    @property
    def read_model(self) -> str:
        """The URL of the read model, without its password."""
        return self.read_model_url or sqlite_url(self.folder / "read-model.db")

    @property
    def event_store(self) -> str:
        """The URL of the event store, without its password."""
        return self.event_store_url or sqlite_url(self.folder / "events.db")

    @property
    def curve_environment(self) -> dict[str, str]:
        """Environment variables with the key files, for clients here and in Spark's workers."""
        return {
            name: str(path.absolute())
            for name, path in ((KEY_FILE, self.curve_key_file), (SERVER_KEY, self.curve_server_key))
            if path is not None
        }

    @property
    def session_settings(self) -> dict[str, str]:
        """The Spark settings of this service, in addition to those of every session."""
        options = {
            "spark.driver.memory": self.driver_memory,
            "spark.local.dir": str(self.folder / "spark"),
            "spark.sql.warehouse.dir": (self.folder / "spark" / "warehouse").as_uri(),
            # The standard Parquet type of timestamps; Spark's default is deprecated.
            "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
            # Fair scheduling: otherwise the query with the most work is served first.
            "spark.scheduler.mode": "FAIR",
            "spark.sql.streaming.stopTimeout": "10s",
        }
        # Executors read and write messages, too; they inherit the environment of Spark's worker.
        for name, value in self.curve_environment.items():
            options[f"spark.executorEnv.{name}"] = value
        for entry in filter(None, map(str.strip, self.spark_options.split(";"))):
            name, equals, value = entry.partition("=")
            if not equals or not name.startswith("spark."):
                raise ConfigError(
                    f"sparkOptions: {entry!r} is not allowed", hint="spark.name=value"
                )
            options[name.strip()] = value.strip()
        return options
