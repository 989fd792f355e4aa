# SPDX-License-Identifier: Apache-2.0
"""Readers of the files of other viewers, independent of ours and strict: whatever is not as the public schema has it fails.

    folded(path)        {(frame, ...): bytes} of collapsed stacks, outermost first
    speedscope(path)    {profile name: {((name, file, line), ...): weight}}
    pprof(path)         Pprof: values by type, and samples
    lines(path)         objects of a file of JSON lines
    perfetto(python, path)   Perfetto: tracks, counters, slices and instants, by the protobuf decoder of the perfetto package
"""
import json
import subprocess
from collections import defaultdict
from dataclasses import dataclass, field


def folded(path):
    stacks = defaultdict(int)
    for line in path.read_text(encoding="utf-8").splitlines():
        stack, _, value = line.rpartition(" ")
        assert stack and value.isdigit() and int(value) > 0, line
        assert all(stack.split(";")), line
        stacks[tuple(stack.split(";"))] += int(value)
    return dict(stacks)


def _only(value, keys, needed):
    assert needed <= value.keys() <= keys, value.keys()


def speedscope(path):
    """By file-format-spec.ts of speedscope."""
    file = json.loads(path.read_text(encoding="utf-8"))
    _only(file, {"$schema", "shared", "profiles", "name", "activeProfileIndex", "exporter"}, {"$schema", "shared", "profiles"})
    assert file["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    _only(file["shared"], {"frames"}, {"frames"})
    frames = []
    for frame in file["shared"]["frames"]:
        _only(frame, {"name", "file", "line", "col"}, {"name"})
        assert isinstance(frame["name"], str) and isinstance(frame.get("line", 1), int)
        frames.append((frame["name"], frame.get("file"), frame.get("line")))
    assert len(set(frames)) == len(frames)
    found = {}
    for profile in file["profiles"]:
        _only(profile, {"type", "name", "unit", "startValue", "endValue", "samples", "weights"},
              {"type", "name", "unit", "startValue", "endValue", "samples", "weights"})
        assert profile["type"] == "sampled" and profile["unit"] == "bytes" and profile["startValue"] == 0
        assert len(profile["samples"]) == len(profile["weights"]) and profile["endValue"] == sum(profile["weights"])
        stacks = defaultdict(int)
        for sample, weight in zip(profile["samples"], profile["weights"]):
            assert sample and weight > 0
            stacks[tuple(frames[number] for number in sample)] += weight
        assert profile["name"] not in found
        found[profile["name"]] = dict(stacks)
    return found


# ---- protocol buffers ----

def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7f) << shift
        shift += 7
        if byte < 0x80:
            assert shift <= 70
            return value, at


def fields(data):
    """(number, value) of each field of a message: int, or bytes."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            assert key & 7 == 2, key
            length, at = varint(data, at)
            assert at + length <= len(data)
            value, at = data[at:at + length], at + length
        yield key >> 3, value


def message(data):
    found = defaultdict(list)
    for number, value in fields(data):
        found[number].append(value)
    return found


def packed(data):
    at, values = 0, []
    while at < len(data):
        value, at = varint(data, at)
        values.append(value)
    return values


@dataclass
class Pprof:
    types: list                                  # (type, unit)
    default: str
    samples: list = field(default_factory=list)  # (labels, ((function, file, line), ...) innermost first, values)


def pprof(path):
    """By profile.proto of pprof."""
    profile = message(path.read_bytes())
    strings = [text.decode("utf-8") for text in profile[6]]
    assert strings[0] == "" and len(set(strings)) == len(strings)
    functions, mappings, locations = {}, {}, {}
    for entry in map(message, profile[3]):
        mappings[entry[1][0]] = strings[entry[5][0]]
    for entry in map(message, profile[5]):
        functions[entry[1][0]] = strings[entry[2][0]], strings[entry[4][0]] if entry[4] else ""
    for entry in map(message, profile[4]):
        [line] = map(message, entry[4])
        assert not entry[2] or entry[2][0] in mappings
        locations[entry[1][0]] = (*functions[line[1][0]], line[2][0] if line[2] else 0)
    assert 0 not in functions and 0 not in mappings and 0 not in locations
    types = [(strings[entry[1][0]], strings[entry[2][0]]) for entry in map(message, profile[1])]
    result = Pprof(types, strings[profile[14][0]])
    assert result.default in dict(types) and profile[9][0] > 0
    for sample in map(message, profile[2]):
        [ids], [values] = sample[1], sample[2]
        labels = {strings[label[1][0]]: strings[label[2][0]] for label in map(message, sample[3])}
        values = packed(values)
        assert len(values) == len(types)
        result.samples.append((labels, tuple(locations[number] for number in packed(ids)), dict(zip(dict(types), values))))
    return result


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


# ---- Perfetto ----

DECODE = """
import json, sys
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace
from google.protobuf.json_format import MessageToDict
trace = Trace()
with open(sys.argv[1], "rb") as file:
    trace.ParseFromString(file.read())
