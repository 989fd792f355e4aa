// SPDX-License-Identifier: Apache-2.0
// How figures are shown. No state, no page.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(value) {
  const sign = value < 0 ? "\u2212" : "";
  let size = Math.abs(value), unit = 0;
  while (size >= (unit === 0 ? 1024 : 1023.95) && unit < UNITS.length - 1) { size /= 1024; unit++; } // 1024.0 KiB is 1.00 MiB
  return `${sign}${unit === 0 ? size : size.toFixed(size < 10 ? 2 : 1)} ${UNITS[unit]}`;
}

// A span of time in nanoseconds.
export function span(ns) {
  if (ns < 1e3) return `${Math.round(ns)} ns`;
  if (ns < 1e6) return `${(ns / 1e3).toFixed(1)} \u00b5s`;
  if (ns < 1e9) return `${(ns / 1e6).toFixed(1)} ms`;
  if (ns < 120e9) return `${(ns / 1e9).toFixed(2)} s`;
  if (ns < 7200e9) return `${(ns / 60e9).toFixed(1)} min`;
  return `${(ns / 3600e9).toFixed(1)} h`;
}

// Numbers at which a scale from 0 has lines: 1, 2, 5 times a power of the base, about `count` of them.
export function ticks(most, count, base = 10) {
  if (!(most > 0)) return [0];
  const rough = most / count, power = base ** Math.floor(Math.log(rough) / Math.log(base));
  const steps = base === 2 ? [1, 2] : [1, 2, 5, 10];
  const step = power * (steps.find(s => s * power >= rough) ?? steps[steps.length - 1]);
  const list = [];
  for (let at = 0; at <= most; at += step) list.push(at);
  return list;
}

// An owner without the pool that it begins with, which the page names already.
export function ownerName(text) {
  const at = text.indexOf("@");
  return at < 0 ? text : text.slice(at + 1);
}

// The part of a span that is shown, kept inside the whole; at least `least` long.
export function clampView(from, to, wholeFrom, wholeTo, least = 1000) {
  let length = Math.min(Math.max(to - from, least), wholeTo - wholeFrom);
  let begin = Math.min(Math.max(from, wholeFrom), wholeTo - length);
  return [begin, begin + length];
}

// Index of the last entry whose key is not above `value`; -1: all are.
export function lastNotAbove(list, value, key = x => x) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (key(list[middle]) <= value) low = middle + 1; else high = middle;
  }
  return low - 1;
}

// A state as the address bar has it, and back.
export function toHash(state) {
  return "#" + Object.entries(state).filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([key, value]) => `${key}=${encodeURIComponent(value)}`).join("&");
}

export function fromHash(hash) {
  return Object.fromEntries(hash.replace(/^#/, "").split("&").filter(Boolean).map(part => {
    const [key, ...rest] = part.split("=");
    const value = rest.join("=");
    try { return [key, decodeURIComponent(value)]; } catch { return [key, value]; }
  }));
}

const SIZE = /^(?:size)?(<=|>=|<|>|=)([0-9.]+)(b|k|kb|kib|m|mb|mib|g|gb|gib|t|tb|tib)?$/i;
const ADDRESS = /^0x[0-9a-f]{1,16}$/i;

// What a person types into the search: words, ">100M" or "size>100MiB", "=4096", an address, "alive".
export function parseSearch(text) {
  const found = { text: "", least: 0, most: null, alive: false, address: null }, words = [];
  for (const word of text.trim().split(/\s+/)) {
    const size = SIZE.exec(word);
    if (size !== null) {
      const power = "bkmgt".indexOf((size[3] ?? "b")[0].toLowerCase()), value = Math.round(Number(size[2]) * 1024 ** power);
      if (size[1].startsWith(">")) found.least = value + (size[1] === ">" ? 1 : 0);
      else if (size[1].startsWith("<")) found.most = Math.max(0, value - (size[1] === "<" ? 1 : 0));
      else found.least = found.most = value;
    } else if (ADDRESS.test(word)) found.address = word.toLowerCase();
    else if (word.toLowerCase() === "alive") found.alive = true;
    else words.push(word);
  }
  found.text = words.join(" ");
  return found;
}

// Owners as a tree: "POOL@model@weight" lies below "model". The pool itself is left out; children are sorted, largest first.
export function ownerTree(groups) {
  const root = { name: "", path: "", bytes: 0, children: [] };
  for (const group of groups) {
    const parts = ownerName(group.name).split("@");
    let node = root;
    root.bytes += group.bytes;
    parts.forEach((name, depth) => {
      let child = node.children.find(one => one.name === name);
      if (child === undefined) node.children.push(child = { name, path: parts.slice(0, depth + 1).join("@"), bytes: 0, children: [] });
      child.bytes += group.bytes;
      node = child;
    });
    node.group = group.name;
  }
  const sort = node => { node.children.sort((a, b) => b.bytes - a.bytes || (a.name < b.name ? -1 : 1)); node.children.forEach(sort); };
  sort(root);
  return root;
}

// A change with its sign.
export function signed(value) {
  return `${value > 0 ? "+" : ""}${bytes(value)}`;
}

export function signedCount(value) {
  return `${value > 0 ? "+" : value < 0 ? "\u2212" : ""}${Math.abs(value).toLocaleString("en")}`;
}

// The end of a step: the moment before the next one begins. null: there is no such step.
export function stepEnd(steps, number, end) {
  const at = lastNotAbove(steps, number, ([one]) => one);
  return at < 0 ? null : at + 1 < steps.length ? steps[at + 1][1] - 1 : end;
}

// Two moments that tell most of a run when none was chosen: the ends of the first step and of the last whole one.
export function usualMoments(run) {
  const { steps } = run;
  if (steps.length > 2) return [steps[1][1] - 1, steps[steps.length - 1][1] - 1];
  return [Math.round(run.from_ns + (run.to_ns - run.from_ns) / 10), run.to_ns];
}

// A run as people say it: one that nobody named has its start and a number for a name, run-20261116180222-57d6b6.
export function runTitle(run) {
  const start = /^run-(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)\d\d(-[0-9a-f]+)?$/.exec(run);
  return start === null ? run : `Run of ${start[1]}-${start[2]}-${start[3]} ${start[4]}:${start[5]}`;
}

// "1 block", "2 blocks".
export const count = (number, what) => `${number.toLocaleString("en")} ${what}${number === 1 ? "" : "s"}`;
