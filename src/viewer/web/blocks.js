// SPDX-License-Identifier: Apache-2.0
// Each block as a rectangle: time across; up its address, where spans that hold nothing take no room, or its size on top of others.
import { axes, begin, bytesAxis, colourOf, css, stepBands, timeScale, BOTTOM, LEFT, TOP } from "./draw.js";
import { ask, isReport } from "./data.js";
import { bytes, span } from "./format.js";
import { button, change, fetchSeries, make, note, page, question, state } from "./page.js";
import { drawMoments, timeTools } from "./timeline.js";

const GAP = 6; // pixels between two extents
const EACH = 6; // numbers of a block: id, begin, end, address, size, group
const COLUMNS = 2400; // of time, in which blocks are put on top of each other

export function layOut(extents, top, height) {
  const total = extents.reduce((sum, [, size]) => sum + size, 0) || 1;
  const room = Math.max(1, height - GAP * (extents.length - 1));
  let at = top + height;
  return extents.map(([address, size]) => {
    const extent = { address, size, pixels: size / total * room, bottom: at };
    at -= extent.pixels + GAP;
    return extent;
  });
}

// Where each block stands when blocks are put on top of each other: those that live longest lowest. Also how high all of it is.
export function pile(blocks, length) {
  const heights = new Float64Array(COLUMNS), count = blocks.length / EACH, bottoms = new Float64Array(count);
  const column = time => Math.min(COLUMNS - 1, Math.max(0, Math.floor(time / (length || 1) * COLUMNS)));
  const order = Array.from({ length: count }, (_, i) => i)
    .sort((a, b) => (blocks[b * EACH + 2] - blocks[b * EACH + 1]) - (blocks[a * EACH + 2] - blocks[a * EACH + 1]) || a - b);
  let highest = 0;
  for (const i of order) {
    const from = column(blocks[i * EACH + 1]), to = Math.max(from, Math.ceil(Math.min(1, blocks[i * EACH + 2] / (length || 1)) * COLUMNS) - 1);
    let bottom = 0;
    for (let k = from; k <= to; k++) if (heights[k] > bottom) bottom = heights[k];
    bottoms[i] = bottom;
    heights.fill(bottom + blocks[i * EACH + 4], from, to + 1);
    if (bottom + blocks[i * EACH + 4] > highest) highest = bottom + blocks[i * EACH + 4];
  }
  return { bottoms, highest };
}

// Rectangles of an answer in pixels; `up` places a block: (index, address, size) to its bottom and height.
function rectangles(answer, view, plot, up) {
  const list = [], x = time => plot.x + (answer.from_ns + time - view.from) / (view.to - view.from) * plot.width, right = plot.x + plot.width;
  const { blocks } = answer;
  for (let i = 0; i < blocks.length; i += EACH) {
    const left = Math.max(x(blocks[i + 1]), plot.x), end = Math.min(x(blocks[i + 2]), right);
    if (end < plot.x || left > right) continue;
    const [bottom, height] = up(i / EACH, blocks[i + 3], blocks[i + 4]);
    list.push({ id: blocks[i], size: blocks[i + 4], group: blocks[i + 5], from: blocks[i + 1], to: blocks[i + 2], x: left, y: bottom - height, width: Math.max(end - left, 0.5), height: Math.max(height, 0.5) });
  }
  return list;
}

export function byAddress(answer, view, plot) {
  const extents = layOut(answer.extents, plot.y, plot.height);
  let extent = 0;
  return rectangles(answer, view, plot, (i, address, size) => {
    while (extent + 1 < extents.length && address >= extents[extent + 1].address) extent++;
    const here = extents[extent], scale = here.size === 0 ? 0 : here.pixels / here.size;
    return [here.bottom - (address - here.address) * scale, size * scale];
  });
}

// What has been drawn last: its rectangles fit until the answer or the view changes.
function fillBlocks(pen, list, names) {
  const back = css("--back"), strokes = list.length < 6000;
  let group = -1;
  pen.globalAlpha = 0.85;
  for (const one of [...list].sort((a, b) => a.group - b.group)) {
    if (one.group !== group) { group = one.group; pen.fillStyle = colourOf(names[group]); }
    pen.fillRect(one.x, one.y, one.width, one.height);
  }
  pen.globalAlpha = 1;
  pen.strokeStyle = back;
  pen.lineWidth = 0.6;
  if (strokes) for (const one of list) if (one.width > 4 && one.height > 4) pen.strokeRect(one.x, one.y, one.width, one.height);
  const chosen = list.find(one => state.block === String(one.id));
  if (chosen) {
    pen.strokeStyle = css("--text");
    pen.lineWidth = 2;
    pen.strokeRect(chosen.x, chosen.y, Math.max(chosen.width, 2), Math.max(chosen.height, 2));
  }
}

export function drawBlocks(canvas, answer, run) {
  const { pen, width, height } = begin(canvas), view = { from: state.from, to: state.to };
  if (answer === null || answer.blocks === undefined) return [];
  const plot = { x: LEFT, y: TOP, width: width - LEFT - 8, height: height - TOP - BOTTOM };
  const x = time => plot.x + (time - view.from) / (view.to - view.from) * plot.width;
  let list;
  stepBands(pen, plot, view, run.steps, x, run.to_ns);
  if (state.up === "size") {
    answer.pile ??= pile(answer.blocks, answer.to_ns - answer.from_ns);
    const place = axes(pen, width, height, view, answer.pile.highest * 1.03, run.from_ns);
    list = rectangles(answer, view, plot, (i, address, size) => [place.y(answer.pile.bottoms[i]), place.y(0) - place.y(size)]);
  } else {
    timeScale(pen, plot, height, view, x, run.from_ns);
    bytesAxis(pen, plot, layOut(answer.extents, plot.y, plot.height));
    list = byAddress(answer, view, plot);
  }
  fillBlocks(pen, list, answer.groups);
  drawMoments(pen, plot, x);
  return list;
}

let blocks = null;

export const blocksView = {
  key: "blocks",
  title: "Blocks",
  time: true,
  async fetch(current) {
    if (!await fetchSeries(current)) return;
    const next = await ask("blocks", question());
    if (!current()) return;
    if (!next.error) blocks = next;
    note(next.error ?? "");
  },
  draw: canvas => drawBlocks(canvas, blocks, page.run),
  tools() {
    const parts = timeTools(button("by address", state.up !== "size", () => change({ up: null })), button("by size", state.up === "size", () => change({ up: "size" })));
    if (blocks?.left_out && !isReport) parts.push(make("span", "", `${blocks.left_out.toLocaleString("en")} small blocks are left out: zoom in`));
    return parts;
  },
  tip: hit => hit && `${bytes(hit.size)}, lived ${span(hit.to - hit.from)}${hit.to + blocks.from_ns >= blocks.to_ns ? " or longer" : ""}\n${blocks.groups[Math.min(hit.group, blocks.groups.length - 1)]}`,
  click(hit) {
    if (hit) change({ block: String(hit.id) });
    return hit !== null;
  },
  forget() { blocks = null; },
};
