"""What an agent may report: its own node's events, whole and within limits."""

from typing import Final

import msgspec

from events.ask import AgentReport, RefusalCode, Refused, Report
from events.base import SLOTS_MAX, NodeId
from events.codec import type_of
from events.gpu import GpuRecovered, GpuResetFailed, GpuSignalled, Recovery
from events.node import (
    CheckpointSaved,
    GpusFoundClean,
    GpusReleased,
    NodeDescribed,
    NodeJoined,
    RanksUnkillable,
    ShareEnded,
    ShareStarted,
)
from events.subjects import LABEL_RULE, is_label
from services.gate.names import name_problem, shown

REPORTS_MAX: Final = 1_000  # in one message
TEXT_MAX: Final = 500
LABELS_MAX: Final = 64
PORT_MAX: Final = 65_535

AGENTS_MEANS: Final = frozenset({Recovery.RESET, Recovery.DRIVER})  # a reboot is seen by the boot id

DECODER: Final = msgspec.json.Decoder(Report)


def decoded(payload: bytes) -> Report | Refused:
    """The report that an agent sent, or why it is none."""
    try:
        return DECODER.decode(payload)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        return invalid(f"the report cannot be read: {error}")


def problem_of(node_id: NodeId, report: Report) -> Refused | None:
    """Why a report is not taken from this node; None where it is."""
    if problem := name_problem(node_id):
        return invalid(f"node_id: {problem}")
    if not 1 <= len(report.reports) <= REPORTS_MAX:
        return invalid(f"reports: must be 1 to {REPORTS_MAX}, not {len(report.reports)}")
    if not 1 <= len(report.instance) <= TEXT_MAX:
        return invalid("instance: must be said, so that two agents with one node id can be told apart")
    for place, one in enumerate(report.reports):
        if one.node_id != node_id:
            return Refused(
                code=RefusalCode.FORBIDDEN,
                message=f"reports.{place}.node_id: node {node_id!r} cannot speak for {shown(one.node_id)}",
            )
        if problem := _problem(one, report.instance):
            return invalid(f"reports.{place} ({type_of(type(one))}): {problem}")
    return None


def invalid(message: str) -> Refused:
    """The answer to what can never be taken, however often it is sent."""
    return Refused(code=RefusalCode.INVALID, message=message)


def _problem(one: AgentReport, instance: str) -> str:
    match one:
        case NodeJoined():
            return _problem_of_joining(one, instance)
        case GpusFoundClean():
            return _problem_of_gpus(one.gpu_uuids) or _problem_of_epoch(one.node_epoch)
        case NodeDescribed():
            if len(one.agent_version) > TEXT_MAX:
                return f"a text has more than {TEXT_MAX} characters"
            return _problem_of_labels(one.labels, one.taints) or _problem_of_epoch(one.node_epoch)
        case GpuSignalled() | GpuRecovered() | GpuResetFailed():
            return _problem_of_signal(one) or _problem_of_epoch(one.node_epoch)
        case ShareStarted() | CheckpointSaved() | RanksUnkillable():
            return _problem_of_run(one.run_id) or _problem_of_epoch(one.node_epoch)
        case ShareEnded():
            if len(one.message) > TEXT_MAX:
                return f"message: has {len(one.message)} characters, {TEXT_MAX} is the most"
            return _problem_of_run(one.run_id) or _problem_of_epoch(one.node_epoch)
        case GpusReleased():
            if one.slots <= 0:
                return f"slots: must name at least one slot, not {one.slots}"
            return _problem_of_run(one.run_id) or _problem_of_epoch(one.node_epoch)


def _problem_of_joining(joined: NodeJoined, instance: str) -> str:
    if joined.instance != instance:
        return f"instance: {shown(joined.instance)} joins, but {shown(instance)} reports"
    texts = (joined.boot_id, joined.gpu_type, joined.address, joined.agent_version)
    if any(len(text) > TEXT_MAX for text in texts):
        return f"a text has more than {TEXT_MAX} characters"
    if problem := _problem_of_labels(joined.labels, joined.taints):
        return problem
    if not 0 < joined.port_base <= PORT_MAX:
        return f"port_base: must be 1 to {PORT_MAX}, not {joined.port_base}"
    return _problem_of_gpus(joined.gpu_uuids)


def _problem_of_labels(labels: dict[str, str], taints: tuple[str, ...]) -> str:
    """They are compared with what jobs ask for, and make one word of a node: so their letters are few."""
    for name, said in (("labels", labels), ("taints", taints)):
        if len(said) > LABELS_MAX:
            return f"{name}: are {len(said)}, {LABELS_MAX} is the most"
    for text in (*labels, *labels.values()):
        if not is_label(text):
            return f"labels: {shown(text)} is no name or value of one; it is {LABEL_RULE}"
    odd = next((taint for taint in taints if not is_label(taint)), None)
    if odd is not None:
        return f"taints: {shown(odd)} is none; it is {LABEL_RULE}"
    return "taints: one is named twice" if len(set(taints)) != len(taints) else ""


def _problem_of_gpus(uuids: tuple[str, ...]) -> str:
    if len(uuids) > SLOTS_MAX:
        return f"gpu_uuids: are {len(uuids)}, {SLOTS_MAX} is the most"
    if len(set(uuids)) != len(uuids):
        return "gpu_uuids: one is named twice"
    if any(not 1 <= len(uuid) <= TEXT_MAX for uuid in uuids):
        return f"gpu_uuids: must each have 1 to {TEXT_MAX} characters"
    return ""


def _problem_of_signal(one: GpuSignalled | GpuRecovered | GpuResetFailed) -> str:
    texts = (
        (one.message, one.source)
        if isinstance(one, GpuSignalled)
        else ()
        if isinstance(one, GpuRecovered)
        else (one.message,)
    )
    if any(len(text) > TEXT_MAX for text in texts):
        return f"a text has more than {TEXT_MAX} characters"
    if isinstance(one, GpuRecovered) and one.means not in AGENTS_MEANS:
        return f"means: {one.means.value} is not an agent's to say"
    return _problem_of_gpus((one.gpu_uuid,))


def _problem_of_epoch(epoch: int) -> str:
    return "" if epoch > 0 else f"node_epoch: must be the position of a joining, not {epoch}"


def _problem_of_run(run_id: str) -> str:
    job_id, _, attempt = run_id.rpartition("-")
    if job_id and attempt.isascii() and attempt.isdigit() and len(run_id) <= TEXT_MAX:
        return ""
    return f"run_id: must be <job>-<attempt>, not {shown(run_id)}"
