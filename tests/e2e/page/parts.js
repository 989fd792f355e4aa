// SPDX-License-Identifier: Apache-2.0
// Tests of the parts of the page that need no server; test_page_parts.py runs them in a browser. Each is a claim and a function that
// throws where it does not hold.
import * as axis from "/web/axis.js";
import * as format from "/web/format.js";
import { layOut, byAddress, pile } from "/web/blocks.js";
import { boxes, grow, ownCode } from "/web/flame.js";
import { mainPool, tellRanks, worstFirst } from "/web/ranks.js";
import { poolLike, sidesQuestion } from "/web/compare.js";
import { orderSegments, tellHoles, tellSegments } from "/web/segments.js";
import { chipLeaks } from "/web/findings.js";
import { hasWhat } from "/web/table.js";
import { tellChange, tellSetting } from "/web/whatif.js";
import { differenceOf, momentOf, rangeRows, stackOrder } from "/web/timeline.js";
import { colourOf, forgetGroups, setLeaking } from "/web/draw.js";
import { learnOwned, ownerWords, placeName, setClasses, siteOf } from "/web/places.js";

const MIB = 1 << 20;

function same(found, wanted) {
  const [one, other] = [JSON.stringify(found), JSON.stringify(wanted)];
  if (one !== other) throw new Error(`${one} is not ${other}`);
}

function holds(value, text) {
  if (!value) throw new Error(text ?? "it does not hold");
}

// Numbers that look random and are the same each time.
function dice(seed) {
  let state = seed;
  return below => { state = (Math.imul(state, 1103515245) + 12345) >>> 0; return (state >>> 8) % below; };
}

