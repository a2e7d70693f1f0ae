"""What an operator sets of each process: one frozen class a process, from variables that begin with MUSTER_.

Read once, in `services/main.py`, and passed on as arguments. A class for another process extends `CommonSettings`.
"""

import re
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from events.job import Domain
from events.subjects import CELL_DEFAULT, LABEL_RULE, NAME_RULE, is_label, is_name
from runtime.nats import Login

GPUS: Final = re.compile(r"nvml|simulated:(\d{1,4})(:[A-Za-z0-9-]{1,24})?")

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Port = Annotated[int, Field(ge=0, le=65_535)]
Networks = Annotated[tuple[IPv4Network | IPv6Network, ...], NoDecode]


class CommonSettings(BaseSettings):
    """What every process needs to know."""

    model_config = SettingsConfigDict(env_prefix="MUSTER_", frozen=True, extra="ignore", hide_input_in_errors=True)

    cell: str = Field(CELL_DEFAULT, description="The cell's name, in every subject.")
    replicas: int = Field(1, ge=1, le=5, description="Servers that keep each stream; as many as the cluster has.")
    nats_urls: Annotated[tuple[str, ...], NoDecode] = Field(
        ("nats://127.0.0.1:4222",), min_length=1, max_length=16, description="NATS servers, separated by commas."
    )
    nats_user: str = Field("", max_length=64, description="NATS user; each kind of process has its own.")
    nats_password: SecretStr = Field(SecretStr(""), description="Password of the NATS user.")
    postgres_dsn: SecretStr = Field(SecretStr(""), description="PostgreSQL, as postgresql://…; empty: not used.")
    data_dir: Path = Field(Path(".muster"), description="Where the process keeps its files.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level of log lines.")

    @field_validator("cell")
    @classmethod
    def _cell_is_a_name(cls, cell: str) -> str:
        if not is_name(cell):
            raise ValueError(f"the cell is a name: {NAME_RULE}")
        return cell

    @field_validator("nats_urls", mode="before")
    @classmethod
    def _urls_by_commas(cls, value: Any) -> Any:  # noqa: ANN401 - as typed
        return tuple(url.strip() for url in value.split(",") if url.strip()) if isinstance(value, str) else value

    @property
    def login(self) -> Login:
        """Where and as whom the process connects to NATS."""
        return Login(urls=self.nats_urls, user=self.nats_user, password=self.nats_password.get_secret_value())


class ControlSettings(CommonSettings):
    """The control plane's: a candidate for leading."""

    nats_user: str = "control"
    instance: str = Field("", max_length=64, description="Its name among control planes; empty: drawn at start.")
    lease_s: float = Field(2.0, ge=2.0, le=60.0, description="Seconds until a silent leader may be replaced.")
    round_every_s: float = Field(0.2, ge=0.02, le=0.2, description="Seconds between rounds when nothing happens.")
    snapshot_every_s: Seconds = Field(60.0, le=3_600, description="Seconds between snapshots of the fold.")
    chapter_records: int = Field(
        20_000_000, ge=1_000, le=1 << 39, description="Records of a chapter of the log; then the next one is opened."
    )
    chapter_bytes: int = Field(
        64 << 30, ge=1 << 20, le=1 << 60, description="Bytes of events in a chapter of the log; then likewise."
    )


class GateSettings(CommonSettings):
    """The gate's."""

    nats_user: str = "gate"
    waiting_max: int = Field(
        20_000, ge=1, le=1_000_000, description="Facts that wait for their commit; more are refused."
    )


class SendingSettings(CommonSettings):
    """Those of processes that check where webhooks go: the API when they are set up, and the part that sends them."""

    webhooks_allow: Networks = Field(
        (),
        max_length=64,
        description="Networks that webhooks may go to although they are not of the public internet, by commas.",
    )

    @field_validator("webhooks_allow", mode="before")
    @classmethod
    def _networks_by_commas(cls, value: Any) -> Any:  # noqa: ANN401 - as typed
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


class ApiSettings(GateSettings, SendingSettings):
    """The API's, which carries a gate of its own."""

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: Port = Field(8080, description="Port to listen on; 0: any free one.")
    reconcile_every_s: float = Field(
        86_400.0, ge=0.0, le=31_536_000.0, description="Seconds between reconcilings of all credits; 0: none by itself."
    )


