"""Who may do what on NATS: every principal's account and permissions, as data.

Four accounts. A permission guards the subject of a message, but not the reply subject it names: whoever may make
any one request could have the server, or the gate, write the answer onto any subject of the account, the log's head
included. So teams, agents and operators live in accounts of their own and reach only what is imported there: an answer to them
comes out in their own account, where nothing listens but they themselves. For the same reason none of them may create
consumers, which deliver where their maker says.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from events.base import NodeId, TeamId
from events.subjects import DESIRED_STREAM, HEARTBEATS_STREAM, LOGS_STREAM, NAME_RULE, Subjects, is_name
from runtime.fault import Fault

ACCOUNT: Final = "MUSTER"  # the log, and what works on it
AGENTS_ACCOUNT: Final = "AGENTS"
TEAMS_ACCOUNT: Final = "TEAMS"
OPERATORS_ACCOUNT: Final = "OPERATORS"
DOCUMENTS: Final = ("queues", "policy", "accounts", "prices")  # families of one subject, that operators set
LEASE_BUCKET: Final = "LEASE"
RESERVED: Final = "control"  # a node so named could beat in a control plane's name

NODE_NAME_HINT: Final = f"A name is {NAME_RULE}; those that begin with {RESERVED!r} are the control planes'."

# Reading what is stored, as a whole: no creating, changing, deleting or purging, and no consumers.
READ_STREAMS: Final = (
    "$JS.API.INFO",
    "$JS.API.STREAM.NAMES",
    "$JS.API.STREAM.LIST",
    "$JS.API.STREAM.INFO.*",
    "$JS.API.STREAM.MSG.GET.*",
    "$JS.API.DIRECT.GET.*",
    "$JS.API.DIRECT.GET.*.>",
)

# Opening a chapter of the log: a part of a token cannot be allowed, so all streams are that are not denied.
ROLL_STREAMS: Final = ("$JS.API.STREAM.CREATE.*", "$JS.API.STREAM.UPDATE.*")
OTHERS: Final = (HEARTBEATS_STREAM, DESIRED_STREAM, LOGS_STREAM, f"KV_{LEASE_BUCKET}")


@dataclass(frozen=True, kw_only=True)
class Principal:
    """One who connects: its account, and the subjects it may publish to and subscribe to. None of either: all."""

    user: str
    account: str = ACCOUNT
    publish: tuple[str, ...] | None
    subscribe: tuple[str, ...] | None
    deny: tuple[str, ...] = ()  # of what it could publish to by the above

    @property
    def inbox_prefix(self) -> str:
        """Where answers to its requests come, and only its own."""
        return inbox_prefix(self.user)


def inbox_prefix(user: str) -> str:
    """Where answers to a user's requests come."""
    return f"_INBOX.{user}"


def agent_user(node_id: NodeId) -> str:
    """The user name of a node's agent."""
    return f"agent-{node_id}"


def team_user(team: TeamId) -> str:
    """The user name of a team's programs."""
    return f"team-{team}"


def system() -> Principal:
    """Makes the streams; used at start only. May do everything in the cell's account."""
    return Principal(user="system", publish=None, subscribe=None)


def control(subjects: Subjects) -> Principal:
    """The control plane and the dispatcher: writes the log and closes its chapters, the lease, desired states; answers why.

    It may make streams, and change those of the log, but delete and purge none.
    """
    return Principal(
        user="control",
        publish=(
            f"{subjects.events_prefix}>",
            f"muster.{subjects.cell}.desired.*",
            subjects.moved,
            subjects.heartbeats,  # its own beat; a part of a token cannot be allowed
            subjects.closings,
            *ROLL_STREAMS,
            f"$KV.{LEASE_BUCKET}.>",
            "_INBOX.>",
            *READ_STREAMS,
        ),
        deny=tuple(
            f"{api}.{stream}" for api in ("$JS.API.STREAM.CREATE", "$JS.API.STREAM.UPDATE") for stream in OTHERS
        ),
        subscribe=(
            subjects.moved,
            subjects.why,
            subjects.dry_run,
            subjects.entitled,
            subjects.roll,
            subjects.heartbeats,
            f"{inbox_prefix('control')}.>",
        ),
    )


def gate(subjects: Subjects) -> Principal:
    """The gate, and the API around one: writes the families that are the gate's, answers asks and reports."""
    return Principal(
        user="gate",
        publish=(
            f"{subjects.events_prefix}intake.*.*",
            f"{subjects.events_prefix}node.*",
            f"{subjects.events_prefix}operator.*",
            f"{subjects.events_prefix}teller.*.*",
            *(f"{subjects.events_prefix}{document}" for document in DOCUMENTS),
            subjects.moved,
            subjects.why,
            subjects.dry_run,
            subjects.entitled,
            subjects.roll,
            "_INBOX.>",
            "_R_.>",  # answers into the accounts of teams, agents and operators
            *READ_STREAMS,
        ),
        subscribe=(
            subjects.moved,
            subjects.asks,
            subjects.operate,
            subjects.reports,
            f"muster.{subjects.cell}.log.>",
            f"{inbox_prefix('gate')}.>",
        ),
    )