for packet in trace.packet:
    print(json.dumps(MessageToDict(packet, preserving_proto_field_name=True)))
"""


@dataclass
class Slice:
    track: str
    name: str
    category: str
    start: int
    end: int      # None: it has not ended
    depth: int


@dataclass
class Perfetto:
    process: tuple = None                                              # pid, name
    threads: dict = field(default_factory=dict)                        # tid: name
    counters: dict = field(default_factory=lambda: defaultdict(list))  # name: [(time, value)]
    slices: list = field(default_factory=list)
    instants: list = field(default_factory=list)                       # (track, name, category, time)

    def of(self, category):
        return [one for one in self.slices if one.category == category]


def _descriptor(result, tracks, descriptor):
    uuid = descriptor["uuid"]
    assert uuid not in tracks, "described once"
    if "process" in descriptor:
        result.process = descriptor["process"]["pid"], descriptor["process"].get("process_name", "")
        tracks[uuid] = "process"
    elif "thread" in descriptor:
        thread = descriptor["thread"]
        assert thread["pid"] == result.process[0]
        result.threads[int(thread["tid"])] = thread.get("thread_name", "")
        tracks[uuid] = f"thread {thread['tid']}"
    else:
        assert descriptor["parent_uuid"] in tracks
        parent = tracks[descriptor["parent_uuid"]]
        tracks[uuid] = descriptor["name"] if parent == "process" else f"{parent} {descriptor['name']}"
        if "counter" in descriptor:
            assert descriptor["counter"]["unit"] == "UNIT_SIZE_BYTES"
            result.counters[descriptor["name"]] = []


def perfetto(python, path):
    """What a viewer makes of it: events sorted by time, those of one time as they stand in the file."""
    run = subprocess.run([*python, "-c", DECODE, str(path)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    result, tracks, names, events = Perfetto(), {}, {}, []
    for number, packet in enumerate(map(json.loads, run.stdout.splitlines())):
        assert packet["trusted_packet_sequence_id"] > 0
        assert packet["sequence_flags"] == (1 if number == 0 else 2)
        for name in packet.get("interned_data", {}).get("event_names", ()):
            assert name["iid"] not in names
            names[name["iid"]] = name.get("name", "")
        if "track_descriptor" in packet:
            _descriptor(result, tracks, packet["track_descriptor"])
        if "track_event" in packet:
            event = packet["track_event"]
            assert event["track_uuid"] in tracks
            name = names[event["name_iid"]] if "name_iid" in event else event.get("name", "")
            events.append((int(packet["timestamp"]), event, tracks[event["track_uuid"]], name))
    open_slices = defaultdict(list)
    for time, event, track, name in sorted(events, key=lambda one: one[0]):
        kind, category = event["type"], ",".join(event.get("categories", ()))
        if kind == "TYPE_COUNTER":
            result.counters[track].append((time, int(event.get("counter_value", 0))))
        elif kind == "TYPE_INSTANT":
            result.instants.append((track, name, category, time))
        elif kind == "TYPE_SLICE_BEGIN":
            stack = open_slices[event["track_uuid"]]
            stack.append(Slice(track, name, category, time, None, len(stack)))
            result.slices.append(stack[-1])
        else:
            assert kind == "TYPE_SLICE_END"
            open_slices[event["track_uuid"]].pop().end = time
    return result
