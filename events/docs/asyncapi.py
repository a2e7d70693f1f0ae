"""The AsyncAPI 3.0 document: channels, operations and messages of a cell, as programs and generators read them.

Source: AsyncAPI specification 3.0.0; NATS bindings 0.1.0, which know the queue group only. What JetStream adds stands in
`x-jetstream`.
"""

import re
from typing import Any, Final

from events.base import Event
from events.codec import CONTENT_TYPE, TYPES, type_of
from events.docs.channels import CHANNELS, PARAMETERS, STREAMS, Channel, Stream
from events.docs.source import says, sentence
from events.subjects import CELL_DEFAULT, NAME_RULE

VERSION: Final = "1.0.0"  # of what is described here, not of the program
SCHEMA_FORMAT: Final = "application/schema+json;version=draft-2020-12"
JSON: Final = "application/json"
NAMES: Final = {"cell", "team", "node_id", "name"}  # the parameters that follow the rule of names

Node = dict[str, Any]


def asyncapi() -> Node:
    """The whole document."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Musterbook events",
            "version": VERSION,
            "description": (
                "What happens in a cell, as CloudEvents on NATS JetStream; how to ask for jobs; what agents report and "
                "are told. `send` is what Musterbook sends. Written from the types by `make docs`."
            ),
            "license": {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
        },
        "defaultContentType": CONTENT_TYPE,
        "servers": {
            "cell": {
                "host": "{host}:4222",
                "protocol": "nats",
                "description": "Any server of the cell. Answers come on `_INBOX.<user>.>` only.",
                "variables": {"host": {"default": "127.0.0.1", "description": "A server of the cell"}},
                "security": [{"$ref": "#/components/securitySchemes/user"}],
            }
        },
        "channels": {channel.name: _channel(channel) for channel in CHANNELS} | _answer_channels(),
        "operations": {_operation_name(channel): _operation(channel) for channel in CHANNELS},
        "components": {
            "messages": _messages(),
            "parameters": {name: _parameter(name, said) for name, said in PARAMETERS.items()},
            "correlationIds": {
                "job": {"location": "$message.payload#/correlationid", "description": "The job that the event is about"}
            },
            "securitySchemes": {"user": {"type": "userPassword", "description": "A user of the cell's own on NATS"}},
        },
        "x-jetstream": {"streams": [_stream(stream) for stream in STREAMS]},
    }


def _channel(channel: Channel) -> Node:
    names = re.findall(r"\{(\w+)\}", channel.subject)
    node: Node = {
        "address": channel.subject,
        "title": channel.name,
        "description": channel.says,
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in _message_names(channel)},
        "parameters": {name: {"$ref": f"#/components/parameters/{name}"} for name in names},
        "x-written-by": channel.written,
        "x-read-by": channel.read,
    }
    if channel.stream is not None:
        node["x-jetstream"] = {"stream": channel.stream.name, "keeps": channel.stream.keeps}
    return node


def _answer_channels() -> Node:
    """The inbox that each answer goes to: the requester names it."""
    answers = sorted({channel.answer for channel in CHANNELS if channel.answer})
    return {
        f"{answer}_inbox": {
            "address": None,
            "title": answer,
            "description": "The reply subject of the request: an inbox of the user's own.",
            "messages": {answer: {"$ref": f"#/components/messages/{answer}"}},
        }
        for answer in answers
    }


def _operation_name(channel: Channel) -> str:
    return f"{'send' if channel.sends else 'receive'}_{channel.name}"


def _operation(channel: Channel) -> Node:
    here = f"#/channels/{channel.name}"
    node: Node = {
        "action": "send" if channel.sends else "receive",
        "channel": {"$ref": here},
        "title": channel.name,
        "summary": channel.says.splitlines()[0],
        "messages": [{"$ref": f"{here}/messages/{name}"} for name in _message_names(channel)],
    }
    if channel.queue:
        node["bindings"] = {"nats": {"queue": channel.queue, "bindingVersion": "0.1.0"}}
    if channel.answer:
        inbox = f"#/channels/{channel.answer}_inbox"
        node["reply"] = {
            "channel": {"$ref": inbox},
            "messages": [{"$ref": f"{inbox}/messages/{channel.answer}"}],
        }
    return node


def _message_names(channel: Channel) -> list[str]:
    if isinstance(channel.carries, tuple):
        return [type_of(cls) for cls in channel.carries]
    return [channel.schema or channel.name]


def _messages() -> Node:
    messages = {type_of(cls): _event_message(cls) for cls in TYPES}
    for channel in CHANNELS:
        if isinstance(channel.carries, tuple):
            continue
        name = channel.schema or channel.name
        messages[name] = _bare_message(channel.schema, channel.says) if channel.schema else _bytes_message(channel)
        if channel.answer:
            messages[channel.answer] = _bare_message(channel.answer, "The answer to a request.")
    return messages


def _event_message(cls: type[Event]) -> Node:
    return {
        "name": type_of(cls),
        "title": cls.__name__,
        "summary": sentence(cls),
        "description": says(cls),
        "contentType": CONTENT_TYPE,
        "headers": {"type": "object", "properties": {"Content-Type": {"type": "string", "const": CONTENT_TYPE}}},
        "correlationId": {"$ref": "#/components/correlationIds/job"},
        "payload": _payload(type_of(cls)),
    }


def _bare_message(schema: str, summary: str) -> Node:
    return {"name": schema, "title": schema, "summary": summary, "contentType": JSON, "payload": _payload(schema)}


def _bytes_message(channel: Channel) -> Node:
    return {
        "name": channel.name,
        "title": channel.name,
        "summary": channel.says,
        "contentType": "text/plain" if channel.name == "moved" else "application/octet-stream",
        "payload": {"type": "string"},
    }


def _payload(schema: str) -> Node:
    return {"schemaFormat": SCHEMA_FORMAT, "schema": {"$ref": f"schemas/{schema}.json"}}


def _parameter(name: str, said: str) -> Node:
    rule = f" {NAME_RULE[0].upper()}{NAME_RULE[1:]}." if name in NAMES else ""
    return {"description": f"{said}.{rule}"} | ({"default": CELL_DEFAULT} if name == "cell" else {})


def _stream(stream: Stream) -> Node:
    return {"name": stream.name, "subjects": stream.subjects, "keeps": stream.keeps, **stream.settings}
