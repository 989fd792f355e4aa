// SPDX-License-Identifier: Apache-2.0
// The pool at A or the peak, by address: a bar for each segment from the driver, its blocks in their colours, holes empty.
import { begin, colourOf, css, fitted } from "./draw.js";
import { ask } from "./data.js";
import { bytes, count, span } from "./format.js";
import { button, change, drawSoon, make, page, pool, state } from "./page.js";
import { groupTools } from "./timeline.js";

const NAME = 190, SEGMENT_ROW = 22, FIRST = 8;
const ORDERS = { address: "by address", hole: "largest hole first", size: "largest first" };

// Segments in the order that was asked for.
export function orderSegments(list, order) {
  const key = { hole: one => one.largest_hole, size: one => one.bytes }[order];
  return key === undefined ? list : [...list].sort((a, b) => key(b) - key(a));
}

// One sentence: how much of what is reserved is in use, and what could still be handed out at once.
export function tellSegments(answer) {
  const known = answer.segments.filter(one => !one.loose).length, free = answer.bytes - answer.used;
  const loose = answer.loose_bytes > 0 ? `${bytes(answer.loose_bytes)} are in no recorded segment` : "";
  if (known === 0) return loose || "The pool held nothing then.";
  const text = `${count(answer.count, "segment")}, ${bytes(answer.bytes)}; ${bytes(answer.used)} in use, ${bytes(free)} free in ${count(answer.holes, "hole")}, the largest ${bytes(answer.largest_hole)}`;
  return loose ? `${text}; ${loose}` : text;
}

// The holes by size, the largest first: "2 of 4.0 MiB or more, 7 of 1.0 MiB or more".
export function tellHoles(answer) {
  return (answer.hole_sizes ?? []).map(([least, count]) => `${count.toLocaleString("en")} of ${bytes(least)} or more`).join(", ");
}

function hatch(pen, box) {
  pen.fillStyle = css("--band");
  pen.fillRect(box.x, box.y, box.width, box.height);
  pen.strokeStyle = css("--line");
  pen.lineWidth = 1;
  pen.strokeRect(box.x + 0.5, box.y + 0.5, Math.max(0, box.width - 1), box.height - 1);
}

export function drawSegments(canvas, answer, scroll) {
  const { pen, width, height } = begin(canvas), hits = [];
  if (answer === null || answer.segments === undefined) return hits;
  const list = orderSegments(answer.segments, state.order), largest = Math.max(1, ...list.map(one => one.bytes)), room = Math.max(50, width - NAME - 90);
  const text = css("--pale"), strong = css("--text");
  list.forEach((segment, i) => {
    const y = FIRST + i * SEGMENT_ROW - scroll, box = { x: NAME, y, width: Math.max(3, segment.bytes / largest * room), height: SEGMENT_ROW - 5 };
    if (y < -SEGMENT_ROW || y > height) return;
    pen.textAlign = "left";
    pen.fillStyle = text;
    pen.fillText(fitted(pen, segment.loose ? `${segment.address}  no segment` : segment.address, NAME - 90), 10, y + box.height / 2);
    pen.textAlign = "right";
    pen.fillText(bytes(segment.bytes), NAME - 8, y + box.height / 2);
    hatch(pen, box);
    hits.push(segment.group === undefined ? { ...box, segment } : { ...box, segment, id: segment.id, size: segment.bytes, group: segment.group });
    const scale = box.width / (segment.bytes || 1);
    if (segment.group !== undefined) { pen.fillStyle = colourOf(answer.groups[segment.group]); pen.fillRect(box.x, box.y, box.width, box.height); }
    for (let k = 0; k < segment.blocks.length; k += 4) {
      const [id, offset, size, group] = segment.blocks.slice(k, k + 4), part = { x: box.x + offset * scale, y, width: Math.max(size * scale, 0.7), height: box.height };
      pen.fillStyle = colourOf(answer.groups[group]);
      pen.fillRect(part.x, part.y, Math.max(part.width - (part.width > 3 ? 1 : 0), 0.7), part.height);
      if (state.block === String(id)) { pen.strokeStyle = strong; pen.lineWidth = 2; pen.strokeRect(part.x, part.y, part.width, part.height); }
      hits.push({ ...part, segment, id, size, group });
    }
    pen.textAlign = "left";
    pen.fillStyle = text;
    if (!segment.loose) pen.fillText(`${Math.round(segment.used / (segment.bytes || 1) * 100)} % used`, box.x + box.width + 8, y + box.height / 2);
  });
  canvas.dataset.segments = String(list.length);
  return hits;
}

let segments = null, scrolled = 0;

export const segmentsView = {
  key: "segments",
  title: "Segments",
  shown: () => page.run !== null && pool()?.device !== "cpu", // malloc(3) has none that would say something
  async fetch(current) {
    const next = await ask("segments", { process: state.process, pool: pool().index, by: state.by, at: Math.round(state.at ?? pool().peak_ns), of: state.at === null ? "peak" : "" });
    if (!current()) return;
    segments = next;
    scrolled = 0;
  },
  draw: canvas => drawSegments(canvas, segments, scrolled),
  tools() {
    const at = state.at ?? pool().peak_ns;
    return [...groupTools(), ...Object.entries(ORDERS).map(([key, text]) => button(text, (state.order ?? "address") === key, () => change({ order: key === "address" ? null : key }))),
      ...(segments?.segments === undefined ? [] : [make("span", "", `${tellSegments(segments)}.`)]),
      ...(segments?.hole_sizes?.length ? [make("span", "", `Holes: ${tellHoles(segments)}.`)] : []),
      make("span", "", segments?.error ?? `${state.at === null ? "At the peak" : "At A"}, ${span(at)}; click in the run above for another moment.`)];
  },
  tip: hit => hit && (hit.id === undefined
    ? `${hit.segment.loose ? "addresses" : "segment"} ${hit.segment.address}, ${bytes(hit.segment.bytes)}\n${count(hit.segment.count, "block")}, ${bytes(hit.segment.used)} in use${hit.segment.loose ? "" : `\n${count(hit.segment.holes, "hole")}, the largest ${bytes(hit.segment.largest_hole)}`}`
    : `${bytes(hit.size)}\n${segments.groups[Math.min(hit.group, segments.groups.length - 1)] ?? ""}`),
  click(hit) {
    if (hit && hit.id !== undefined) change({ block: String(hit.id) });
    return true;
  },
  wheel(delta) {
    const most = Math.max(0, (segments?.segments?.length ?? 0) * SEGMENT_ROW - 200);
    scrolled = Math.min(most, Math.max(0, scrolled + delta));
    drawSoon(false);
  },
  forget() { segments = null; },
};