def reader(subjects: Subjects) -> Principal:
    """The projector, webhooks and the verifiers, processes of ours: read all, may publish nothing.

    In the cell's own account, so trusted with the reply subjects of its requests.
    """
    return Principal(
        user="reader",
        publish=READ_STREAMS,
        subscribe=(subjects.moved, f"muster.{subjects.cell}.log.>", f"{inbox_prefix('reader')}.>"),
    )


def agent(subjects: Subjects, node_id: NodeId) -> Principal:
    """A node's agent: reports, beats, sends logs, and reads what is desired of its own node."""
    if not is_name(node_id) or node_id.partition("-")[0] == RESERVED:
        raise Fault("node_name_refused", f"{node_id!r} cannot be the name of a node.", NODE_NAME_HINT)
    user = agent_user(node_id)
    return Principal(
        user=user,
        account=AGENTS_ACCOUNT,
        publish=(
            subjects.report(node_id),
            subjects.heartbeat(node_id),
            f"muster.{subjects.cell}.log.{node_id}.>",
            _direct_get(DESIRED_STREAM, subjects.desired(node_id)),
        ),
        subscribe=(subjects.desired(node_id), f"{inbox_prefix(user)}.>"),
    )


def team(subjects: Subjects, name: TeamId) -> Principal:
    """A team's programs: ask, hear what happens to their jobs, and read the last of each of these subjects."""
    if not is_name(name):
        raise Fault("team_name_refused", f"{name!r} cannot be the name of a team.", f"A name is {NAME_RULE}.")
    user = team_user(name)
    own = tuple(f"{subjects.events_prefix}{family}.{name}.*" for family in ("intake", "job"))
    return Principal(
        user=user,
        account=TEAMS_ACCOUNT,
        # Any stream: the subject that is asked for decides, and chapters come.
        publish=(subjects.ask(name), *(_direct_get("*", subject) for subject in own)),
        subscribe=(*own, f"{inbox_prefix(user)}.>"),
    )


def operator(subjects: Subjects) -> Principal:
    """Operators' programs: set documents, ask of accounts, cordon nodes, and read the documents that hold."""
    return Principal(
        user="operator",
        account=OPERATORS_ACCOUNT,
        publish=(subjects.operate, *_documents(subjects)),
        subscribe=(f"{inbox_prefix('operator')}.>",),
    )


def parts(subjects: Subjects) -> list[Principal]:
    """The principals that every cell has."""
    return [system(), control(subjects), gate(subjects), reader(subjects), operator(subjects)]


def accounts(subjects: Subjects, principals: Iterable[tuple[Principal, str]]) -> dict[str, Any]:
    """The `accounts` block of a server's configuration: principals with their passwords, exports and imports."""
    all_accounts = (ACCOUNT, AGENTS_ACCOUNT, TEAMS_ACCOUNT, OPERATORS_ACCOUNT)
    users: dict[str, list[dict[str, Any]]] = {name: [] for name in all_accounts}
    for principal, password in principals:
        users[principal.account].append(_user(principal, password))
    cell = f"muster.{subjects.cell}"
    shared = {
        AGENTS_ACCOUNT: (
            ("service", subjects.reports),
            ("service", subjects.heartbeats),
            ("service", f"{cell}.log.>"),
            ("service", _direct_get(DESIRED_STREAM, f"{cell}.desired.*")),
            ("stream", f"{cell}.desired.*"),
        ),
        TEAMS_ACCOUNT: (
            ("service", subjects.asks),
            ("service", _direct_get("*", f"{subjects.events_prefix}intake.*.*")),
            ("service", _direct_get("*", f"{subjects.events_prefix}job.*.*")),
            ("stream", f"{subjects.events_prefix}intake.*.*"),
            ("stream", f"{subjects.events_prefix}job.*.*"),
        ),
        OPERATORS_ACCOUNT: (
            ("service", subjects.operate),
            *(("service", subject) for subject in _documents(subjects)),
        ),
    }
    exports = [{kind: name, "accounts": [to]} for to, names in shared.items() for kind, name in names]
    block: dict[str, Any] = {ACCOUNT: {"jetstream": "enabled", "users": users[ACCOUNT], "exports": exports}}
    for to, names in shared.items():
        imports = [{kind: {"account": ACCOUNT, "subject": name}} for kind, name in names]
        block[to] = {"users": users[to], "imports": imports}
    return block


def _documents(subjects: Subjects) -> tuple[str, ...]:
    return tuple(_direct_get("*", f"{subjects.events_prefix}{family}") for family in DOCUMENTS)


def _user(principal: Principal, password: str) -> dict[str, Any]:
    allowed = {"publish": principal.publish, "subscribe": principal.subscribe}
    permissions = {what: {"allow": list(subjects)} for what, subjects in allowed.items() if subjects is not None}
    if principal.deny:
        permissions["publish"]["deny"] = list(principal.deny)
    user: dict[str, Any] = {"user": principal.user, "password": password}
    return user | {"permissions": permissions} if permissions else user


def _direct_get(stream: str, subject: str) -> str:
    """Asks for the last message of one subject: the only form of reading whose request names what is read."""
    return f"$JS.API.DIRECT.GET.{stream}.{subject}"
