// SPDX-License-Identifier: Apache-2.0
// Bytes by call stack: outermost callers on top. Of two moments, what grew is red and what shrank is blue.
import { begin, css, fitted } from "./draw.js";
import { ask, isReport } from "./data.js";
import { bytes, parseSearch, signed } from "./format.js";
import { button, change, drawSoon, isStale, make, note, page, pool, state } from "./page.js";
import { sidesQuestion, twoSides } from "./compare.js";

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

// The same tree with the user's own functions alone, and what they call directly: the rest is joined to the nearest caller that stays.
// Of a stack without any of the user's its last frame stays.
export function ownCode(tree) {
  const add = (to, node) => {
    let same = to.children.find(one => one.name === node.name && one.where === node.where);
    if (same === undefined) to.children.push(same = { ...node, size: 0, blocks: 0, other: node.other === null ? null : 0, otherBlocks: node.otherBlocks === null ? null : 0, children: [] });
    same.size += node.size;
    same.blocks += node.blocks;
    if (node.other !== null) { same.other += node.other; same.otherBlocks += node.otherBlocks; }
    return same;
  };
  const walk = (node, to, calledByUser) => {
    const stays = node.user || calledByUser || (node.children.length === 0 && to === root), at = stays ? add(to, node) : to;
    for (const child of node.children) walk(child, at, node.user);
  };
  const root = { ...tree.root, children: [] };
  for (const child of tree.root.children) walk(child, root, false);
  const sort = node => { node.children.sort((a, b) => tree.weight(b) - tree.weight(a)); node.children.forEach(sort); };
  sort(root);
  return { root, weight: tree.weight, hasUser: root.children.some(one => one.user) };
}

// Boxes of a subtree, from the left.
export function boxes(tree, root, width) {
  const list = [];
  const put = (node, x, depth, scale) => {
    const own = tree.weight(node) * scale;
    if (own < 1) return;
    list.push({ node, x, depth, width: own });
    // Children of two moments together may be wider than their parent.
    const sum = node.children.reduce((total, child) => total + tree.weight(child), 0) || 1;
    const inner = scale * Math.min(1, tree.weight(node) / sum);
    let at = x;
    for (const child of node.children) {
      put(child, at, depth + 1, inner);
      at += tree.weight(child) * inner;
    }
  };
  put(root, 0, 0, width / (tree.weight(root) || 1));
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

function tellBox(node) {
  const size = node.other === null ? bytes(node.size) : signed(node.other - node.size);
  return `${node.name}  ${node.where}  ${size}`;
}

export function drawFlame(canvas, tree, look) {
  const { pen, width, height } = begin(canvas);
  if (tree === null || tree.root === null) return [];
  const root = look.focus ?? tree.root, list = boxes(tree, root, width - 8);
  const largest = Math.max(...list.map(box => Math.abs((box.node.other ?? box.node.size) - box.node.size)), 1);
  for (const box of list) {
    box.y = look.upward ? height - 6 - (box.depth + 1) * ROW : 6 + box.depth * ROW;
    box.x += 4;
    box.height = ROW - 1;
    if (box.y > height || box.y < -ROW) continue;
    pen.fillStyle = fill(box.node, largest);
    pen.globalAlpha = look.search && !`${box.node.name} ${box.node.where}`.toLowerCase().includes(look.search.toLowerCase()) ? 0.25 : 1;
    pen.fillRect(box.x, box.y, Math.max(box.width - 1, 0.5), box.height);
    pen.fillStyle = "#1c2127";
    pen.textAlign = "left";
    pen.fillText(fitted(pen, tellBox(box.node), box.width - 8), box.x + 4, box.y + ROW / 2);
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
  return node.other === null ? first : `${node.name}\n${node.where}\nA: ${bytes(node.size)} in ${node.blocks} blocks\nB: ${bytes(node.other)} in ${node.otherBlocks} blocks\n${signed(node.other - node.size)}`;
}

const OF = { peak: "at the peak", moment: "at A", leaks: "leaks", end: "at the end", all: "all allocated", difference: "A to B" };
let allFrames = null, tree = null, focus = null, upward = false, folds = true;

function foldTree() {
  const own = allFrames === null || !folds ? null : ownCode(allFrames);
  tree = own?.hasUser ? own : allFrames;
  focus = null;
}

async function treeQuestion() {
  if (state.of === "difference") {
    const sides = await twoSides();
    return sides === null ? null : { ...sidesQuestion(sides), of: "difference" };
  }
  const moment = { peak: pool().peak_ns, moment: state.at ?? pool().peak_ns, end: page.run.to_ns }[state.of];
  return { process: state.process, pool: pool().index, of: state.of, at: moment === undefined ? undefined : Math.round(moment) };
}

export const flameView = {
  key: "flame",
  title: "Flame graph",
  async fetch(current) {
    if (!(state.of in OF) || (state.of === "moment" && state.at === null)) state.of = "peak";
    const question = await treeQuestion(), next = question === null ? { error: "The other run cannot be read." } : await ask("tree", question);
    if (!current() || isStale()) return;
    allFrames = next.nodes ? grow(next.nodes) : null;
    foldTree();
    note(next.error ?? "");
  },
  draw: canvas => drawFlame(canvas, tree, { focus, search: parseSearch(state.search).text, upward }),
  tools() {
    const has = { moment: state.at !== null && !isReport, leaks: page.run.leaks.some(one => one.verdict === "leak"), difference: !isReport };
    const parts = Object.entries(OF).filter(([key]) => has[key] !== false).map(([key, text]) => button(text, state.of === key, () => change({ of: key })));
    parts.push(button("own code", folds, () => { folds = !folds; foldTree(); drawSoon(true); }));
    parts.push(button(upward ? "flame" : "icicle", false, () => { upward = !upward; drawSoon(true); }));
    if (focus !== null) parts.push(button("whole tree", false, () => { focus = null; drawSoon(true); }));
    parts.push(make("span", "", state.of === "difference" ? "red: more in B, blue: less" : "orange: your code"));
    return parts;
  },
  tip: hit => hit && tellNode(hit.node, tree.root),
  click(hit) {
    if (hit) { focus = hit.node === focus ? null : hit.node; drawSoon(true); }
    return true;
  },
  forget() { allFrames = tree = focus = null; },
};
