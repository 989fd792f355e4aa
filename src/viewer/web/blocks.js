// SPDX-License-Identifier: Apache-2.0
// Each block as a rectangle: time across, address up. Spans of addresses that hold nothing take no room.
import { begin, bytesAxis, colourOf, css, stepBands, timeScale, vertical, BOTTOM, LEFT, TOP } from "./draw.js";
import { ask } from "./data.js";
import { bytes } from "./format.js";
import { change, fetchSeries, page, question, state } from "./page.js";
import { timeTools } from "./timeline.js";

const GAP = 6; // pixels between two extents
const EACH = 6; // numbers of a block: id, begin, end, address, size, group

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

export function rectangles(answer, view, plot) {
  const extents = layOut(answer.extents, plot.y, plot.height), list = [];
  const x = time => plot.x + (answer.from_ns + time - view.from) / (view.to - view.from) * plot.width;
  let extent = 0;
  for (let i = 0; i < answer.blocks.length; i += EACH) {
    const [id, from, to, address, size, group] = answer.blocks.slice(i, i + EACH);
    while (extent + 1 < extents.length && address >= extents[extent + 1].address) extent++;
    const here = extents[extent], scale = here.size === 0 ? 0 : here.pixels / here.size;
    const left = Math.max(x(from), plot.x), right = Math.min(x(to), plot.x + plot.width);
    if (right < plot.x || left > plot.x + plot.width) continue;
    const bottom = here.bottom - (address - here.address) * scale;
    list.push({ id, size, group, x: left, y: bottom - size * scale, width: Math.max(right - left, 0.5), height: Math.max(size * scale, 0.5) });
  }
  return list;
}

export function drawBlocks(canvas, answer, state, run) {
  const { pen, width, height } = begin(canvas), view = { from: state.from, to: state.to };
  const plot = { x: LEFT, y: TOP, width: width - LEFT - 8, height: height - TOP - BOTTOM };
  const x = time => plot.x + (time - view.from) / (view.to - view.from) * plot.width;
  if (answer === null || answer.blocks === undefined) return [];
  stepBands(pen, plot, view, run.steps, x, run.to_ns);
  timeScale(pen, plot, height, view, x, run.from_ns);
  bytesAxis(pen, plot, layOut(answer.extents, plot.y, plot.height));
  const list = rectangles(answer, view, plot);
  for (const one of list) {
    pen.fillStyle = colourOf(one.group < 12 ? one.group : 99);
    pen.globalAlpha = state.block === String(one.id) ? 1 : 0.8;
    pen.fillRect(one.x, one.y, one.width, one.height);
    if (one.width > 4 && one.height > 4) {
      pen.globalAlpha = 1;
      pen.strokeStyle = css("--back");
      pen.lineWidth = 0.6;
      pen.strokeRect(one.x, one.y, one.width, one.height);
    }
    if (state.block === String(one.id)) {
      pen.strokeStyle = css("--text");
      pen.lineWidth = 2;
      pen.strokeRect(one.x, one.y, one.width, one.height);
    }
  }
  pen.globalAlpha = 1;
  if (state.at) vertical(pen, plot, x(state.at), css("--strong"), "A");
  if (state.and) vertical(pen, plot, x(state.and), css("--bad"), "B");
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
    if (current() && !next.error) blocks = next;
  },
  draw: canvas => drawBlocks(canvas, blocks, state, page.run),
  tools: () => timeTools(blocks?.left_out ? `; ${blocks.left_out.toLocaleString("en")} small blocks are left out: zoom in` : ""),
  tip: hit => hit && `${bytes(hit.size)}\n${blocks.groups[Math.min(hit.group, blocks.groups.length - 1)]}`,
  click(hit) {
    if (hit) change({ block: String(hit.id) });
    return hit !== null;
  },
  forget() { blocks = null; },
};