export const claims = {
  "bytes are told in one unit system": () => {
    same([0, 1023, 1024, 1536, MIB - 1, 10 * MIB, -3 * MIB, 5 * 2 ** 40].map(format.bytes), ["0 B", "1023 B", "1.00 KiB", "1.50 KiB", "1.00 MiB", "10.0 MiB", "\u22123.00 MiB", "5.00 TiB"]);
    same(format.signed(MIB), "+1.00 MiB");
    same(format.signed(-MIB), "\u22121.00 MiB");
  },
  "a name reads from the caller to the callee": () => {
    same(placeName("two (a.c:9) -> take (a.c:1)"), "two (a.c:9) \u2192 take (a.c:1)");
    for (const text of ["t.py:9", "alone", "", "take (a.c:1)"]) same(placeName(text), text);
  },
  "an owner is called what people call it": () => {
    setClasses({ "model@weight": "weights", "model@temporary": "temporary tensors" });
    same(["PTA@model@weight", "PTA@model@temporary@forward", "PTA@model@weights", "HOST@ops@aten", "unknown"].map(ownerWords),
      ["weights", "temporary tensors, forward", "model@weights", "ops@aten", "unknown"]);
    const name = "main (a.c:9) -> take (a.c:1)  (PTA@model@weight)", odd = "a  (b).py:9  (PTA@c  (d))";
    learnOwned({ owned: [[name, "main (a.c:9) -> take (a.c:1)", "PTA@model@weight"], [odd, "a  (b).py:9", "PTA@c  (d)"]] });
    same(placeName(name), "main (a.c:9) \u2192 take (a.c:1)  (weights)");
    same([odd, "a  (b).py:9"].map(siteOf), ["a  (b).py:9", "a  (b).py:9"]);
    same([odd, "a  (b).py:9"].map(placeName), ["a  (b).py:9  (c  (d))", "a  (b).py:9"]);
    setClasses(undefined);
    same(placeName(name), "main (a.c:9) \u2192 take (a.c:1)  (model@weight)");
  },
  "counts that fall have the sign of sizes that fall": () => same([0, 3, -1200].map(format.signedCount), ["0", "+3", "\u22121,200"]),
  "a setting says what it would reserve and what that saves": () => same([tellSetting({ set: "expandable_segments:True", reserved_peak: 2 * MIB }, 3 * MIB), tellSetting({ set: "", reserved_peak: MIB }, MIB)],
    ["expandable_segments:True: 2.00 MiB (\u22121.00 MiB)", "(default): 1.00 MiB"]),
  "a change says what the pool would hold, reserve, and which line it is": () => same([{ reserved_low: MIB, reserved_high: 2 * MIB }, { reserved_low: MIB, reserved_high: MIB }, {}].map(more =>
    tellChange({ what: "offload A", peak_bytes: MIB, saved_bytes: 2 * MIB, line: "/a/b.py:3", ...more })),
    ["offload A: 1.00 MiB (\u22122.00 MiB), reserves 1.00 MiB to 2.00 MiB, b.py:3", "offload A: 1.00 MiB (\u22122.00 MiB), reserves 1.00 MiB, b.py:3", "offload A: 1.00 MiB (\u22122.00 MiB), b.py:3"]),
  "ranks are summed up in one sentence": () => same(tellRanks([{ peak: 3 * MIB, length: 2e9 }, { peak: MIB, length: 1e9 }], 3),
    "2 of 3 processes, worst first; 2.00 s across; full colour: up to 3.00 MiB; click one for its timeline"),
  "spans have the unit that reads best": () => same([5, 1500, 2e6, 3.5e9, 600e9, 3 * 3600e9].map(format.span), ["5 ns", "1.5 \u00b5s", "2.0 ms", "3.50 s", "10.0 min", "3.0 h"]),
  "a scale has about as many lines as there is room for": () => {
    const random = dice(1);
    for (let i = 0; i < 200; i++) {
      const most = 1 + random(1e9), count = 2 + random(10), list = format.ticks(most, count, i % 2 ? 2 : 10);
      holds(list[0] === 0 && list[list.length - 1] <= most && list.length >= 1 && list.length <= 3 * count + 1, `${most} ${count} ${list}`);
    }
  },
  "a view stays inside the run and is never empty": () => {
    const random = dice(2);
    for (let i = 0; i < 500; i++) {
      const whole = 2000 + random(1e6), from = random(2e6) - 5e5, length = random(2e6), [low, high] = format.clampView(from, from + length, 0, whole);
      holds(low >= 0 && high <= whole + 1e-6 && high - low >= 999, `${low} ${high} of ${whole}`);
    }
  },
  "a state comes back from its link": () => {
    const state = { tab: "flame", at: 12, search: "a & b=c #1 <img>", block: null, of: "leaks" };
    same(format.fromHash(format.toHash(state)), { tab: "flame", at: "12", search: "a & b=c #1 <img>", of: "leaks" });
    same(format.fromHash("#a=%E0%A4%A"), { a: "%E0%A4%A" }); // what nobody can decode is taken as it is
  },
  "a run that nobody named is called by its start": () => {
    same(["run-20261116180222-57d6b6", "run-20261116180222", "nightly", "run-of-mine"].map(format.runTitle), ["Run of 2026-11-16 18:02", "Run of 2026-11-16 18:02", "nightly", "run-of-mine"]);
  },
  "the search knows sizes and words": () => {
    const found = (text, least, most, alive = false, address = null) => ({ text, least, most, alive, address });
    same(format.parseSearch("relu size>1MiB alive"), found("relu", MIB + 1, null, true));
    same(format.parseSearch("size>=4k size<=2M two words"), found("two words", 4096, 2 * MIB));
    same(format.parseSearch("size=512"), found("", 512, 512));
    same(format.parseSearch("size<1"), found("", 0, 0));
    same(format.parseSearch("size>big"), found("size>big", 0, null));
    same(format.parseSearch(">100M"), found("", 100 * MIB + 1, null));
    same(format.parseSearch("<=4k 0x7fAB00 loss"), found("loss", 0, 4096, false, "0x7fab00"));
    same(format.parseSearch("0xzz"), found("0xzz", 0, null));
  },
  "blocks of a report are found by address, size, words and moment": () => {
    const block = { address: "0x7fffffff0000", bytes: 4096, place: "Train.py:3", owner: "PTA@ops", operator: "add", start_ns: 10, end_ns: 20 };
    const has = (text, at = null) => hasWhat(block, format.parseSearch(text), at);
    same(["0x7fffffff0000", "0x7fffffff0fff", "0x7fffffff1000", "0x7ffffffeffff"].map(text => has(text)), [true, true, false, false]);
    same([">4095", ">4k", "train.PY", "mul", "alive"].map(text => has(text)), [true, false, true, false, false]);
    same([9, 10, 19, 20].map(at => has("", at)), [false, true, true, false]);
  },
  "by step all steps are equally wide, and what is before them as wide as one": () => {
    const run = { from_ns: 0, to_ns: 1000, steps: [[1, 400], [2, 500], [3, 900]] };
    axis.setScale(axis.stepKnots(run));
    same([0, 200, 400, 450, 500, 900, 1000].map(axis.along), [0, 0.5, 1, 1.5, 2, 3, 4]);
    same([0, 0.5, 1.5, 3.5].map(axis.timeOf), [0, 200, 450, 950]);
    const x = axis.placer({ from: 400, to: 1000 }, { x: 10, width: 300 });
    same([x(400), x(500), x(900), x(1000)], [10, 110, 210, 310]);
    same(axis.timeAtPart({ from: 400, to: 1000 }, 1 / 6), 450);
    same(axis.moved({ from: 400, to: 500 }, 1), [500, 900]);
    same(axis.zoomed({ from: 400, to: 900 }, 0.5), [450, 700]);
    axis.setScale(null);
    same([axis.along(7), axis.timeOf(7), axis.zoomed({ from: 0, to: 8 }, 0.5, 0)], [7, 7, [0, 4]]);
    same(axis.stepKnots({ ...run, steps: [[1, 400]] }), null);
  },
  "by event a span is as wide as much comes and goes in it": () => {
    const knots = axis.eventKnots({ from_ns: 0, to_ns: 40, width: 4, changes: [0, 30, 10, 0] });
    same(knots.map(([time]) => time), [0, 10, 20, 30, 40]);
    const widths = knots.slice(1).map(([, at], i) => at - knots[i][1]);
    holds(widths[1] > 2.9 * widths[2] && widths[0] > 0 && widths[0] < widths[2] / 10);
    same(axis.eventKnots({ from_ns: 0, to_ns: 4, width: 4, changes: [0, 0, 0, 0] }), null);
  },
  "a report tells what changed between any two moments of its picture": () => {
    const series = { from_ns: 0, to_ns: 100, width: 4, groups: ["a", "b", "c"], held: [[1, 2, 3, 4], [9, 9, 0, 0], [5, 5, 5, 5]], most: [15, 16, 8, 9] };
    const found = differenceOf(series, 10, 80);
    same(found.groups.map(one => [one[0], one[1], one[3]]), [["b", 9, 0], ["a", 1, 4], ["c", 5, 5]]);
    same([found.a.used, found.b.used], [15, 9]);
    same(differenceOf(series, 10, 800), null);
  },
  "chips are the first of the findings, and what does not grow has none": () => {
    const leak = (verdict, bytes_per_step) => ({ verdict, bytes_per_step });
    same(chipLeaks([leak("leak", 50), leak("suspect", 0), leak("suspect", 900)]).map(([, i]) => i), [0, 2]);
    same(chipLeaks([leak("suspect", 0), leak("suspect", 0.4)]), []);
    same(chipLeaks([leak("leak", 1000), leak("leak", 500), leak("leak", 9)]).map(([, i]) => i), [0, 1]);
    same(chipLeaks([leak("leak", 1000), leak("leak", 9)]).map(([, i]) => i), [0]);
  },
  "owners are a tree whose sums are those of their parts": () => {
    const tree = format.ownerTree([{ name: "PTA@model@weight", bytes: 5 }, { name: "PTA@model", bytes: 1 }, { name: "PTA@ops", bytes: 9 }, { name: "PTA", bytes: 2 }]);
    same([tree.bytes, tree.children.map(one => [one.name, one.bytes])], [17, [["ops", 9], ["model", 6], ["PTA", 2]]]);
    same(tree.children[1].children.map(one => [one.path, one.bytes]), [["model@weight", 5]]);
  },
  "a step ends before the next begins": () => {
    const steps = [[1, 0], [2, 100], [3, 250]];
    same([1, 2, 3, 0].map(number => format.stepEnd(steps, number, 400)), [99, 249, 400, null]);
    same(format.usualMoments({ steps, from_ns: 0, to_ns: 400 }), [99, 249]);
    same(format.usualMoments({ steps: [], from_ns: 0, to_ns: 400 }), [40, 400]);
  },
  "extents share the height by their size": () => {
    const list = layOut([[0, 100], [1000, 300]], 10, 206);
    same(list.map(one => [one.bottom, one.pixels]), [[216, 50], [160, 150]]);
  },
  "a block lies where its address is": () => {
    const answer = { from_ns: 0, extents: [[1000, 100], [5000, 100]], blocks: [1, 0, 50, 1000, 50, 0, 2, 10, 100, 5050, 50, 1] };
    const [low, high] = byAddress(answer, { from: 0, to: 100 }, { x: 0, y: 0, width: 100, height: 206 });
    same([low.x, low.width, low.y, low.height], [0, 50, 156, 50]);
    same([high.x, high.width, high.y, high.height], [10, 90, 0, 50]);
  },
  "piled blocks never lie over each other": () => {
    const random = dice(3), blocks = [], length = 240000;
    for (let id = 0; id < 400; id++) { const from = random(2300) * 100, to = from + 100 + random(40) * 100; blocks.push(id, from, Math.min(to, length), 0, 1 + random(1000), 0); }
    const { bottoms, highest } = pile(blocks, length);
    for (let a = 0; a < 400; a++) for (let b = a + 1; b < 400; b++) {
      const [x, y] = [a * 6, b * 6], meet = blocks[x + 1] < blocks[y + 2] && blocks[y + 1] < blocks[x + 2];
      holds(!meet || bottoms[a] + blocks[x + 4] <= bottoms[b] || bottoms[b] + blocks[y + 4] <= bottoms[a], `${a} and ${b}`);
      holds(bottoms[a] + blocks[x + 4] <= highest);
    }
  },
  "boxes of a tree lie inside their parents": () => {
    const tree = grow([[-1, "all", "", false, 100, 9], [0, "a", "", true, 60, 5], [0, "b", "", false, 40, 4], [1, "c", "", false, 60, 5]]), list = boxes(tree, tree.root, 1000);
    same(list.map(box => [box.node.name, box.x, box.depth, box.width]), [["all", 0, 0, 1000], ["a", 0, 1, 600], ["c", 0, 2, 600], ["b", 600, 1, 400]]);
    const two = grow([[-1, "all", "", false, 10, 1, 10, 1], [0, "gone", "", true, 10, 1, 0, 0], [0, "new", "", true, 0, 0, 10, 1]]);
    holds(boxes(two, two.root, 100).every(box => box.x + box.width <= 100.001 || box.depth === 0));
  },
  "own code keeps the user's functions and what they call, with all bytes": () => {
    const tree = grow([[-1, "all", "", false, 100, 10], [0, "start", "", false, 100, 10], [1, "main", "m.py:1", true, 90, 9], [2, "call", "", false, 90, 9], [3, "inner", "", false, 90, 9],
      [4, "mine", "m.py:9", true, 50, 5], [4, "empty", "", false, 40, 4], [1, "other", "", false, 10, 1]]), own = ownCode(tree);
    same(own.root.children.map(one => [one.name, one.size]), [["main", 90], ["other", 10]]);
    same(own.root.children[0].children.map(one => [one.name, one.size]), [["call", 90]]);
    same(own.root.children[0].children[0].children.map(one => [one.name, one.size]), [["mine", 50]]);
    holds(own.hasUser);
  },
  "ranks are sorted by what is worst": () => {
    const list = [["ok", 0, 9], ["oom", 0, 1], ["leak", 7, 5], ["none", 0, 12], ["ok", 0, 12], ["leak", 8, 2], ["suspect", 9, 1]]
      .map(([verdict, growth, highest], process) => ({ process, verdict, growth, highest }));
    same(worstFirst(list).map(one => one.process), [1, 5, 2, 6, 4, 0, 3]);
    same(mainPool({ pools: [{ driver: true, peak_bytes: 9 }, { driver: false, peak_bytes: 3 }, { driver: false, peak_bytes: 4 }] }).peak_bytes, 4);
  },
  "another run is compared by the same pool": () => {
    const pools = [{ pool: "PTA", device: "1", driver: false, peak_bytes: 9 }, { pool: "PTA", device: "0", driver: false, peak_bytes: 3 }];
    same(poolLike({ pool: "PTA", device: "0" }, { pools }).peak_bytes, 3);
    same(poolLike({ pool: "MINDSPORE", device: "0" }, { pools }).peak_bytes, 9);
    same(sidesQuestion([{ process: 0, pool: 1, at: 5 }, { process: 0, pool: 1, at: 9 }]), { process: 0, pool: 1, at: 5, and: 9 });
    same(sidesQuestion([{ process: 0, pool: 1, at: 5 }, { process: 2, pool: 3, at: 9 }]), { process: 0, pool: 1, at: 5, and: 9, with: 2, with_pool: 3 });
  },
  "segments are ordered and told": () => {
    const segments = [{ address: "0x1", bytes: 4, largest_hole: 1 }, { address: "0x2", bytes: 2, largest_hole: 2 }];
    same(orderSegments(segments, "hole").map(one => one.address), ["0x2", "0x1"]);
    same(orderSegments(segments, "size").map(one => one.address), ["0x1", "0x2"]);
    same(orderSegments(segments, null).map(one => one.address), ["0x1", "0x2"]);
    holds(tellSegments({ segments, count: 2, bytes: 6 * MIB, used: MIB, holes: 3, largest_hole: MIB, loose_bytes: 0 }).includes("5.00 MiB free in 3 holes, the largest 1.00 MiB"));
    holds(tellHoles({ hole_sizes: [[4 * MIB, 2, 9 * MIB], [512, 7, 4096]] }) === "2 of 4.00 MiB or more, 7 of 512 B or more", tellHoles({ hole_sizes: [[512, 7, 4096]] }));
    holds(tellSegments({ segments: [], count: 0, bytes: 0, used: 0, holes: 0, largest_hole: 0, loose_bytes: 0 }).includes("nothing"));
  },
  "what leaks is the floor and is red": () => {
    same(stackOrder(["a", "b", "c"], new Set(["c"])), [2, 0, 1]);
    setLeaking(new Set(["c"]));
    forgetGroups();
    holds(colourOf("a") !== colourOf("b") && colourOf("c") !== colourOf("a") && colourOf("a") === colourOf("a"));
    holds(colourOf("never met", false) === colourOf("all others"));
  },
  "ranges that overlap stand in rows of their own": () => {
    same(rangeRows([[0, 10, "a"], [5, 8, "b"], [10, 20, "c"], [300, 400, "far"]], { from: 0, to: 100 }, 3).map(([row, range]) => [row, range[2]]), [[0, "a"], [1, "b"], [0, "c"]]);
    same(rangeRows([[0, 9, "a"], [1, 9, "b"], [2, 9, "c"], [3, 9, "d"]], { from: 0, to: 100 }, 3).length, 3);
  },
  "a moment of a picture has what stands in its column": () => {
    const series = { from_ns: 0, to_ns: 100, width: 4, most: [1, 2, 7, 4], groups: ["a", "b"], held: [[1, 1, 2, 2], [0, 1, 5, 0]] };
    same(momentOf(series, 60), { used: 7, reserved: null, device: null, groups: [{ name: "b", group: 1, bytes: 5 }, { name: "a", group: 0, bytes: 2 }] });
    same(momentOf(series, 200), null);
  },
};

export function run() {
  return Object.entries(claims).map(([name, claim]) => {
    try { claim(); return [name, null]; } catch (error) { return [name, String(error.message)]; }
  });
}
