# SPDX-License-Identifier: Apache-2.0
"""Synthetic ranks from the rows of a real process (`store add DIR --to rows:DIRECTORY`), with planted truth.

    base = fleet_ranks.read(path)
    truth = fleet_ranks.make(base, directory, run="r", ranks=64, places=60, seed=1)
    truth["leak"], truth["batch"], truth["version"]       the ranks that differ

Each rank holds the same places with a little noise, of its own and of each place. One rank leaks at a place that the others do not
have to leak at, three have a larger batch (activations), eight run another version of the code (some places lie at other lines).
"""
import hashlib
import random

END = "\\."


def key(text):
    """A key as the store would make one: 64 bits with a sign."""
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()[:8], "little", signed=True)


def escape(text):
    """A text as COPY has it; see src/store/store_rows.h."""
    data = text.encode("utf-8", "surrogateescape")
    once = ""
    while data:
        try:
            once += data.decode().replace("\\", "\\\\").replace("\0", "\\0")
            break
        except UnicodeDecodeError as bad:
            once += data[:bad.start].decode().replace("\\", "\\\\").replace("\0", "\\0") + f"\\x{data[bad.start]:02x}"
            data = data[bad.start + 1:]
    return once.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")


def read(path):
    """{table: (columns, rows)} of a file of rows, its texts as they stand there."""
    tables = {}
    lines = iter(path.read_text().splitlines()[1:])
    for head in lines:
        name, columns = head.split(" ", 1)
        rows = []
        for line in lines:
            if line == END:
                break
            rows.append(line.split("\t"))
        tables[name] = (columns.strip("()").split(", "), rows)
    return tables


def columns_of(base, table):
    return COLUMNS[table] if table not in base else base[table][0]


COLUMNS = {
    "runs": ["run", "name", "job", "code", "start_ns"],
    "tags": ["run", "tag"],
    "places": ["run", "process", "device", "pool", "stack", "verdict", "peak_bytes", "peak_blocks", "end_bytes", "end_blocks",
               "rate_bytes"],
    "owners": ["run", "process", "device", "pool", "owner", "peak_bytes"],
    "stacks": ["stack", "loose", "label"],
}
TIMELINE = ["run", "process", "device", "pool", "point", "time_ns", "bytes"]
ORDER = ("runs", "tags", "processes", "pools", "places", "owners", "timeline", "stacks", "stack_frames", "frames")


def write(path, tables):
    """`tables` is {table: [row as a dict or list]}; values are texts already escaped, numbers, or None."""
    with open(path, "w") as out:
        out.write("msmemscope rows 2\n")
        for table in ORDER:
            if tables.get(table):
                columns, rows = tables[table]
                out.write(f"{table} ({', '.join(columns)})\n")
                for row in rows:
                    out.write("\t".join("\\N" if value is None else str(value) for value in row) + "\n")
                out.write(END + "\n")


def with_values(columns, row, **values):
    return [values.get(name, old) for name, old in zip(columns, row)]


class Places:
    """The places of the synthetic program: sizes, labels and kinds, from the real ones."""

    def __init__(self, base, count, seed):
        chance = random.Random(f"places {seed}")
        columns, real = base["places"]
        sizes = [int(row[columns.index("peak_bytes")]) for row in real if int(row[columns.index("peak_bytes")]) > 0]
        self.all = []
        for i in range(count):
            size = max(4096, int(sizes[i % len(sizes)] * chance.uniform(0.2, 1.0)))
            size = min(size, 64 << 20)
            self.all.append({"name": f"model.py:{100 + i} layer_{i}", "bytes": size, "activation": chance.random() < 0.5})


def stack_rows(base, label):
    """A place's own stack: the frames of a real one below a frame of its own."""
    stack, own = key(f"stack {label}"), key(f"frame {label}")
    stack_columns, stacks = base["stacks"]
    depth, frame = base["stack_frames"][0].index("depth"), base["stack_frames"][0].index("frame")
    first = base["stack_frames"][1][0][base["stack_frames"][0].index("stack")]
    real = [row for row in base["stack_frames"][1] if row[0] == first]
    return (stack, [stack, key(f"loose {label.split(':')[0]} {label.split(' ')[-1]}"), escape(label)],
            [[stack, 0, own], *([stack, int(row[depth]) + 1, row[frame]] for row in real)],
            [own, escape(label), "model.py", 1, ""])


def plant(ranks, seed):
    chance = random.Random(f"plant {seed}")
    chosen = chance.sample(range(ranks), 12)
    return {"leak": chosen[:1], "batch": sorted(chosen[1:4]), "version": sorted(chosen[4:])}


POINTS = 64


