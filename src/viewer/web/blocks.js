// SPDX-License-Identifier: Apache-2.0
// Each block as a rectangle: time across; up its address, where spans that hold nothing take no room, or its size on top of others.
import { isByClock, placer } from "./axis.js";
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

// Bottom and height of each block in pixels; kept with the answer until the height changes.
function heightsOf(answer, plot, mode, up) {
  const key = `${mode} ${plot.y} ${plot.height}`;
  if (answer.heights?.key !== key) {
    const count = answer.blocks.length / EACH, heights = { key, bottoms: new Float32Array(count), heights: new Float32Array(count) };
    for (let i = 0; i < count; i++) [heights.bottoms[i], heights.heights[i]] = up(i, answer.blocks[i * EACH + 3], answer.blocks[i * EACH + 4]);
    answer.heights = heights;
  }
  return answer.heights;
}

function addressHeights(answer, plot) {
  const extents = layOut(answer.extents, plot.y, plot.height);
  let extent = 0;
  return heightsOf(answer, plot, "address", (i, address, size) => {
    while (extent + 1 < extents.length && address >= extents[extent + 1].address) extent++;
    const here = extents[extent], scale = here.size === 0 ? 0 : here.pixels / here.size;
    return [here.bottom - (address - here.address) * scale, size * scale];
  });
}

// Calls act(i, x, y, width, height) for each block in the view, those of a group behind each other. No object is made: this runs with
// every frame, for up to 20,000 blocks.
function eachRectangle(answer, view, plot, { bottoms, heights }, act) {
  const { blocks } = answer, scale = plot.width / (view.to - view.from), shift = plot.x + (answer.from_ns - view.from) * scale, right = plot.x + plot.width;
  const byClock = isByClock(), place = placer(view, plot);
  answer.order ??= Uint32Array.from({ length: blocks.length / EACH }, (_, i) => i).sort((a, b) => blocks[a * EACH + 5] - blocks[b * EACH + 5] || a - b);
  for (const i of answer.order) {
    const from = byClock ? shift + blocks[i * EACH + 1] * scale : place(answer.from_ns + blocks[i * EACH + 1]);
    const to = byClock ? shift + blocks[i * EACH + 2] * scale : place(answer.from_ns + blocks[i * EACH + 2]);
    if (to < plot.x || from > right) continue;
    const left = from < plot.x ? plot.x : from, width = (to > right ? right : to) - left, height = heights[i];
    act(i, left, bottoms[i] - height, width > 0.5 ? width : 0.5, height > 0.5 ? height : 0.5);
  }
}

function boxesOf(answer, view, plot, heights) {
  const { blocks } = answer, list = [];
  eachRectangle(answer, view, plot, heights, (i, x, y, width, height) => {
    const at = i * EACH;
    list.push({ id: blocks[at], from: blocks[at + 1], to: blocks[at + 2], size: blocks[at + 4], group: blocks[at + 5], x, y, width, height });
  });
  return list;
}

export function byAddress(answer, view, plot) {
  return boxesOf(answer, view, plot, addressHeights(answer, plot));
}

function fillBlocks(pen, answer, view, plot, heights) {
  const { blocks, groups } = answer, edges = [], outlined = blocks.length < 6000 * EACH;
  let group = -1, chosen = null;
  pen.globalAlpha = 0.85;
  eachRectangle(answer, view, plot, heights, (i, x, y, width, height) => {
    if (blocks[i * EACH + 5] !== group) { group = blocks[i * EACH + 5]; pen.fillStyle = colourOf(groups[group]); }
    pen.fillRect(x, y, width, height);
    if (outlined && width > 4 && height > 4) edges.push(x, y, width, height);
    if (state.block !== null && state.block === String(blocks[i * EACH])) chosen = [x, y, Math.max(width, 2), Math.max(height, 2)];
  });
  pen.globalAlpha = 1;
  pen.strokeStyle = css("--back");
  pen.lineWidth = 0.6;
  for (let i = 0; i < edges.length; i += 4) pen.strokeRect(edges[i], edges[i + 1], edges[i + 2], edges[i + 3]);
  if (chosen !== null) {
    pen.strokeStyle = css("--text");
    pen.lineWidth = 2;
    pen.strokeRect(...chosen);
  }
}

export function drawBlocks(canvas, answer, run) {
  const { pen, width, height } = begin(canvas), view = { from: state.from, to: state.to };
  if (answer === null || answer.blocks === undefined) return [];
  const plot = { x: LEFT, y: TOP, width: width - LEFT - 8, height: height - TOP - BOTTOM };
  const x = placer(view, plot);
  let heights;
  stepBands(pen, plot, view, run.steps, x, run.to_ns);
  if (state.up === "size") {
    answer.pile ??= pile(answer.blocks, answer.to_ns - answer.from_ns);
    const place = axes(pen, width, height, view, answer.pile.highest * 1.03, run.from_ns);
    heights = heightsOf(answer, plot, "size", (i, address, size) => [place.y(answer.pile.bottoms[i]), place.y(0) - place.y(size)]);
  } else {
    timeScale(pen, plot, height, view, x, run.from_ns);
    bytesAxis(pen, plot, layOut(answer.extents, plot.y, plot.height));
    heights = addressHeights(answer, plot);
  }
  fillBlocks(pen, answer, view, plot, heights);
  drawMoments(pen, plot, x);
  // Boxes are made when the pointer asks for one.
  let list = null;
  return { findLast: test => (list ??= boxesOf(answer, view, plot, heights)).findLast(test) };
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