class ReaderSettings(CommonSettings):
    """Those of processes that only read the log: projector, rebuild, verify."""

    nats_user: str = "reader"


class CopySettings(CommonSettings):
    """Those of backup and restore, which manage streams."""

    nats_user: str = "system"


class WebhooksSettings(SendingSettings):
    """Those of the part that sends webhooks."""

    nats_user: str = "reader"
    webhooks_kept_days: int = Field(30, ge=1, le=3_650, description="Days that ended deliveries are kept.")


class DispatcherSettings(CommonSettings):
    """The dispatcher's."""

    nats_user: str = "control"


class AgentSettings(CommonSettings):
    """A node agent's."""

    node_id: str = Field("", max_length=24, description="The node's name; empty: the host's.")
    gpus: str = Field("nvml", description="`nvml`, or `simulated:N` or `simulated:N:TYPE` for N that do not exist.")
    address: str = Field("", max_length=64, description="Where ranks of other nodes reach this one; empty: found.")
    rack: str = Field("", description="The rack it stands in: its label `rack`.")
    spine: str = Field("", description="The spine that its rack hangs on: its label `spine`.")
    labels: Annotated[dict[str, str], NoDecode] = Field(
        {}, max_length=32, description="What jobs may ask of it, as `fabric=ib,disk=nvme`."
    )
    taints: Annotated[tuple[str, ...], NoDecode] = Field(
        (), max_length=32, description="Only jobs that tolerate all of these come here; separated by commas."
    )
    heartbeat_every_s: float = Field(10.0, ge=0.1, le=60.0, description="Seconds between heartbeats.")
    reread_every_s: float = Field(30.0, ge=0.5, le=300.0, description="Seconds between looks at what is desired.")
    lost_after_s: float = Field(
        90.0, ge=1.0, le=3_600.0, description="Seconds of silence after which the node is lost, until it is told when."
    )
    grace_s: float = Field(30.0, ge=0.0, le=3_600.0, description="Seconds from a stop to KILL where the job says none.")
    gpus_every_s: float = Field(5.0, ge=0.05, le=300.0, description="Seconds between looks at what GPUs show.")
    unkillable_after_s: float = Field(
        60.0, ge=1.0, le=3_600.0, description="Seconds from KILL after which processes that live on are reported."
    )

    @field_validator("node_id")
    @classmethod
    def _node_is_a_name(cls, node_id: str) -> str:
        if node_id and not is_name(node_id):
            raise ValueError(f"the node id is a name: {NAME_RULE}")
        return node_id

    @field_validator("labels", mode="before")
    @classmethod
    def _labels_by_commas(cls, value: Any) -> Any:  # noqa: ANN401 - as typed
        if not isinstance(value, str):
            return value
        pairs = [part.strip().partition("=") for part in value.split(",") if part.strip()]
        if any(not equals for _, equals, _ in pairs) or len({name for name, _, _ in pairs}) < len(pairs):
            raise ValueError("labels are name=value,name=value, each name once")
        return {name.strip(): text.strip() for name, _, text in pairs}

    @field_validator("taints", mode="before")
    @classmethod
    def _taints_by_commas(cls, value: Any) -> Any:  # noqa: ANN401 - as typed
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _what_it_says_of_itself_is_legal(self) -> "AgentSettings":
        for domain, name in ((Domain.RACK, self.rack), (Domain.SPINE, self.spine)):
            if name and self.labels.get(domain, name) != name:
                raise ValueError(
                    f"labels: {domain} is {self.labels[domain]!r} there and {name!r} in MUSTER_{domain.upper()}"
                )
        for text in (*self.said_labels, *self.said_labels.values(), *self.taints):
            if not is_label(text):
                raise ValueError(f"labels, taints, rack, spine: {text!r} is none; each is {LABEL_RULE}")
        return self

    @property
    def said_labels(self) -> dict[str, str]:
        """All its labels, those of its place among them."""
        place = {Domain.RACK: self.rack, Domain.SPINE: self.spine}
        return self.labels | {domain.value: name for domain, name in place.items() if name}

    @field_validator("gpus")
    @classmethod
    def _gpus_are_known(cls, gpus: str) -> str:
        if GPUS.fullmatch(gpus) is None:
            raise ValueError("gpus is nvml, simulated:N or simulated:N:TYPE")
        return gpus