def over_time(total, leaks):
    """What a rank of this peak holds, second by second: it fills in a quarter of the time; a leak grows until the end."""
    filled = [min(1, (n + 1) / (POINTS // 4)) for n in range(POINTS)]
    return [int(total * (part if not leaks else part * (0.9 + 0.1 * (n + 1) / POINTS))) for n, part in enumerate(filled)]


def make(base, directory, run="synthetic", ranks=64, places=60, seed=0, planted=True, code="", start_ns=None, tags=(),
         factor=None, program=None, changed=None, hosts=8, noise=0.01, prefix=""):
    """Writes a file for each rank; returns the truth. `program` is the seed of the places; `factor(name, bytes)` changes what a
    place holds, in the ranks `changed` or in all."""
    directory.mkdir(parents=True, exist_ok=True)
    truth = plant(ranks, seed) if planted else {"leak": [], "batch": [], "version": []}
    program = Places(base, places, seed if program is None else program)
    chance = random.Random(f"rank {seed}")
    larger = chance.uniform(1.15, 1.6)
    moved = set(chance.sample(range(places), max(2, places // 5)))
    leaking = chance.randrange(places)
    truth["leaks_at"] = program.all[leaking]["name"]
    truth["places"] = {place["name"]: place["bytes"] for place in program.all}
    truth["moved"] = {program.all[i]["name"] for i in moved}
    process_columns, [process_row] = base["processes"]
    pool_columns, pools = base["pools"]
    pool_row = pools[0]
    frames_columns, frames = base["frames"]
    cache = {}
    begin = int(start_ns or process_row[process_columns.index("start_ns")])
    for rank in range(ranks):
        own = chance.gauss(1, 0.003)
        process = key(f"{run} {seed} {rank}")
        values, shared, total = [], [], 0
        for i, place in enumerate(program.all):
            size = place["bytes"]
            if factor is not None and (changed is None or rank in changed):
                size = factor(place["name"], size)
            if rank in truth["batch"] and place["activation"]:
                size *= larger
            size = int(size * own * chance.gauss(1, noise))
            name = place["name"]
            if rank in truth["version"] and i in moved:
                name = name.replace(f":{100 + i}", f":{900 + i}")
            if name not in cache:
                cache[name] = stack_rows(base, name)
            leaks = rank in truth["leak"] and i == leaking
            values.append([0, process, "0", "PTA", cache[name][0], "leak" if leaks else "kept", size, 1, size, 1,
                           max(1024.0, size / 50) if leaks else 0])
            shared.append(cache[name])
            total += size
        write(directory / f"{prefix}{rank:05d}.rows", {
            "runs": (COLUMNS["runs"], [[0, escape(run), "", escape(code), start_ns or process_row[process_columns.index("start_ns")]]]),
            "tags": (COLUMNS["tags"], [[0, escape(tag)] for tag in tags]),
            "processes": (process_columns, [with_values(process_columns, process_row, process=process, rank=rank, local_rank=rank % hosts,
                                                        host=f"node{rank // hosts:03d}", device=rank % hosts, steps=50,
                                                        verdict="leak" if rank in truth["leak"] else "ok")]),
            "pools": (pool_columns, [with_values(pool_columns, pool_row, process=process, device=rank % hosts, pool="PTA", peak_bytes=total,
                                                 end_bytes=total, trend_bytes=0, trend="steady")]),
            "places": (COLUMNS["places"], [with_values(COLUMNS["places"], row, device=rank % hosts) for row in values]),
            "timeline": (TIMELINE, [[0, process, rank % hosts, "PTA", n, begin + n * 10**9, held]
                                    for n, held in enumerate(over_time(total, leaks=rank in truth["leak"]))]),
            "stacks": (COLUMNS["stacks"], [part[1] for part in shared]),
            "stack_frames": (["stack", "depth", "frame"], [row for part in shared for row in part[2]]),
            "frames": (frames_columns, [*frames, *(part[3] for part in shared)]),
        })
    return truth


def named(shown):
    """{why: ranks} of what `fleet show --json` names."""
    found = {}
    for group in shown["outliers"]:
        found.setdefault(group["why"], set()).update(group["ranks"])
    return found


def wrong_in(shown, truth):
    """What is not as it was planted, or None."""
    found = named(shown)
    expected = {"leak": set(truth["leak"]), "more": set(truth["batch"]), "different": set(truth["version"])}
    for why, ranks in expected.items():
        if found.pop(why, set()) != ranks:
            return f"{why}: {sorted(named(shown).get(why, ()))}, planted {sorted(ranks)}"
    return f"nothing of this was planted: {found}" if found else None
