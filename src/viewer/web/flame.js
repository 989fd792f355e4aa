// SPDX-License-Identifier: Apache-2.0
// Bytes by call stack: outermost callers on top. Of two moments, what grew is red and what shrank is blue.
import { begin, css, fitted } from "./draw.js";
import { ask, isReport } from "./data.js";
import { bytes } from "./format.js";
import { button, change, drawSoon, isStale, note, page, pool, state } from "./page.js";

const ROW = 19;

// Nodes of an answer with their children, largest first.
export function grow(nodes) {
  const all = nodes.map(([parent, name, where, user, size, blocks, other, otherBlocks]) =>
    ({ parent, name, where, user, size, blocks, other: other ?? null, otherBlocks: otherBlocks ?? null, children: [] }));
  for (const node of all) if (node.parent >= 0) all[node.parent].children.push(node);
  const weight = node => Math.max(node.size, node.other ?? 0);
  for (const node of all) node.children.sort((a, b) => weight(b) - weight(a));
  return { root: all[0] ?? null, weight };
}

// Boxes of a subtree, from the left.
export function boxes(tree, root, width) {
  const list = [], scale = width / (tree.weight(root) || 1);
  const put = (node, x, depth) => {
    const own = tree.weight(node) * scale;
    if (own < 1) return;
    list.push({ node, x, depth, width: own });
    // Children of two moments together may be wider than their parent.
    const sum = node.children.reduce((total, child) => total + tree.weight(child), 0) || 1;
    const share = Math.min(1, tree.weight(node) / sum);
    let at = x;
    for (const child of node.children) {
      put(child, at, depth + 1);
      at += tree.weight(child) * scale * share;
    }
  };
  put(root, 0, 0);
  return list;
}

function hue(text) {
  let hash = 7;
  for (let i = 0; i < text.length; i++) hash = (hash * 31 + text.charCodeAt(i)) >>> 0;
  return hash % 40;
}

function fill(node, largest) {
  if (node.other !== null) {
    const change = node.other - node.size, strength = Math.min(1, Math.abs(change) / (largest || 1));
    return change > 0 ? `hsl(2 70% ${82 - strength * 30}%)` : change < 0 ? `hsl(212 70% ${82 - strength * 30}%)` : "hsl(0 0% 80%)";
  }
  return node.user ? `hsl(${18 + hue(node.name)} 85% 62%)` : `hsl(${205 + hue(node.name) / 2} 22% 76%)`;
}

export function drawFlame(canvas, tree, state) {
  const { pen, width, height } = begin(canvas);
  if (tree === null || tree.root === null) return [];
  const root = state.focus ?? tree.root, list = boxes(tree, root, width - 8);
  const largest = Math.max(...list.map(box => Math.abs((box.node.other ?? box.node.size) - box.node.size)), 1);
  for (const box of list) {
    box.y = 6 + box.depth * ROW;
    box.x += 4;
    box.height = ROW - 1;
    if (box.y > height) continue;
    pen.fillStyle = fill(box.node, largest);
    pen.globalAlpha = state.search && !box.node.name.toLowerCase().includes(state.search.toLowerCase()) ? 0.3 : 1;
    pen.fillRect(box.x, box.y, Math.max(box.width - 1, 0.5), box.height);
    pen.fillStyle = "#1c2127";
    pen.textAlign = "left";
    pen.fillText(fitted(pen, `${box.node.name}  ${box.node.where}`, box.width - 8), box.x + 4, box.y + ROW / 2);
  }
  pen.globalAlpha = 1;
  if (tree.root.size === 0 && !tree.root.other) {
    pen.fillStyle = css("--pale");
    pen.fillText("Nothing was alive then.", 12, 20);
  }
  return list;
}

export function tellNode(node, root) {
  const share = root.size > 0 ? ` (${(node.size / root.size * 100).toFixed(1)} %)` : "";
  const first = `${node.name}\n${node.where}\n${bytes(node.size)}${share} in ${node.blocks} blocks`;
  return node.other === null ? first : `${first}\nB: ${bytes(node.other)} in ${node.otherBlocks}, ${node.other >= node.size ? "+" : ""}${bytes(node.other - node.size)}`;
}

const OF = { peak: "at the peak", moment: "at A", leaks: "leaks", end: "at the end", all: "all allocated" };
let tree = null, focus = null;

export const flameView = {
  key: "flame",
  title: "Flame graph",
  async fetch(current) {
    if (!(state.of in OF)) state.of = "peak";
    const moment = { peak: pool().peak_ns, moment: state.at ?? pool().peak_ns, end: page.run.to_ns }[state.of];
    const two = state.of === "moment" && state.and !== null;
    const next = await ask("tree", { process: state.process, pool: pool().index, of: state.of, at: moment && Math.round(moment), and: two ? Math.round(state.and) : undefined });
    if (!current() || isStale()) return;
    tree = next.nodes ? grow(next.nodes) : null;
    focus = null;
    note(next.error ?? "");
  },
  draw: canvas => drawFlame(canvas, tree, { focus, search: state.search }),
  tools() {
    const parts = Object.entries(OF).filter(([key]) => key !== "moment" || !isReport).map(([key, text]) => button(text, state.of === key, () => change({ of: key })));
    if (focus !== null) parts.push(button("whole tree", false, () => { focus = null; drawSoon(true); }));
    return parts;
  },
  tip: hit => hit && tellNode(hit.node, tree.root),
  click(hit) {
    if (hit) { focus = hit.node === focus ? null : hit.node; drawSoon(true); }
    return true;
  },
  forget() { tree = focus = null; },
};
